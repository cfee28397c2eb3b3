"""Seven processes, each killed, stopped, frozen and restarted in turn under load."""

import http.client
import json
import os
import random
import signal
import sys
import threading
import time
import unittest

from cluster import Cluster
from server import chat_body, facts, wait_until

# What a client may get while a part of the system is away: an answer, or an error that says so.
CLEAR = {200, 429, 499, 502, 503, 504}


class Load:
    """Clients that ask, search and ingest until stopped, and remember what they were told."""

    def __init__(self, cluster, seed):
        self.cluster = cluster
        self.ending = threading.Event()
        self.lock = threading.Lock()
        self.acknowledged = {}
        self.statuses = {}
        self.unclear = []
        self.threads = [threading.Thread(target=self.run, args=(kind, random.Random(seed + i)))
                        for i, kind in enumerate((self.ask, self.ask, self.search, self.ingest))]
        for thread in self.threads:
            thread.start()

    def run(self, kind, draw):
        while not self.ending.is_set():
            try:
                status, body = kind(draw)
            except (OSError, http.client.HTTPException):
                status, body = "no connection", None  # the gateway's own turn
            with self.lock:
                self.statuses[status] = self.statuses.get(status, 0) + 1
                if status not in CLEAR and status != "no connection":
                    self.unclear.append((status, body))
                if isinstance(status, int) and status != 200 and not (
                        isinstance(body, dict) and body.get("error", {}).get("message")):
                    self.unclear.append((status, body))

    def ask(self, draw):
        return self.cluster.request("POST", "/v1/chat/completions", chat_body(
            "How often was it counted?", max_tokens=4,
            rag={"documents": [f"fact-{draw.randrange(20)}"]}))

    def search(self, draw):
        return self.cluster.request("POST", "/v1/search", {
            "query": f"the {draw.choice(['heron', 'badger', 'lynx'])} of the quarry", "top_k": 5})

    def ingest(self, draw):
        number = draw.randrange(10**9)
        document = {"id": f"new-{number}", "title": f"Note {number}",
                    "text": f"Note number {number} says that the gate {number % 97} was open."}
        status, body = self.cluster.request("POST", "/v1/documents", json.dumps(document) + "\n",
                                            {"Content-Type": "application/x-ndjson"})
        if status == 200:
            with self.lock:
                self.acknowledged[document["id"]] = document
        return status, body

    def count(self, status):
        with self.lock:
            return self.statuses.get(status, 0)

    def stop(self):
        self.ending.set()
        for thread in self.threads:
            thread.join()


class Processes(unittest.TestCase):

    def test_each_process_in_turn_is_killed_stopped_and_frozen_under_load(self):
        seed = int(os.environ.get("RAG_SEED", time.time_ns() % 2**32))
        print(f"seed {seed} (RAG_SEED)", file=sys.stderr)
        cluster = Cluster()
        self.addCleanup(cluster.stop)
        cluster.ingest(facts(count=20))
        load = Load(cluster, seed)
        self.addCleanup(load.stop)
        for process in cluster.processes:
            for fault in (self.kill, self.stop, self.freeze):
                with self.subTest(process=process.name, fault=fault.__name__):
                    fault(process)
                    cluster.wait_ready()
                    # Later requests succeed, of all kinds, beside the load.
                    cluster.chat("And then?", max_tokens=2, rag={"documents": ["fact-3"]})
                    self.found(cluster, facts(count=20)[7])
                    before = load.count(200)
                    wait_until(lambda: load.count(200) > before + 4, "the load to go on")
        load.stop()
        print(f"statuses {load.statuses}, {len(load.acknowledged)} documents acknowledged",
              file=sys.stderr)
        self.assertEqual(load.unclear, [])
        self.assertGreater(len(load.acknowledged), 10)
        for document in load.acknowledged.values():
            status, stored = cluster.request("GET", f"/v1/documents/{document['id']}")
            self.assertEqual((status, stored["text"]), (200, document["text"]))
            self.found(cluster, document)
        wait_until(lambda: cluster.cache()["running_requests"] == 0
                   and cluster.cache()["waiting_requests"] == 0, "all requests' ends")
        cache = cluster.cache()
        blocks = cache["blocks"]
        self.assertEqual(blocks["free"] + blocks["reserved"] + blocks["cached"], blocks["total"])
        self.assertEqual((blocks["reserved"], cache["pinned_nodes"], cache["ledger_mismatches"]),
                         (0, 0, 0))
        for process in reversed(cluster.processes):
            self.end(process)

    def found(self, cluster, document):
        status, body = cluster.request("POST", "/v1/search", {
            "query": document["title"] + "\n" + document["text"], "top_k": 10})
        self.assertEqual(status, 200, body)
        self.assertIn(document["id"], [d["id"] for d in body["documents"]])

    @staticmethod
    def kill(process):
        process.kill()
        process.start()

    def stop(self, process):
        self.end(process)
        process.start()

    def end(self, process):
        status = process.stop()
        self.assertEqual(status, 0, f"{process.name} ended:\n{process.last_words()}")

    @staticmethod
    def freeze(process):
        process.signal(signal.SIGSTOP)
        time.sleep(1)  # the fault itself: a peer that holds its connections and says nothing
        process.signal(signal.SIGCONT)

    def test_readiness_names_what_is_missing(self):
        cluster = Cluster()
        self.addCleanup(cluster.stop)
        by_name = {p.name: p for p in cluster.processes}
        for name, words in (("worker", ["worker"]), ("shard1", ["shard", "1"]),
                            ("router", ["retrieval"]), ("controller", ["controller"])):
            with self.subTest(name=name):
                process = by_name[name]
                process.kill()
                try:
                    # The first answer may be of the call that broke; then it is what is missing.
                    wait_until(lambda: all(word in cluster.ready_reasons() for word in words),
                               f"the reasons to name {words}", 30)
                    self.assertEqual(by_name["gateway"].get("/readyz"), 503)
                    self.assertEqual(by_name["gateway"].get("/livez"), 200)
                finally:
                    process.start()
                cluster.wait_ready()
        # The first shard has another replica: nobody notices.
        by_name["shard0"].kill()
        self.assertEqual(cluster.request("POST", "/v1/search", {"query": "x", "top_k": 1})[0], 200)
        self.assertEqual(by_name["gateway"].get("/readyz"), 200)
        by_name["shard0"].start()
        cluster.wait_ready()
        # A worker that hangs keeps its connections; it is missed all the same, and found again.
        by_name["worker"].signal(signal.SIGSTOP)
        wait_until(lambda: by_name["controller"].get("/readyz") == 503, "the worker to be missed", 40)
        by_name["worker"].signal(signal.SIGCONT)
        cluster.wait_ready()
        cluster.chat("Are you back?", max_tokens=2, rag={"enabled": False})


if __name__ == "__main__":
    unittest.main(verbosity=2)
