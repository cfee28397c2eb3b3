"""Memory of every size, and many who want the same at once: it works or is refused clearly."""

import concurrent.futures
import json
import pathlib
import tempfile
import threading
import unittest

from server import Server, cached_of, chat_body, facts, text_of

# A document of facts(sentences=6) has about 160 tokens, ten blocks of 0.35 MiB (SmolLM2-135M, fp16).
DOCUMENTS = facts(12, sentences=6)
QUESTION = "How often was it counted in the first year?"


def ask(server, documents, question=QUESTION, headers=None, **fields):
    body = chat_body(question, **({"max_tokens": 6, "rag": {"documents": documents}} | fields))
    return server.request("POST", "/v1/chat/completions", json.dumps(body),
                          {"Content-Type": "application/json"} | (headers or {}))


class Memory(unittest.TestCase):

    def answers(self, **memory):
        """Texts of the same questions, asked twice over, from a service with that memory."""
        server = Server(**memory)
        self.addCleanup(server.stop)
        server.ingest(DOCUMENTS)
        texts = []
        for _ in range(2):
            for number in range(len(DOCUMENTS)):
                status, body = ask(server, [f"fact-{number}"])
                self.assertEqual(status, 200, body)
                texts.append(text_of(body))
        self.assertEqual(texts[:len(DOCUMENTS)], texts[len(DOCUMENTS):])
        self.cache = server.cache()
        self.assertEqual(self.cache["ledger_mismatches"], 0)
        self.assertEqual(self.cache["pinned_nodes"], 0)
        return texts

    def test_every_division_of_memory_gives_the_same_answers(self):
        plenty = self.answers(kv_memory_mib=256, host_memory_mib=0)
        self.assertEqual(self.cache["host_blocks"]["total"], 0)
        self.assertEqual(self.cache["evicted_nodes"], 0)

        with self.subTest("a device for one document, no host"):
            self.assertEqual(self.answers(kv_memory_mib=8, host_memory_mib=0), plenty)
            self.assertGreater(self.cache["evicted_nodes"], 0)

        with self.subTest("a device for one document, a host for all"):
            self.assertEqual(self.answers(kv_memory_mib=8, host_memory_mib=96), plenty)
            self.assertGreater(self.cache["hit_host_prefix_tokens"], 1000)

        with self.subTest("a host smaller than a document"):
            self.assertEqual(self.answers(kv_memory_mib=24, host_memory_mib=2), plenty)
            self.assertGreater(self.cache["evicted_nodes"], self.cache["demoted_nodes"])

    def test_so_does_every_tier_with_int8_activations(self):
        plenty = self.answers(activations="int8", kv_memory_mib=256, host_memory_mib=0)
        self.assertEqual(self.answers(activations="int8", kv_memory_mib=8, host_memory_mib=96),
                         plenty)
        self.assertGreater(self.cache["hit_host_prefix_tokens"], 1000)

    def test_so_does_every_tier_with_int8_keys_and_values(self):
        plenty = self.answers(kv_dtype="int8", kv_memory_mib=256, host_memory_mib=0)
        blocks = self.cache["blocks"]["total"]
        self.assertEqual(self.answers(kv_dtype="int8", kv_memory_mib=5, host_memory_mib=96), plenty)
        self.assertGreater(self.cache["hit_host_prefix_tokens"], 1000)
        self.answers(kv_memory_mib=256, host_memory_mib=0)
        self.assertAlmostEqual(blocks / self.cache["blocks"]["total"], 128 / 68, places=2)

    def test_a_document_longer_than_the_device_is_refused_and_says_why(self):
        server = Server(kv_memory_mib=8, host_memory_mib=32)
        self.addCleanup(server.stop)
        server.ingest(facts(2, sentences=14))
        status, body = ask(server, ["fact-0", "fact-1"])
        self.assertEqual(status, 400, body)
        self.assertIn("blocks of KV memory", body["error"]["message"])
        self.assertEqual(server.cache()["ledger_mismatches"], 0)


class Together(unittest.TestCase):

    def test_a_prefix_that_many_want_at_once_is_computed_once(self):
        server = Server(host_memory_mib=64, max_running=32)
        self.addCleanup(server.stop)
        server.ingest(DOCUMENTS)
        documents = ["fact-3", "fact-4", "fact-5"]
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            answers = list(pool.map(
                lambda i: ask(server, documents, f"Question number {i}?", max_tokens=1), range(32)))
        self.assertEqual({status for status, _ in answers}, {200})
        cached = sorted(cached_of(body) for _, body in answers)
        self.assertEqual(cached[0], 0)
        self.assertGreater(cached[1], 300)
        self.assertEqual(cached[1], cached[-1])

    def test_the_cache_can_be_cleared_while_requests_run(self):
        server = Server(kv_memory_mib=48, host_memory_mib=64)
        self.addCleanup(server.stop)
        server.ingest(DOCUMENTS)
        ending = threading.Event()
        cleared = []

        def clear():
            while not ending.is_set():
                server.clear_cache()
                cleared.append(1)

        clearing = threading.Thread(target=clear)
        clearing.start()
        try:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(
                    lambda i: ask(server, [f"fact-{i % 6}", f"fact-{(i + 1) % 6}"]), range(24)))
        finally:
            ending.set()
            clearing.join()
        self.assertEqual({status for status, _ in answers}, {200})
        self.assertGreater(len(cleared), 0)
        server.clear_cache()
        cache = server.cache()
        self.assertEqual((cache["nodes"], cache["blocks"]["cached"]), (0, 0))
        self.assertEqual(cache["ledger_mismatches"], 0)

    def test_a_hundred_tenants_share_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder) / "keys"
            keys.write_text("".join(f"tenant-{i}:key-of-tenant-{i:03}\n" for i in range(100)))
            server = Server(kv_memory_mib=48, host_memory_mib=384, api_keys_file=keys,
                            admin_key="admin")
            self.addCleanup(server.stop)
            admin = {"Authorization": "Bearer admin"}
            lines = json.dumps(facts(1, sentences=2)[0]) + "\n"
            status, body = server.request(
                "POST", "/v1/documents", lines,
                {"Content-Type": "application/x-ndjson",
                 "Authorization": "Bearer key-of-tenant-000"})
            self.assertEqual(status, 200, body)
            texts = set()
            for cached in (False, True):
                for i in range(100):
                    status, body = ask(server, ["fact-0"], max_tokens=1, headers={
                        "Authorization": f"Bearer key-of-tenant-{i:03}"})
                    self.assertEqual(status, 200, body)
                    self.assertEqual(cached_of(body) > 0, cached, f"tenant {i}")
                    texts.add(text_of(body))
            self.assertEqual(len(texts), 1)
            status, cache = server.request("GET", "/admin/cache", None, admin)
            self.assertEqual(status, 200, cache)
            self.assertEqual(cache["ledger_mismatches"], 0)
            self.assertGreaterEqual(cache["nodes"], 200)


if __name__ == "__main__":
    unittest.main(verbosity=2)
