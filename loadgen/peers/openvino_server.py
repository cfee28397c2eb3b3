#!/usr/bin/env python3
"""OpenVINO GenAI behind as much of OpenAI's completions API as `ragcache-loadgen peers` speaks.

Prompts are token ids, answers streams of token ids; continuous batching and prefix caching are the
library's. It warms up before it says it is ready. Needs the PyPI package openvino-genai.

Example:
  loadgen/peers/openvino_server.py --model model.gguf --port 8000 --threads 2 --kv-blocks 4096
"""

import argparse
import collections
import http.server
import itertools
import json
import multiprocessing
import os
import queue
import threading
import traceback

import numpy
import openvino
import openvino_genai

WARM_UP_TOKENS = (1500, 700, 40)
WARM_UP_ANSWER = 2
BLOCK_TOKENS = 32  # the library's on a CPU


class Engine:
    """The pipeline, driven by this process's only thread.

    An iteration holds Python's lock, so HTTP has a process of its own. Between iterations requests
    (number, ids, max_tokens) are taken from `pipe`, and (number, tokens, error) put there; tokens
    None: it has ended, well if there is no error. The library holds to max_num_seqs only if it does
    not split prompts, so requests beyond that wait here.
    """

    def __init__(self, options, pipe):
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = True
        scheduler.dynamic_split_fuse = True
        scheduler.max_num_batched_tokens = options.max_batch_tokens
        scheduler.max_num_seqs = options.max_seqs
        if options.kv_blocks:
            scheduler.num_kv_blocks = options.kv_blocks
        else:
            scheduler.cache_size = options.kv_gib
        properties = {"INFERENCE_NUM_THREADS": options.threads}
        if options.kv_precision:
            properties["KV_CACHE_PRECISION"] = options.kv_precision
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            options.model, scheduler_config=scheduler, device="CPU", properties=properties,
            tokenizer_properties={})
        self.options = options
        self.pipe = pipe
        self.waiting = collections.deque()
        self.running = {}

    def add(self, number, ids, max_tokens):
        config = openvino_genai.GenerationConfig(max_new_tokens=max_tokens, ignore_eos=True)
        tensor = openvino.Tensor(numpy.array([ids], dtype=numpy.int64))
        self.running[number] = self.pipeline.add_request(number, tensor, config)

    def step(self):
        """One iteration; yields (number, tokens, error)."""
        self.pipeline.step()
        for number, handle in list(self.running.items()):
            while handle.can_read():
                for output in handle.read().values():
                    yield number, list(output.generated_ids), None
            status = handle.get_status()
            if status == openvino_genai.GenerationStatus.RUNNING:
                continue
            del self.running[number]
            # IGNORED is what it has no memory for.
            finished = status == openvino_genai.GenerationStatus.FINISHED
            yield number, None, None if finished else f"OpenVINO ended it: {status}"

    def warm_up(self):
        """Compiles what prompts of these lengths, or as long as there is room for, need."""
        for number, tokens in enumerate(WARM_UP_TOKENS):
            if self.options.kv_blocks:
                tokens = min(tokens, self.options.kv_blocks * BLOCK_TOKENS - WARM_UP_ANSWER)
            self.add(number, list(range(1000, 1000 + tokens)), WARM_UP_ANSWER)
            while self.running:
                list(self.step())

    def serve(self):
        while True:
            while self.pipe.poll() or not (self.running or self.waiting):
                self.waiting.append(self.pipe.recv())
            while self.waiting and len(self.running) < self.options.max_seqs:
                self.add(*self.waiting.popleft())
            for told in self.step():
                self.pipe.send(told)


class Refused(Exception):
    """A request that the engine did not answer to its end."""


class Front:
    """HTTP's side of the pipe."""

    def __init__(self, pipe):
        self.pipe = pipe
        self.lock = threading.Lock()
        self.numbers = itertools.count(len(WARM_UP_TOKENS))
        self.answers = {}
        threading.Thread(target=self.receive, daemon=True).start()

    def generate(self, ids, max_tokens):
        """Yields the answer's token ids in lists as they come. May raise Refused, at its end."""
        with self.lock:
            number = next(self.numbers)
            answer = self.answers[number] = queue.Queue()
            self.pipe.send((number, ids, max_tokens))
        while True:
            tokens, error = answer.get()
            if tokens is None:
                break
            yield tokens
        del self.answers[number]
        if error is not None:
            raise Refused(error)

    def receive(self):
        try:
            while True:
                number, tokens, error = self.pipe.recv()
                self.answers[number].put((tokens, error))
        except (EOFError, OSError):
            os._exit(1)  # the engine is gone


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024
    front = None  # set before it serves


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        self.respond(200, {"status": "ok"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ids, max_tokens = body.get("prompt"), body.get("max_tokens", 16)
        if self.path != "/v1/completions" or not isinstance(ids, list):
            self.respond(400, {"error": {"message": "only /v1/completions of token ids"}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self.stream(ids, max_tokens)
        except Refused as refused:
            self.event({"error": {"message": str(refused)}})
        self.wfile.write(b"0\r\n\r\n")

    def stream(self, ids, max_tokens):
        count = 0
        for tokens in self.server.front.generate(ids, max_tokens):
            count += len(tokens)
            self.event({"choices": [{"index": 0, "text": " ".join(map(str, tokens)),
                                     "finish_reason": None}]})
        self.event({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
        self.event({"choices": [], "usage": {"prompt_tokens": len(ids),
                                             "completion_tokens": count}})
        self.chunk(b"data: [DONE]\n\n")

    def event(self, value):
        self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def respond(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def serve_http(port, pipe):
    server = Server(("127.0.0.1", port), Handler)
    server.front = Front(pipe)
    server.serve_forever()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="GGUF file, or a folder in OpenVINO's format")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as there are cores")
    parser.add_argument("--kv-blocks", type=int, default=0,
                        help=f"memory for keys and values, in blocks of {BLOCK_TOKENS} tokens; "
                        "0: by --kv-gib")
    parser.add_argument("--kv-gib", type=int, default=1, help="memory for them without --kv-blocks")
    parser.add_argument("--kv-precision", default="", help="of them, e.g. f16; empty: the library's")
    parser.add_argument("--max-seqs", type=int, default=16,
                        help="requests computed at once; others wait")
    parser.add_argument("--max-batch-tokens", type=int, default=512, help="of one iteration")
    options = parser.parse_args()
    own, other = multiprocessing.Pipe()
    engine = Engine(options, own)
    engine.warm_up()
    front = multiprocessing.get_context("spawn").Process(
        target=serve_http, args=(options.port, other), daemon=True)
    front.start()
    other.close()
    try:
        engine.serve()
    except Exception:
        traceback.print_exc()
        front.terminate()
        os._exit(1)


if __name__ == "__main__":
    main()
