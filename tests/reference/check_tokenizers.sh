#!/usr/bin/env bash
# Compares tokenizers with the reference libraries on 10,000 strings each: half from real texts,
# half adversarial. Needs a built release preset and a Python with tests/reference/requirements.txt.
set -euo pipefail

usage() {
  cat <<'END'
Usage: tests/reference/check_tokenizers.sh [--tokenizer FILE]... TEXT_FILE...

Without --tokenizer: those of the demo's models. With it: each named tokenizer.json, or SentencePiece
model (any other name), of a real model.

TEXT_FILE: .json, .jsonl or plain text, also .gz, .bz2 or .xz. PYTHON names the interpreter
(default python3), SEED the strings (default: drawn and printed), COUNT their number.

Examples:
  PYTHON=venv/bin/python tests/reference/check_tokenizers.sh .deps/data/wiki_summaries.json
  tests/reference/check_tokenizers.sh --tokenizer llama3/tokenizer.json texts.jsonl.gz
END
}

texts=()
tokenizers=()
while (($#)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --tokenizer)
      tokenizers+=("$(realpath "${2:?--tokenizer needs a file}")")
      shift
      ;;
    *) texts+=("$(realpath "$1")") ;;
  esac
  shift
done
if ((${#texts[@]} == 0)); then
  usage >&2
  exit 2
fi
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seed=${SEED:-$RANDOM}
echo "seed $seed"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1 RAG_SOURCE_DIR=$PWD RAG_DEPS_DIR=$PWD/.deps
options=(--count "${COUNT:-10000}" --seed "$seed" --text "${texts[@]}")
test=build/release/tests/common_tokenizer_test
if ((${#tokenizers[@]} == 0)); then
  "$python" tests/reference/make_tokenizer_golden.py \
    .deps/models/SmolLM2-135M-Instruct.Q4_1.gguf .deps/models/all-minilm-l6-v2 \
    "$work/strings.jsonl" "${options[@]}"
  RAG_TOKENIZER_GOLDEN=$work/strings.jsonl $test --gtest_filter='TokenizerGolden.*'
  exit
fi
folders=()
for i in "${!tokenizers[@]}"; do
  folders+=("$work/$i-$(basename "${tokenizers[i]}")")
  "$python" tests/reference/make_folder_tokenizer_golden.py encode "${tokenizers[i]}" \
    "${folders[-1]}" "${options[@]}"
done
RAG_TOKENIZER_FOLDERS=$(IFS=:; echo "${folders[*]}") $test --gtest_filter='FolderTokenizers.Give*'
