"""What operators do with the cache: look at it, warm, pin, unpin and clear."""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from server import Server, cached_of, facts, run_cli


class CacheTest(unittest.TestCase):
    host_memory_mib = 0

    @classmethod
    def setUpClass(cls):
        # The device has room for about four documents, of which the one used last goes last.
        cls.server = Server(kv_memory_mib=32, host_memory_mib=cls.host_memory_mib,
                            cache_policy="lru")
        cls.addClassCleanup(cls.server.stop)
        cls.server.ingest(facts(count=10, sentences=8))

    def setUp(self):
        self.cli("clear")

    def cli(self, *arguments, code=0, input_text=None):
        """What `ragcache cache …` prints on stdout, or on stderr where it fails."""
        got, text, error = run_cli("cache", *arguments, "--server", self.server.url,
                                   input_text=input_text)
        self.assertEqual(got, code, text + error)
        return text if code == 0 else error

    def documents(self):
        """The ids of the tree's nodes."""
        tree = json.loads(self.cli("tree", "--json"))
        self.assertEqual(tree["total_nodes"], len(tree["nodes"]))
        return sorted(node["document"] for node in tree["nodes"] if node["document"])

    def cached_share(self, *documents):
        answer = self.server.chat("What now?", rag={"documents": documents}, max_tokens=2)
        return cached_of(answer) / answer["usage"]["prompt_tokens"]

    def fill(self):
        evicted = self.server.cache()["evicted_nodes"]
        for number in range(4, 10):
            self.server.chat("What now?", rag={"documents": [f"fact-{number}"]}, max_tokens=2)
        self.assertGreater(self.server.cache()["evicted_nodes"], evicted)


