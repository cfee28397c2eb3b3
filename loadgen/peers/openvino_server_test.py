"""Tests of openvino_server.py on a stand-in for OpenVINO GenAI, which is not needed."""

import collections
import contextlib
import http.client
import json
import pathlib
import queue
import sys
import threading
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "fakes" / "openvino"))

import openvino_genai  # noqa: E402
import openvino_server  # noqa: E402

PATIENCE_S = 60


def options(**changes):
    return types.SimpleNamespace(**{
        "model": "model.gguf", "threads": 1, "kv_gib": 1, "kv_blocks": 0, "kv_precision": "",
        "max_batch_tokens": 512, "max_seqs": 16} | changes)


class Script:
    """A pipe that has these requests in it from the start, and ends behind the last."""

    def __init__(self, requests):
        self.requests = collections.deque(requests)
        self.told = []

    def poll(self):
        return bool(self.requests)

    def recv(self):
        if not self.requests:
            raise EOFError
        return self.requests.popleft()

    def send(self, told):
        self.told.append(told)


def serve(requests, **changes):
    """The engine that has served them, and what it told of them."""
    pipe = Script(requests)
    engine = openvino_server.Engine(options(**changes), pipe)
    with contextlib.suppress(EOFError):
        engine.serve()
    return engine, pipe.told


class Channel:
    """An end of a pipe between threads, which never ends."""

    def __init__(self, incoming, outgoing):
        self.incoming = incoming
        self.outgoing = outgoing

    def poll(self):
        return not self.incoming.empty()

    def recv(self):
        return self.incoming.get()

    def send(self, value):
        self.outgoing.put(value)


class Cache(unittest.TestCase):

    def test_it_has_as_many_blocks_as_asked_for(self):
        engine, _ = serve([], kv_blocks=40, kv_precision="f16", max_seqs=3)
        self.assertEqual(engine.pipeline.scheduler.num_kv_blocks, 40)
        self.assertEqual(engine.pipeline.scheduler.cache_size, 0)
        self.assertEqual(engine.pipeline.scheduler.max_num_seqs, 3)
        self.assertEqual(engine.pipeline.properties["KV_CACHE_PRECISION"], "f16")

    def test_it_is_counted_in_gib_otherwise(self):
        engine, _ = serve([], kv_gib=5)
        self.assertEqual(engine.pipeline.scheduler.num_kv_blocks, 0)
        self.assertEqual(engine.pipeline.scheduler.cache_size, 5)

    def test_the_warm_up_fits_into_it(self):
        for blocks in (1, 3, 40):
            with self.subTest(blocks=blocks):
                engine = openvino_server.Engine(options(kv_blocks=blocks), Script([]))
                engine.warm_up()
                self.assertEqual({each.status for each in engine.pipeline.handles},
                                 {openvino_genai.GenerationStatus.FINISHED})


class Requests(unittest.TestCase):

    def test_no_more_than_so_many_are_computed_at_once(self):
        engine, told = serve([(number, [1, 2], 3) for number in range(5)], max_seqs=2)
        self.assertEqual(engine.pipeline.most_at_once, 2)
        self.assertEqual([number for number, tokens, _ in told if tokens is None],
                         [0, 1, 2, 3, 4])
        self.assertEqual(sum(len(tokens) for _, tokens, _ in told if tokens is not None), 15)

    def test_one_that_does_not_fit_ends_with_an_error(self):
        _, told = serve([(0, [1] * 32, 1), (1, [1] * 31, 1)], kv_blocks=1)
        self.assertEqual(told, [(0, None, "OpenVINO ended it: GenerationStatus.IGNORED"),
                                (1, [openvino_genai.TOKEN], None), (1, None, None)])


class Http(unittest.TestCase):

    def setUp(self):
        asked, told = queue.Queue(), queue.Queue()
        engine = openvino_server.Engine(options(kv_blocks=1), Channel(asked, told))
        threading.Thread(target=engine.serve, daemon=True).start()
        self.server = openvino_server.Server(("127.0.0.1", 0), openvino_server.Handler)
        self.server.front = openvino_server.Front(Channel(told, asked))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

    def events_of(self, prompt):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port,
                                                timeout=PATIENCE_S)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions",
                           json.dumps({"prompt": prompt, "max_tokens": 2}))
        lines = connection.getresponse().read().decode().split("\n\n")
        return [line.removeprefix("data: ") for line in lines if line]

    def test_an_answer_streams_to_its_end(self):
        *events, usage, done = self.events_of([1, 2, 3])
        choices = [json.loads(event)["choices"][0] for event in events]
        self.assertEqual([choice["text"] for choice in choices], ["7", "7", ""])
        self.assertEqual([choice["finish_reason"] for choice in choices], [None, None, "length"])
        self.assertEqual(json.loads(usage)["usage"],
                         {"prompt_tokens": 3, "completion_tokens": 2})
        self.assertEqual(done, "[DONE]")

    def test_a_prompt_that_is_refused_is_no_answer(self):
        self.assertEqual([json.loads(event) for event in self.events_of([1] * 33)], [
            {"error": {"message": "OpenVINO ended it: GenerationStatus.IGNORED"}}])


if __name__ == "__main__":
    unittest.main(verbosity=2)
