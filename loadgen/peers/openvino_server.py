#!/usr/bin/env python3
"""OpenVINO GenAI behind as much of OpenAI's completions API as `ragcache-loadgen peers` speaks.

Prompts are token ids, answers streams of token ids; continuous batching and prefix caching are the
library's. It warms up before it says it is ready. Needs the PyPI package openvino-genai.

Example:
  loadgen/peers/openvino_server.py --model model.gguf --port 8000 --threads 2 --kv-gib 4
"""

import argparse
import http.server
import json
import queue
import threading

import numpy
import openvino
import openvino_genai

WARM_UP_TOKENS = (1500, 700, 40)


class Engine:
    """The pipeline, which one thread drives."""

    def __init__(self, options):
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = True
        scheduler.dynamic_split_fuse = True
        scheduler.max_num_batched_tokens = options.max_batch_tokens
        scheduler.cache_size = options.kv_gib
        properties = {"INFERENCE_NUM_THREADS": options.threads}
        if options.kv_precision:
            properties["KV_CACHE_PRECISION"] = options.kv_precision
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            options.model, scheduler_config=scheduler, device="CPU", properties=properties,
            tokenizer_properties={})
        self.arriving = queue.Queue()
        self.running = []
        threading.Thread(target=self.drive, daemon=True).start()

    def generate(self, ids, max_tokens):
        """Yields the answer's token ids in lists as they come."""
        answer = queue.Queue()
        self.arriving.put((ids, max_tokens, answer))
        while (tokens := answer.get()) is not None:
            if isinstance(tokens, Exception):
                raise tokens
            yield tokens

    def drive(self):
        number = 0
        while True:
            while not self.arriving.empty() or not self.running:
                ids, max_tokens, answer = self.arriving.get()
                config = openvino_genai.GenerationConfig(max_new_tokens=max_tokens, ignore_eos=True)
                tensor = openvino.Tensor(numpy.array([ids], dtype=numpy.int64))
                try:
                    handle = self.pipeline.add_request(number, tensor, config)
                except Exception as error:  # the library's, to be told to the one who asked
                    answer.put(error)
                    continue
                number += 1
                self.running.append((handle, answer))
            self.pipeline.step()
            for handle, answer in self.running:
                while handle.can_read():
                    for output in handle.read().values():
                        answer.put(list(output.generated_ids))
            still_running = []
            for handle, answer in self.running:
                if handle.get_status() == openvino_genai.GenerationStatus.RUNNING:
                    still_running.append((handle, answer))
                else:
                    answer.put(None)
            self.running = still_running


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine = None  # set before the server starts

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
        count = 0
        for tokens in self.engine.generate(ids, max_tokens):
            count += len(tokens)
            self.event({"choices": [{"index": 0, "text": " ".join(map(str, tokens)),
                                     "finish_reason": None}]})
        self.event({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
        self.event({"choices": [], "usage": {"prompt_tokens": len(ids),
                                             "completion_tokens": count}})
        self.chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, value):
        self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def respond(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="GGUF file, or a folder in OpenVINO's format")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as there are cores")
    parser.add_argument("--kv-gib", type=int, default=1, help="memory for keys and values")
    parser.add_argument("--kv-precision", default="", help="of them, e.g. f16; empty: the library's")
    parser.add_argument("--max-batch-tokens", type=int, default=512, help="of one iteration")
    options = parser.parse_args()
    engine = Engine(options)
    for tokens in WARM_UP_TOKENS:  # compiles what these shapes need
        list(engine.generate(list(range(1000, 1000 + tokens)), 2))
    Handler.engine = engine
    http.server.ThreadingHTTPServer(("127.0.0.1", options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