class OneTier(CacheTest):

    def test_a_pinned_path_outlives_all_others_until_it_is_unpinned(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = pathlib.Path(folder) / "paths.jsonl"
            paths.write_text('["fact-2"]\n\n["fact-3"]\n')
            warmed = json.loads(self.cli("warm", "--file", paths, "--json"))
        self.assertEqual((warmed["done"], warmed["failed"]), (2, 0))
        self.assertEqual(self.documents(), ["fact-2", "fact-3"])
        self.assertGreater(self.cached_share("fact-2"), 0.8)

        path = ("--document", "fact-0", "--document", "fact-1")
        self.assertRegex(self.cli("pin", *path),
                         r'\["fact-0","fact-1"\]: \d+ tokens, \d+ of them were cached\n')
        self.assertEqual(self.server.cache()["kept_nodes"], 1)
        self.fill()
        held = self.documents()
        self.assertIn("fact-0", held)
        self.assertIn("fact-1", held)
        self.assertNotIn("fact-2", held)
        self.assertGreater(self.cached_share("fact-0", "fact-1"), 0.8)
        self.assertLess(self.cached_share("fact-2"), 0.5)

        self.assertIn("are pinned or in use", self.cli("clear"))
        self.assertEqual(self.documents(), ["fact-0", "fact-1"])
        self.assertGreater(self.cached_share("fact-0", "fact-1"), 0.8)

        self.cli("unpin", *path)
        self.assertEqual(self.documents(), ["fact-0", "fact-1"])  # cached, as anything is
        self.assertIn("no such path is pinned", self.cli("unpin", *path, code=1))
        self.fill()
        self.assertNotIn("fact-1", self.documents())
        self.cli("clear")
        cache = self.server.cache()
        self.assertEqual((cache["nodes"], cache["blocks"]["cached"]), (0, 0))
        self.assertEqual(cache["ledger_mismatches"], 0)

    def test_a_path_is_unpinned_whose_document_was_replaced(self):
        self.cli("pin", "--document", "fact-0", "--document", "fact-1")
        old = facts(count=10, sentences=8)[1]
        self.server.ingest([old | {"text": "Nothing was counted. " + old["text"]}])
        self.addCleanup(self.server.ingest, [old])
        self.cli("unpin", "--document", "fact-0", "--document", "fact-1")
        self.assertEqual(self.server.cache()["kept_nodes"], 0)

    def test_the_tree_is_shown_as_text_json_and_graphviz(self):
        self.cli("warm", "--file", "-", input_text='["fact-0","fact-1"]\n["fact-0","fact-2"]\n')
        nodes = json.loads(self.cli("tree", "--format", "json"))["nodes"]
        self.assertEqual(len(nodes), 4)
        by_document = {node["document"]: node for node in nodes}
        root = by_document[None]
        self.assertIsNone(root["parent"])
        self.assertEqual(by_document["fact-0"]["parent"], root["id"])
        self.assertEqual(by_document["fact-1"]["parent"], by_document["fact-0"]["id"])
        self.assertEqual(by_document["fact-2"]["device"], "ready")

        text = self.cli("tree")
        self.assertRegex(text, r"^4 of 4 nodes\nroot [0-9a-f]{8}  \d+ tokens  D\w?  0 users  ")
        self.assertRegex(text, r"\n  fact-0  \d+ tokens  .*\n    fact-[12]  ")
        self.assertEqual(self.cli("tree", "--max-nodes", 2).count("\n"), 3)

        dot = self.cli("tree", "--format", "dot")
        self.assertEqual(len(re.findall(r'^  "[0-9a-f]{32}" -> "[0-9a-f]{32}";$', dot, re.M)), 3)
        if shutil.which("dot"):
            subprocess.run(["dot", "-Tsvg"], input=dot, text=True, check=True, capture_output=True)

    def test_what_is_wrong_with_one_path_leaves_the_others(self):
        error = self.cli("warm", "--file", "-", code=1,
                         input_text='["nowhere"]\n["fact-0"]\n["fact-1","neither"]\n')
        self.assertIn("nowhere", error)
        self.assertIn("neither", error)
        self.assertIn("2 of 3 paths failed", error)
        self.assertEqual(self.documents(), ["fact-0"])
        self.assertIn("-:2: must be a JSON array",
                      self.cli("warm", "--file", "-", code=2, input_text='["a"]\n{"b": 1}\n'))
        self.assertIn("--document or --file", self.cli("warm", code=2))
        self.assertIn("paths[0][0]: must be 1 to 256 bytes",
                      self.cli("pin", "--document", "x" * 257, code=2))
        self.assertIn("max_nodes", self.cli("tree", "--max-nodes", 100001, code=2))
        self.assertIn("device", self.cli("stats"))


class TwoTiers(CacheTest):
    host_memory_mib = 96

    def test_what_is_not_pinned_goes_to_the_host_and_comes_back(self):
        self.cli("pin", "--document", "fact-0")
        self.cli("warm", "--document", "fact-1")
        self.fill()
        nodes = json.loads(self.cli("tree", "--json"))["nodes"]
        tiers = {node["document"]: (node["device"], node["host"]) for node in nodes}
        self.assertEqual(tiers["fact-0"][0], "ready")
        self.assertEqual(tiers["fact-1"], ("none", "ready"))
        self.assertRegex(self.cli("tree"), r"\n  fact-1  \d+ tokens  H  ")
        self.assertGreater(self.cached_share("fact-1"), 0.8)
        cache = self.server.cache()
        self.assertGreater(cache["hit_host_prefix_tokens"], 0)
        self.assertGreater(cache["demoted_nodes"], 0)
        self.assertGreater(cache["saved_bytes"], 0)
        self.assertGreater(cache["loaded_bytes"], 0)
        self.assertEqual(cache["host_blocks"]["cached"] + cache["host_blocks"]["free"],
                         cache["host_blocks"]["total"])
        self.assertRegex(self.cli("stats"), r"host +\d+ +\d+ +0 +\d+ +\d+\n")
        self.cli("unpin", "--document", "fact-0")


if __name__ == "__main__":
    unittest.main(verbosity=2)
