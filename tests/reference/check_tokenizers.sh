#!/usr/bin/env bash
# Compares both tokenizers with PyPI tokenizers on 10,000 strings: half from real texts, half
# adversarial. Needs a built release preset and a Python with tests/reference/requirements.txt.
set -euo pipefail

usage() {
  cat <<'END'
Usage: tests/reference/check_tokenizers.sh TEXT_FILE...

TEXT_FILE: .json, .jsonl or plain text, also .gz, .bz2 or .xz. PYTHON names the interpreter
(default python3), SEED the strings (default: drawn and printed), COUNT their number.

Example: PYTHON=venv/bin/python tests/reference/check_tokenizers.sh .deps/data/wiki_summaries.json
END
}

if [[ $# -eq 0 || $1 == -h || $1 == --help ]]; then
  usage
  exit $(($# == 0 ? 2 : 0))
fi
texts=()
for text in "$@"; do texts+=("$(realpath "$text")"); done
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seed=${SEED:-$RANDOM}
echo "seed $seed"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PYTHONDONTWRITEBYTECODE=1 "${PYTHON:-python3}" tests/reference/make_tokenizer_golden.py \
  .deps/models/SmolLM2-135M-Instruct.Q4_1.gguf .deps/models/all-minilm-l6-v2 \
  "$work/strings.jsonl" --count "${COUNT:-10000}" --seed "$seed" --text "${texts[@]}"
RAG_SOURCE_DIR=$PWD RAG_DEPS_DIR=$PWD/.deps RAG_TOKENIZER_GOLDEN=$work/strings.jsonl \
  build/release/tests/common_tokenizer_test --gtest_filter='TokenizerGolden.*'
