"""Documents from files of all kinds, good and hostile, to the server; and sudden ends on the way."""

import contextlib
import gzip
import http.client
import json
import pathlib
import tempfile
import unittest

from server import Server, run_cli


def long_document(number, sentences=120):
    """About 3,000 tokens: several pieces."""
    return {"id": f"long-{number}", "title": f"Ledger {number}", "text": " ".join(
        f"Entry {line} of ledger {number}: the miller of parish {number * 7 + line} paid "
        f"{line * 13 + number} shillings for grain and rope." for line in range(sentences))}


class Ingest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        self.server.request("DELETE", "/v1/corpora/default")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ingest(self, *arguments, input_text=None):
        """(exit code, the printed result, what was said on the way)."""
        code, text, error = run_cli("ingest", "--server", self.server.url, "--json", *arguments,
                                    input_text=input_text)
        return code, json.loads(text) if text else None, error

    def ids(self, corpus="default"):
        status, page = self.server.request("GET", f"/v1/documents?limit=1000&corpus={corpus}")
        self.assertEqual(status, 200, page)
        return [document["id"] for document in page["data"]]

    def test_files_of_every_kind_in_folders_and_again_for_nothing(self):
        (self.folder / "deep").mkdir()
        (self.folder / "a.txt").write_text("The heron waits in shallow water.")
        (self.folder / "deep" / "b.md").write_text("# Lynx\n\nIt [hunts](x) at night.")
        (self.folder / "deep" / "c.html").write_text(
            "<title>Otters</title><script>no</script><p>They swim.")
        with gzip.open(self.folder / "d.jsonl.gz", "wt") as lines:
            lines.write(json.dumps({"id": "d1", "text": "Stoats turn white."}) + "\n")
            lines.write(json.dumps(long_document(1)) + "\n")
        (self.folder / "e.bin").write_bytes(b"\0\1")
        code, result, error = self.ingest("--recursive", self.folder)
        self.assertEqual(code, 0, error)
        self.assertEqual((result["accepted"], result["refused"], result["done"]), (5, 0, True))
        self.assertGreater(result["pieces"], 6)
        self.assertEqual(self.ids(), ["a.txt", "d1", "deep/b.md", "deep/c.html", "long-1"])
        _, found = self.server.request("POST", "/v1/search",
                                       {"query": "What does a lynx do?", "top_k": 1})
        self.assertEqual(found["documents"][0]["id"], "deep/b.md")
        self.assertEqual(found["documents"][0]["title"], "Lynx")
        self.assertEqual(found["documents"][0]["text"], "Lynx\n\nIt hunts at night.")
        again = self.ingest("--recursive", self.folder)[1]
        self.assertEqual((again["accepted"], again["tokens"]), (5, 0))
        self.assertEqual(again["pieces"], result["pieces"])

    def test_another_corpus_and_one_that_is_not_there(self):
        self.server.request("PUT", "/v1/corpora/birds", {})
        self.addCleanup(self.server.request, "DELETE", "/v1/corpora/birds")
        line = json.dumps({"id": "x", "text": "A heron."}) + "\n"
        self.assertEqual(self.ingest("--corpus", "birds", "-", input_text=line)[0], 0)
        self.assertEqual((self.ids("birds"), self.ids()), (["x"], []))
        code, _, error = self.ingest("--corpus", "fish", "--keep-going", "-", input_text=line)
        self.assertEqual(code, 2)
        self.assertIn("fish", error)

    def test_what_is_refused_is_named_and_the_rest_goes_in(self):
        good = json.dumps({"id": "good-%d", "text": "A heron."}) + "\n"
        lines = [good % 1, '{"id": "no text"}\n', "\n", good % 2, "{broken\n",
                 json.dumps({"id": "word", "text": "x" * 10_000_000}) + "\n",
                 json.dumps({"id": "page#4", "text": "x"}) + "\n",
                 json.dumps({"id": "nested", "text": "x", "metadata": {"a": {"b": 1}}}) + "\n",
                 json.dumps({"id": "empty", "text": ""}) + "\n",
                 json.dumps({"id": "good-3", "text": "first"}) + "\n", good % 3]
        path = self.folder / "a.jsonl"
        path.write_bytes("".join(lines).encode() + b'{"id": "u", "text": "\xff"}\n')
        (self.folder / "b.txt").write_bytes(b"a\0b")
        (self.folder / "c.html").write_text("<div>" * 1_000_000 + "<p>deep")
        (self.folder / "d.txt.gz").write_bytes(gzip.compress(b"cut off")[:-9])
        (self.folder / "e.txt.gz").write_bytes(gzip.compress(b"\n" * (100 << 20)))
        (self.folder / "f.md").write_text("")
        code, result, error = self.ingest("--keep-going", self.folder)
        self.assertEqual(code, 1, error)
        self.assertEqual(self.ids(), ["c.html", "good-1", "good-2", "good-3"])
        for where in ("a.jsonl:2: ", "a.jsonl:5: ", "a.jsonl:6: ", "a.jsonl:7: ", "a.jsonl:8: ",
                      "a.jsonl:9: ", "a.jsonl:12: ", "b.txt: ", "d.txt.gz: ", "e.txt.gz: ",
                      "f.md: "):
            self.assertIn(where, error)
        self.assertEqual(result["refused"], 11)
        self.assertIn("11 documents were refused", error)
        _, document = self.server.request("GET", "/v1/documents/good-3")
        self.assertEqual(document["text"], "A heron.")

    def test_without_keep_going_what_comes_before_the_refusal_is_kept(self):
        path = self.folder / "a.jsonl"
        path.write_text(json.dumps({"id": "1", "text": "A heron."}) + '\n{"id": "2"}\n' +
                        json.dumps({"id": "3", "text": "A stoat."}) + "\n")
        code, result, error = self.ingest(path)
        self.assertEqual(code, 2)
        self.assertIn("a.jsonl:2: ", error)
        self.assertEqual(self.ids(), ["1"])
        self.assertFalse(result["done"])


class SuddenEnds(unittest.TestCase):

    def test_pieces_acknowledged_before_kill_9_are_whole_after_it(self):
        documents = [long_document(number) for number in range(40)]
        with tempfile.TemporaryDirectory() as state:
            server = Server(state_dir=state)
            with contextlib.closing(server.connect()) as connection:
                connection.request("POST", "/v1/documents",
                                   "".join(json.dumps(d) + "\n" for d in documents),
                                   {"Content-Type": "application/x-ndjson",
                                    "Accept": "application/x-ndjson"})
                response = connection.getresponse()
                last = json.loads(response.readline())
                server.kill()
                with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                    for line in response:
                        last = json.loads(line)
            self.assertGreater(last["accepted"], 0)
            self.assertGreater(last["pieces"], last["accepted"])
            server.start()
            self.addCleanup(server.stop)
            _, page = server.request("GET", "/v1/documents?limit=1000")
            stored = {document["id"] for document in page["data"]}
            self.assertGreaterEqual(len(stored), last["accepted"])
            for document in documents[:last["accepted"]]:
                self.assertIn(document["id"], stored)
            wanted = documents[last["accepted"] - 1]
            _, found = server.request("POST", "/v1/search",
                                      {"query": wanted["title"], "top_k": 100})
            self.assertIn(wanted["id"], [d.get("source_id") for d in found["documents"]])
            answer = server.ingest(documents)
            self.assertEqual(answer["accepted"], 40)
            _, page = server.request("GET", "/v1/documents?limit=1")
            self.assertEqual(page["total"], 40)


if __name__ == "__main__":
    unittest.main(verbosity=2)
