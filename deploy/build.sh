#!/usr/bin/env bash
# Configures and builds one preset; with target names, only those.
set -euo pipefail

usage() {
  cat <<'END'
Usage: deploy/build.sh [--preset PRESET] [TARGET...]

  --preset PRESET   release (default), debug, asan or tsan; binaries go to build/PRESET/bin/
  --help            this text

Examples:
  deploy/build.sh                        # everything, optimised
  deploy/build.sh ragcache               # the one program the demo needs
  deploy/build.sh --preset asan common_tokenizer_test
END
}

preset=release
targets=()
while (($#)); do
  case $1 in
    --preset)
      preset=${2:?"--preset needs a name: release, debug, asan or tsan"}
      shift 2
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*)
      printf 'build: unknown option %s\n\n' "$1" >&2
      usage >&2
      exit 2
      ;;
    *)
      targets+=("$1")
      shift
      ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset "$preset" -Wno-dev >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  echo "build: cmake could not configure preset $preset; deploy/setup.sh installs what it needs" >&2
  exit 1
fi
# As many compilers as cores: Torch units need about 1.5 GB each.
cmake --build --preset "$preset" --parallel "$(nproc)" ${targets[@]:+--target "${targets[@]}"}
