#!/usr/bin/env bash
# Rules of the folder structure and of the style that a compiler cannot see. Each violation is
# printed as file:line: rule. Folders that do not exist yet are fine.
set -euo pipefail

usage() {
  cat <<'END'
Usage: tests/layering.sh [FOLDER]

Checks the tree (of this checkout, or of FOLDER) against the rules listed in CONTRIBUTING.md.
Exit status 1 when one is violated.

Example: tests/layering.sh
END
}

case ${1:-} in
  -h | --help)
    usage
    exit 0
    ;;
esac
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"

# Code that may read a clock, start a thread or sleep outside common/, each with its reason.
direct_time_and_threads=(
  services/worker/engine/engine_actor  # the iteration loop has a thread of its own
  services/worker/kv/transfer  # so have the copies between the tiers
  kernels/parallel/  # the threads that one model computes on: no actor, no timer
)

long_file_lines=500
max_file_lines=600

violations=0

# Files git tracks or would track; without git, all but hidden folders and build output.
list_files() {
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files --cached --others --exclude-standard
  else
    find . \( -path './.*' -o -path ./build \) -prune -o -type f -printf '%P\n'
  fi
}

files=()
while IFS= read -r file; do
  [[ -f $file ]] && files+=("$file")
done < <(list_files | LC_ALL=C sort)

# select_files REGEX [NOT_REGEX]: the files whose path matches the one and not the other.
select_files() {
  local file
  for file in "${files[@]}"; do
    [[ $file =~ $1 ]] || continue
    [[ -n ${2:-} && $file =~ $2 ]] && continue
    printf '%s\n' "$file"
  done
}

report() {
  printf '%s\n' "$1"
  violations=$((violations + 1))
}

# forbid RULE REGEX: reads file names, reports each line that matches outside of comments.
forbid() {
  local rule=$1 pattern=$2 hit
  local -a where
  mapfile -t where
  ((${#where[@]})) || return 0
  while IFS= read -r hit; do
    report "${hit%%:*}:$(cut -d: -f2 <<<"$hit"): $rule: $(cut -d: -f3- <<<"$hit" | sed 's/^ *//')"
  done < <(grep -nHE -- "$pattern" "${where[@]}" | grep -vE '^[^:]+:[0-9]+: *(//|#[^i])' || true)
}

code='\.(h|cc|cu|cuh)$'
test_or_bench='_(test|bench)\.cc$|^tests/'

# A service knows only common/, kernels/ and the protos; services/ragcache puts them together.
services=(gateway controller retrieval worker ragcache)
for service in "${services[@]}"; do
  [[ $service == ragcache ]] && continue
  others=$(printf '%s\n' "${services[@]}" | grep -vx "$service" | paste -sd '|')
  forbid "a service includes another" "^ *# *include *\"services/($others)/" \
    < <(select_files "^services/$service/.*$code")
done
forbid "common/ and kernels/ include no service" '^ *# *include *"services/' \
  < <(select_files "^(common|kernels)/.*$code")
forbid "nothing includes the load generator" '^ *# *include *"loadgen/' \
  < <(select_files "^(common|kernels|services)/.*$code")
forbid "common/ includes no kernel" '^ *# *include *"kernels/' < <(select_files "^common/.*$code")
forbid "the program includes something made for tests" '^ *# *include *"tests/' \
  < <(select_files "^(common|kernels|services|loadgen)/.*$code" "$test_or_bench")
forbid "an include starts at the root" '^ *# *include *"[^/"]*"' \
  < <(select_files "^(common|kernels|services|loadgen|tests)/.*$code")

# The controller's decisions are functions of their inputs: no I/O, clock or thread.
pure='^services/controller/(tree|policy|schedule)/'
forbid "a pure folder includes I/O, a clock or threads" \
  '^ *# *include *(<(c?stdio(\.h)?|iostream|fstream|ostream|istream|filesystem|thread|stop_token|mutex|shared_mutex|condition_variable|semaphore|latch|barrier|future|atomic|chrono|ctime|random|sys/|unistd|fcntl|poll|grpc|boost/|spdlog/|prometheus/|absl/(synchronization|time)/)|"(common/(actor|rpc|http|log|store|config|metrics|clock)))' \
  < <(select_files "$pure.*$code" "$test_or_bench")

# Heavy libraries stay where they are wrapped.
forbid "only kernels/, services/worker/ and services/retrieval/embed/ include Torch" \
  '^ *# *include *[<"](torch|ATen|c10|caffe2)/' \
  < <(select_files "$code" '^(kernels|services/worker|services/retrieval/embed)/')
forbid "only services/retrieval/index/ includes Faiss" '^ *# *include *[<"]faiss/' \
  < <(select_files "$code" '^services/retrieval/index/')
forbid "only common/store/ includes SQLite" '^ *# *include *[<"]sqlite3' \
  < <(select_files "$code" '^common/store/')
for file in $(select_files "$code" '^$'); do
  if grep -qE '^ *# *include *[<"](torch|ATen|c10)/' "$file"; then
    forbid "Torch and protobuf, gRPC or spdlog headers do not go into one unit" \
      '^ *# *include *([<"](google/protobuf|grpc|spdlog|fmt)|"ragcache/|"common/(rpc|log|metrics)/)' \
      <<<"$file"
  fi
done

# Time, threads and randomness come from common/, so that tests and simulations control them.
allowed='^common/'
for file in "${direct_time_and_threads[@]}"; do
  allowed+="|^$file"
done
forbid "clocks, threads and randomness come from common/" \
  'std::chrono::[a-z_]+_clock::now|std::j?thread\b|std::async\b|std::random_device|clock_gettime|gettimeofday' \
  < <(select_files "^(kernels|services|loadgen)/.*$code" "$allowed|$test_or_bench")
forbid "nothing sleeps outside common/" \
  'sleep_for|sleep_until|\b(u|nano)sleep *\(|(^|[^_a-z.>])sleep *\(' \
  < <(select_files "^(kernels|services|loadgen|tests)/.*$code" "$allowed")

# Readable pieces.
while IFS= read -r file; do
  lines=$(wc -l <"$file")
  if ((lines > max_file_lines)); then
    report "$file:$lines: a file has at most $max_file_lines lines: split it"
  elif ((lines > long_file_lines)); then
    echo "$file:$lines: note: over $long_file_lines lines, soon to be split"
  fi
done < <(select_files '\.(h|cc|cu|cuh|py|sh|cmake|proto)$|(^|/)CMakeLists\.txt$')

# The tree works anywhere: no paths of one machine, no package index of one place.
this=tests/layering.sh
forbid "a path of one machine" \
  '(^|[^A-Za-z0-9_./{}*-])/(work|home/[a-z]|root/|tmp/(rag|bash_jobs))(/|\b)' \
  < <(select_files '' "^$this$|^LICENSE$")
forbid "a package index is the machine's own matter" \
  'pypi[.]org|pythonhosted[.]org|deb[.]debian[.]org|(extra-)?index-url|artifact-?registry' \
  < <(select_files '' "^$this$|^LICENSE$")

if ((violations)); then
  echo "layering: $violations violations in ${#files[@]} files"
  exit 1
fi
echo "layering: ${#files[@]} files, no violation"
