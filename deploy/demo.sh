#!/usr/bin/env bash
# From a clean clone to answers: set-up, build, a server on this machine, real documents, questions.
set -euo pipefail

usage() {
  cat <<'END'
Usage: deploy/demo.sh [--keep] [--json FILE] [--port PORT] [--max-tokens N]

Installs what is missing, builds `ragcache`, starts it on this machine, ingests about 1,700 real
documents and asks questions about them. Each question is asked with an empty cache, then another
question on the same documents, whose keys and values are then cached: its first token comes several
times sooner. The first run takes minutes; a second run reuses the build and the ingested documents.

  --keep           leave the server running at the end, and say how to use and stop it
  --json FILE      also write the figures as JSON
  --port PORT      listen on this port of 127.0.0.1 instead of a free one
  --max-tokens N   length of each answer (default 32)
  --help           this text

Examples:
  deploy/demo.sh
  deploy/demo.sh --keep --port 8080
  deploy/demo.sh --json demo.json
END
}

fail() {
  printf 'demo: %s\n' "$@" >&2
  exit 1
}

keep=0
port=0
client_options=()
while (($#)); do
  case $1 in
    --keep)
      keep=1
      shift
      ;;
    --json)
      # The path is the caller's, while everything below runs in the checkout's root.
      client_options+=(--json "$(realpath -m -- "${2:?"--json needs a file"}")")
      shift 2
      ;;
    --port)
      port=${2:?"--port needs a number"}
      if ! [[ $port =~ ^[0-9]{1,5}$ ]] || ((port > 65535)); then
        echo "demo: --port must be a number from 0 to 65535, not '$port'" >&2
        exit 2
      fi
      shift 2
      ;;
    --max-tokens)
      client_options+=(--max-tokens "${2:?"--max-tokens needs a number"}")
      shift 2
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      printf 'demo: unknown option %s\n\n' "$1" >&2
      usage >&2
      exit 2
      ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly ready_timeout_s=120 stop_timeout_s=15
binary=$PWD/build/release/bin/ragcache
state=$PWD/.cache/demo
log=$state/serve.log
pid_file=$state/serve.pid
server=

# True while the process in the pid file is a server of this checkout, not a stranger with its number.
is_our_server() {
  [[ $1 =~ ^[0-9]+$ && $(readlink "/proc/$1/exe" 2>/dev/null) == "$binary"* ]]
}

stop_server() {
  local pid=$1 waited
  is_our_server "$pid" || return 0
  kill -TERM "$pid" 2>/dev/null || true
  for ((waited = 0; waited < stop_timeout_s * 10; waited++)); do
    is_our_server "$pid" || return 0
    sleep 0.1
  done
  echo "demo: the server did not stop within $stop_timeout_s s and is killed" >&2
  kill -KILL "$pid" 2>/dev/null || true
}

cleanup() {
  if [[ -n $server ]]; then
    stop_server "$server"
    rm -f "$pid_file"
  fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

step() {
  printf '\n== %s (%s s so far)\n' "$1" "$SECONDS"
}

# Asks for one path of the server, without a client program that may not be installed.
http_status() {
  python3 - "$1" <<'END'
import sys
import urllib.error
import urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=5) as answer:
        print(answer.status)
except urllib.error.HTTPError as error:
    print(error.code)
except OSError:
    print("none")
END
}

start_server() {
  mkdir -p "$state"
  if [[ -f $pid_file ]] && is_our_server "$(<"$pid_file")"; then
    echo "demo: stopping the server that an earlier run left up"
    stop_server "$(<"$pid_file")"
  fi
  rm -f "$state/gateway.address"
  "$binary" serve --state-dir "$state" --listen "127.0.0.1:$port" \
    --model .deps/models/SmolLM2-135M-Instruct.Q4_1.gguf \
    --embedding-model .deps/models/all-minilm-l6-v2 >"$log" 2>&1 </dev/null &
  server=$!
  echo "$server" >"$pid_file"
  local deadline=$((SECONDS + ready_timeout_s))
  while ((SECONDS < deadline)); do
    if ! kill -0 "$server" 2>/dev/null; then
      tail -n 15 "$log" >&2
      fail "the server ended at its start: see above, or all of $log"
    fi
    if [[ -s $state/gateway.address ]]; then
      url=http://$(<"$state/gateway.address")
      if [[ $(http_status "$url/readyz") == 200 ]]; then
        return
      fi
    fi
    sleep 0.2
  done
  tail -n 15 "$log" >&2
  fail "the server was not ready after $ready_timeout_s s: see above, or all of $log"
}

step "set-up"
deploy/setup.sh
step "build"
deploy/build.sh ragcache
step "server"
start_server
echo "demo: $url, state in .cache/demo, log in .cache/demo/serve.log"
step "documents"
"$binary" ingest --server "$url" .deps/data/demo_documents.jsonl
step "questions"
python3 deploy/demo_client.py --url "$url" "${client_options[@]}"

if ((keep)); then
  cat <<END

The server stays up at $url (process $server). Try:
  build/release/bin/ragcache ask --server $url "How do aardvarks find termites?"
  build/release/bin/ragcache status --server $url
Stop it with:
  kill $server
END
  disown "$server"
  server=
fi
printf '\ndemo: done in %s s\n' "$SECONDS"
