"""A worker that is killed goes on from its host arena, and never from a damaged one."""

import http.client
import os
import random
import sys
import threading
import time
import unittest

from cluster import Cluster
from server import cached_of, chat_body, facts, text_of

DOCUMENTS = 24
REQUESTS = 100


class Recovery(unittest.TestCase):

    def setUp(self):
        seed = int(os.environ.get("RAG_SEED", time.time_ns() % 2**32))
        print(f"seed {seed} (RAG_SEED)", file=sys.stderr)
        self.draw = random.Random(seed)
        # The device holds a third of the documents, the host all of them.
        self.cluster = Cluster(worker={
            "kv_memory_mib": 24, "host_memory_mib": 128})
        self.addCleanup(self.cluster.stop)
        self.worker = self.cluster.processes[0]
        self.arena = self.cluster.arena
        self.cluster.ingest(facts(DOCUMENTS, sentences=6))
        self.texts = {}

    def documents(self):
        """Some are asked for more often than others, as in life."""
        return [f"fact-{min(int(self.draw.paretovariate(0.7)) - 1, DOCUMENTS - 1)}"
                for _ in range(self.draw.randrange(1, 3))]

    def ask(self, documents):
        """(answer's text, prompt tokens, cached tokens); the text must never change."""
        status, body = self.cluster.request("POST", "/v1/chat/completions", chat_body(
            "How often was it counted?", max_tokens=3, rag={"documents": documents}))
        if status != 200:
            return None
        key = tuple(documents)
        self.assertEqual(self.texts.setdefault(key, text_of(body)), text_of(body), documents)
        return body["usage"]["prompt_tokens"], cached_of(body)

    def hit_ratio(self, requests):
        prompt = cached = 0
        for _ in range(requests):
            asked, hit = self.ask(list(dict.fromkeys(self.documents())))
            prompt += asked
            cached += hit
        return cached / prompt

    def test_a_killed_worker_soon_serves_what_it_had(self):
        self.hit_ratio(REQUESTS)  # warms
        before = self.hit_ratio(REQUESTS)
        self.assertGreater(before, 0.5)

        statuses, ending = set(), threading.Event()

        def load():
            draw = random.Random(1)
            while not ending.is_set():
                body = chat_body("When?", max_tokens=8,
                                 rag={"documents": [f"fact-{draw.randrange(DOCUMENTS)}"]})
                try:
                    statuses.add(self.cluster.request("POST", "/v1/chat/completions", body)[0])
                except (OSError, http.client.HTTPException):
                    statuses.add("no answer")

        loads = [threading.Thread(target=load) for _ in range(3)]
        for thread in loads:
            thread.start()
        self.worker.kill()
        killed = time.monotonic()
        self.worker.start()
        self.worker.wait_alive()
        alive_s = time.monotonic() - killed
        while self.ask(["fact-0"]) is None:
            pass
        serving_s = time.monotonic() - killed
        ending.set()
        for thread in loads:
            thread.join()
        # Requests outlive the worker: they wait for the next one.
        self.assertEqual(statuses, {200})
        after = self.hit_ratio(REQUESTS)
        print(f"hit ratio {before:.3f} before, {after:.3f} after kill -9; alive in {alive_s:.2f} s, "
              f"an answer after {serving_s:.2f} s", file=sys.stderr)
        self.assertGreaterEqual(after, 0.8 * before)
        cache = self.cluster.cache()
        self.assertEqual(cache["ledger_mismatches"], 0)
        self.assertEqual(cache["lost_copies"], 0)
        self.assertGreater(cache["loaded_bytes"], 0)

    def test_a_killed_controller_finds_both_tiers_again(self):
        self.hit_ratio(REQUESTS // 2)
        before = self.cluster.cache()
        controller = next(p for p in self.cluster.processes if p.name == "controller")
        controller.kill()
        controller.start()
        self.cluster.wait_ready()
        after = self.cluster.cache()
        for figure in ("nodes", "device_tokens", "host_tokens", "cached_tokens"):
            self.assertEqual(after[figure], before[figure], figure)
        self.assertGreater(self.ask(["fact-0"])[1], 100)
        # What no request has claimed since goes first, and nothing goes wrong with it.
        self.hit_ratio(REQUESTS // 2)
        self.assertEqual(self.cluster.cache()["ledger_mismatches"], 0)

    def test_a_damaged_arena_is_found_out_and_computed_again(self):
        self.hit_ratio(REQUESTS // 2)
        self.worker.kill()
        # One bit in each stretch of 4 KiB of the part that holds keys and values.
        with open(self.arena, "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            for offset in range(size // 2, size, 4096):
                file.seek(offset)
                byte = file.read(1)[0]
                file.seek(offset)
                file.write(bytes([byte ^ 4]))
        self.worker.start()
        self.cluster.wait_ready()
        self.hit_ratio(REQUESTS // 2)  # each answer as before
        cache = self.cluster.cache()
        self.assertGreater(cache["lost_copies"], 0)
        self.assertEqual(cache["ledger_mismatches"], 0)

    def test_an_arena_that_is_none_is_made_anew(self):
        self.hit_ratio(10)
        self.worker.kill()
        with open(self.arena, "r+b") as file:
            file.write(b"not an arena")
        self.worker.start()
        self.cluster.wait_ready()
        self.hit_ratio(10)
        self.assertIn("arena", self.worker.log_path.read_text())
        self.assertEqual(self.cluster.cache()["ledger_mismatches"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
