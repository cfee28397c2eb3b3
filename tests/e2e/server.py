"""A real `ragcache serve` process with the real models, for tests to use and misuse."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

BIN = pathlib.Path(os.environ["RAG_BIN_DIR"]) / "ragcache"
DEPS = pathlib.Path(os.environ["RAG_DEPS_DIR"])
MODEL = DEPS / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
EMBEDDING_MODEL = DEPS / "models" / "all-minilm-l6-v2"
DEADLINE_S = 120


def wait_until(condition, what, deadline_s=DEADLINE_S):
    """Polls until `condition()` is true and returns its value."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)  # between two looks; nothing depends on its length
    raise AssertionError(f"not within {deadline_s} s: {what}")


class Client:
    """Requests to the gateway at `address`."""

    address = None

    def connect(self, timeout=DEADLINE_S):
        return http.client.HTTPConnection(self.address, timeout=timeout)

    def request(self, method, path, body=None, headers=None):
        """(status, body): the body parsed if it is JSON."""
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body,
                               {"Content-Type": "application/json"} | (headers or {}))
            response = connection.getresponse()
            raw = response.read()
        with contextlib.suppress(ValueError):
            return response.status, json.loads(raw)
        return response.status, raw

    def chat(self, question, **fields):
        """A whole greedy answer; asserts that there is one."""
        status, body = self.request("POST", "/v1/chat/completions", chat_body(question, **fields))
        assert status == 200, body
        return body

    def cache(self):
        status, body = self.request("GET", "/admin/cache")
        assert status == 200, body
        return body

    def metric(self, name, *labels):
        """The sum of the metric's series that have these labels, each `key="value"`."""
        status, body = self.request("GET", "/metrics")
        assert status == 200, body
        return sum(float(line.rsplit(" ", 1)[1]) for line in body.decode().splitlines()
                   if line.startswith((name + " ", name + "{"))
                   and all(label in line for label in labels))

    def clear_cache(self):
        status, body = self.request("POST", "/admin/cache/clear")
        assert status == 200, body

    def ingest(self, documents):
        lines = "".join(json.dumps(document) + "\n" for document in documents)
        status, body = self.request("POST", "/v1/documents", lines,
                                    {"Content-Type": "application/x-ndjson"})
        assert status == 200, body
        return body


class Server(Client):
    """Starts at once; `stop()` or `kill()` ends it. The state folder outlives a kill."""

    def __init__(self, state_dir=None, **options):
        self.owns_state = state_dir is None
        self.state_dir = pathlib.Path(state_dir or tempfile.mkdtemp(prefix="ragcache-"))
        self.options = {"state-dir": self.state_dir, "listen": "127.0.0.1:0", "model": MODEL,
                        "embedding-model": EMBEDDING_MODEL, "kv-memory-mib": 256,
                        "host-memory-mib": 64, "host-arena": self.state_dir / "kv.arena",
                        "profile-after-s": 86400} | {
                            key.replace("_", "-"): value for key, value in options.items()}
        self.start()

    def start(self):
        address = self.state_dir / "gateway.address"
        address.unlink(missing_ok=True)
        self.log = open(self.state_dir / "serve.log", "ab")
        arguments = [str(BIN), "serve"]
        for key, value in self.options.items():
            arguments += [f"--{key}"] if value is True else [f"--{key}", str(value)]
        self.process = subprocess.Popen(arguments, stdout=self.log, stderr=self.log)

        def has_address():
            if self.process.poll() is not None:
                raise AssertionError("the server ended at its start:\n" + self.log_tail())
            return address.exists() and address.read_text()

        self.address = wait_until(has_address, "gateway.address")
        self.url = f"http://{self.address}"
        wait_until(lambda: self.request("GET", "/readyz")[0] == 200, "readiness")

    def resident_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def log_tail(self):
        text = (self.state_dir / "serve.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-20:])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(DEADLINE_S)
        self.log.close()
        if self.owns_state:
            shutil.rmtree(self.state_dir)
        return code

    def kill(self):
        self.process.kill()
        self.process.wait(DEADLINE_S)
        self.log.close()


def chat_body(question, **fields):
    return {"model": "ragcache", "temperature": 0, "max_tokens": 24,
            "messages": [{"role": "user", "content": question}]} | fields


def text_of(answer):
    return answer["choices"][0]["message"]["content"]


def cached_of(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def run_cli(*arguments, input_text=None):
    """(exit code, stdout, stderr) of one ragcache command."""
    done = subprocess.run([str(BIN), *map(str, arguments)], capture_output=True, text=True,
                          input=input_text, timeout=DEADLINE_S)
    return done.returncode, done.stdout, done.stderr


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def facts(count=40, sentences=14):
    """Made-up documents, each about a subject of its own, around 300 tokens long."""
    animals = ["heron", "badger", "lynx", "otter", "marten", "plover", "stoat", "viper"]
    places = ["harbour", "quarry", "orchard", "mill", "viaduct"]
    documents = []
    for number in range(count):
        animal, place = animals[number % len(animals)], places[number // len(animals) % len(places)]
        text = " ".join(
            f"In year {1700 + number * 7 + line} the {animal} of the {place} was counted "
            f"{number * 31 + line * 3 + 1} times, and keeper number {line + 1} wrote it down."
            for line in range(sentences))
        documents.append({"id": f"fact-{number}", "title": f"The {animal} of the {place}",
                          "text": text})
    return documents
