"""Bad input, bad files, bad neighbours, sudden ends: clear errors, and nothing acknowledged lost."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import random
import socket
import sys
import tempfile
import time
import unittest

from server import (EMBEDDING_MODEL, MODEL, Server, chat_body, facts, free_port, run_cli,
                    wait_until)


class BadInput(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        cls.server.ingest(facts(count=6))

    def refused(self, body, *words, status=400, path="/v1/chat/completions", param=None):
        got, answer = self.server.request("POST", path, body)
        self.assertEqual(got, status, answer)
        self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})
        if param is not None:
            self.assertEqual(answer["error"]["param"], param)
        for word in words:
            self.assertIn(word, json.dumps(answer["error"]))

    def test_every_bad_field_is_named_with_its_bound(self):
        for field, value, bound in [("temperature", 2.5, "2"), ("temperature", -1, "0"),
                                    ("top_p", 0, "0"), ("top_p", 1.5, "1"),
                                    ("max_tokens", 0, "1"), ("max_tokens", "many", "number"),
                                    ("n", 17, "16"), ("stop", [""], "stop"),
                                    ("stream", "yes", "boolean"), ("seed", 1.5, "seed"),
                                    ("rag", {"top_k": 0}, "top_k"),
                                    ("rag", {"top_k": 1000000}, "top_k"),
                                    ("rag", {"no_such": 1}, "no_such"),
                                    ("rag", {"documents": [7]}, "documents"),
                                    ("messages", [], "messages"),
                                    ("messages", [{"role": "robot", "content": "x"}], "role"),
                                    ("messages", [{"role": "user"}], "content"),
                                    ("top_logprobs", 21, "20")]:
            with self.subTest(field=field, value=value):
                self.refused(chat_body("x") | {field: value}, field, bound)

    def test_a_prompt_beyond_the_context_is_refused_and_the_next_is_served(self):
        self.refused(chat_body("word " * 20000), "context", param="max_tokens")
        self.refused(chat_body("x", max_tokens=100000), "context", param="max_tokens")
        self.server.chat("x", max_tokens=1)

    def test_bodies_that_are_not_json_are_refused(self):
        for body in ("", "{", "[1", "nul", '"text"', "[]", "{} {}", b'{"a": "\xff"}',
                     "[" * 100000):
            self.refused(body)

    def test_bad_documents_are_refused_by_line(self):
        good = json.dumps({"id": "good", "title": "t", "text": "x"})
        for bad in ("{", json.dumps({"title": "t"}), json.dumps({"id": "", "text": "x"}),
                    json.dumps({"id": 7, "text": "x"}), json.dumps({"id": "i", "text": ""})):
            with self.subTest(bad=bad):
                self.refused(f"{good}\n{bad}\n", "line 2", path="/v1/documents")

    def test_unknown_paths_and_methods(self):
        self.assertEqual(self.server.request("GET", "/no/such")[0], 404)
        self.assertEqual(self.server.request("DELETE", "/v1/models")[0], 405)

    def test_random_bytes_never_get_an_answer_of_500(self):
        seed = int(os.environ.get("RAG_SEED", time.time_ns() % 2**32))
        print(f"seed {seed} (RAG_SEED)", file=sys.stderr)
        draw = random.Random(seed)
        base = json.dumps(chat_body("hello", rag={"top_k": 2})).encode()
        for _ in range(150):
            body = bytearray(base)
            for _ in range(draw.randrange(1, 6)):
                body[draw.randrange(len(body))] = draw.randrange(256)
            status, answer = self.server.request("POST", "/v1/chat/completions", bytes(body))
            self.assertIn(status, (200, 400, 404), (bytes(body), answer))


class Load(unittest.TestCase):
    """RAG_LOAD_S seconds (default 8) of RAG_LOAD_CLIENTS clients (default 16) that come and go."""

    def test_the_ledger_balances_after_clients_that_disconnect_at_random(self):
        seconds = float(os.environ.get("RAG_LOAD_S", 8))
        seed = int(os.environ.get("RAG_SEED", time.time_ns() % 2**32))
        clients = int(os.environ.get("RAG_LOAD_CLIENTS", 16))
        print(f"seed {seed} (RAG_SEED), {seconds} s (RAG_LOAD_S), {clients} clients",
              file=sys.stderr)
        server = Server(kv_memory_mib=96)  # far less than all documents need: it evicts
        patience = 60 + 10 * clients  # all of them may wait before that memory
        self.addCleanup(server.stop)
        server.ingest(facts())
        end = time.monotonic() + seconds
        statuses = []

        def client(number):
            draw = random.Random(seed + number)
            while time.monotonic() < end:
                body = chat_body(f"question {draw.randrange(1000)} of the heron", stream=True,
                                 max_tokens=draw.randrange(1, 40),
                                 rag={"documents": [f"fact-{draw.randrange(40)}"
                                                    for _ in range(draw.randrange(1, 4))]})
                with contextlib.closing(server.connect(patience)) as connection:
                    connection.request("POST", "/v1/chat/completions", json.dumps(body),
                                       {"Content-Type": "application/json"})
                    kind = draw.randrange(4)
                    if kind == 0:
                        continue  # gone before an answer
                    if kind == 1:
                        # Gone at some moment of the answer.
                        connection.sock.settimeout(draw.random() * 2)
                        with contextlib.suppress(TimeoutError, socket.timeout):
                            connection.getresponse().read()
                        continue
                    response = connection.getresponse()
                    response.read()
                    statuses.append(response.status)

        resident = []

        def watch():
            while time.monotonic() < end:
                resident.append(server.resident_mib())
                time.sleep(min(1, seconds / 8))  # between two looks; nothing depends on its length

        with concurrent.futures.ThreadPoolExecutor(clients + 1) as pool:
            watching = pool.submit(watch)
            for done in [pool.submit(client, number) for number in range(clients)]:
                done.result()
            watching.result()
        self.assertGreater(len(statuses), 3)
        self.assertEqual(set(statuses), {200})
        wait_until(lambda: server.cache()["running_requests"] == 0
                   and server.cache()["waiting_requests"] == 0, "all requests' ends", 30)
        cache = server.cache()
        blocks = cache["blocks"]
        self.assertEqual(blocks["free"] + blocks["reserved"] + blocks["cached"], blocks["total"])
        self.assertEqual(cache["blocks"]["reserved"], 0)
        self.assertEqual(cache["pinned_nodes"], 0)
        self.assertEqual(cache["ledger_mismatches"], 0)
        self.assertGreater(cache["evicted_nodes"], 0)
        # After the first quarter every buffer has met its size.
        early, late = max(resident[:len(resident) // 4 + 1]), max(resident[-len(resident) // 4:])
        print(f"{len(statuses)} whole answers, {cache['evicted_nodes']} evictions, resident "
              f"{early:.0f} MiB in the first quarter, {late:.0f} MiB in the last", file=sys.stderr)
        if seconds >= 60:
            self.assertLess(late, early * 1.1)


class SuddenEnds(unittest.TestCase):

    def test_documents_acknowledged_before_kill_9_are_found_after_it(self):
        with tempfile.TemporaryDirectory() as state:
            server = Server(state_dir=state)
            documents = facts(count=400, sentences=4)
            acknowledged = 0
            with contextlib.closing(server.connect()) as connection:
                body = "".join(json.dumps(d) + "\n" for d in documents)
                connection.request("POST", "/v1/documents", body,
                                   {"Content-Type": "application/x-ndjson",
                                    "Accept": "application/x-ndjson"})
                response = connection.getresponse()
                acknowledged = json.loads(response.readline())["accepted"]
                server.kill()
                with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                    for line in response:
                        acknowledged = json.loads(line)["accepted"]
            self.assertGreater(acknowledged, 0)
            server.start()
            self.addCleanup(server.stop)
            status, page = server.request("GET", "/v1/documents?limit=1")
            self.assertEqual(status, 200)
            self.assertGreaterEqual(page["total"], acknowledged)
            for number in (0, acknowledged - 1):
                status, document = server.request("GET", f"/v1/documents/fact-{number}")
                self.assertEqual(status, 200, document)
                status, found = server.request("POST", "/v1/search", {
                    "query": documents[number]["text"], "top_k": 100})
                self.assertIn(f"fact-{number}", [d["id"] for d in found["documents"]])
            # The rest of the file is ingested by running it again.
            server.ingest(documents)
            self.assertEqual(server.request("GET", "/v1/documents?limit=1")[1]["total"], 400)

    def test_a_terminated_server_ends_its_answers_and_exits_with_0(self):
        server = Server(stop_grace_ms=60000)
        server.ingest(facts(count=4))
        with contextlib.closing(server.connect()) as connection:
            connection.request("POST", "/v1/chat/completions",
                               json.dumps(chat_body("Count slowly.", stream=True, max_tokens=60)),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.readline()
            self.assertEqual(server.stop(), 0)
            self.assertTrue(response.read().endswith(b"data: [DONE]\n\n"))


class CommandLine(unittest.TestCase):

    def serve(self, *arguments):
        with tempfile.TemporaryDirectory() as state:
            return run_cli("serve", "--state-dir", state, "--host-memory-mib", "0",
                           "--listen", "127.0.0.1:0", "--model",
                           MODEL, "--embedding-model", EMBEDDING_MODEL, *arguments)

    def test_what_keeps_a_server_from_starting_is_said_and_exits_with_2(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            whole = MODEL.read_bytes()
            truncated = folder / "truncated.gguf"
            truncated.write_bytes(whole[:len(whole) // 2])
            hostile = folder / "hostile.gguf"
            hostile.write_bytes(whole[:16] + b"\xff" * 8 + whole[24:4096])
            plain_file = folder / "file"
            plain_file.write_text("x")
            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))
                taken.listen()
                port = taken.getsockname()[1]
                for arguments, word in [
                        (["--model", truncated], "truncated.gguf"),
                        (["--model", hostile], "hostile.gguf"),
                        (["--model", folder / "none.gguf"], "none.gguf"),
                        (["--embedding-model", folder / "none"], "none"),
                        (["--listen", f"127.0.0.1:{port}"], str(port)),
                        (["--state-dir", plain_file / "below"], "file/below"),
                        (["--kv-memory-mib", "0"], "kv_memory_mib"),
                        (["--cache-policy", "fifo"], "cache_policy"),
                        (["--no-such-option"], "no-such-option")]:
                    with self.subTest(arguments=arguments):
                        code, _, error = self.serve(*arguments)
                        self.assertEqual(code, 2, error)
                        self.assertIn(word, error)

    def test_a_second_server_on_one_state_folder_is_refused(self):
        server = Server()
        self.addCleanup(server.stop)
        code, _, error = run_cli("serve", "--state-dir", server.state_dir, "--host-memory-mib", "0", "--listen",
                                 "127.0.0.1:0", "--model", MODEL, "--embedding-model",
                                 EMBEDDING_MODEL)
        self.assertEqual(code, 2, error)
        self.assertIn(str(server.state_dir), error)

    def test_every_command_has_help_with_an_example(self):
        for command in ([], ["serve"], ["ingest"], ["ask"], ["status"], ["cache"],
                        *(["cache", c] for c in ("stats", "tree", "clear", "warm", "pin", "unpin"))):
            with self.subTest(command=command):
                code, text, _ = run_cli(*command, "--help")
                self.assertEqual(code, 0)
                self.assertIn("Examples:", text)
                self.assertIn(" ".join(["  ragcache", *command]), text)

    def test_print_config_tells_where_each_value_came_from(self):
        code, text, _ = self.serve("--print-config", "--kv-memory-mib", "77")
        self.assertEqual(code, 0)
        self.assertIn("kv_memory_mib: 77  # flag", text)
        self.assertIn("cache_policy: adaptive  # default", text)

    def test_without_a_server_the_message_says_what_to_do(self):
        for command in (["ask", "x"], ["status"], ["cache", "stats"]):
            code, _, error = run_cli(*command, "--server", f"http://127.0.0.1:{free_port()}")
            self.assertEqual(code, 1, error)
            self.assertIn("ragcache serve", error)

    def test_ingest_ask_status_and_cache_work_together(self):
        server = Server()
        self.addCleanup(server.stop)
        lines = "".join(json.dumps(d) + "\n" for d in facts(count=8))
        code, text, error = run_cli("ingest", "--server", server.url, "-", input_text=lines)
        self.assertEqual((code, text), (0, "8 documents are stored and searchable\n"), error)
        code, text, error = run_cli("ask", "--server", server.url, "--max-tokens", 12,
                                    "How often was the heron of the harbour counted?")
        self.assertEqual(code, 0, error)
        self.assertIn("[1] The heron of the harbour (fact-0, ", text)
        self.assertRegex(text, r"search [\d.]+ ms, first token [\d.]+ ms, total [\d.]+ ms, "
                               r"cached 0 of \d+ prompt tokens\n$")
        code, text, _ = run_cli("ask", "--server", server.url, "--max-tokens", 12, "--json",
                                "How often was the heron of the harbour counted?")
        answer = json.loads(text)
        self.assertGreater(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(run_cli("status", "--server", server.url)[0], 0)
        code, text, _ = run_cli("cache", "stats", "--server", server.url, "--json")
        self.assertGreater(json.loads(text)["blocks"]["cached"], 0)
        code, text, _ = run_cli("cache", "clear", "--server", server.url, "--json")
        self.assertGreater(json.loads(text)["cleared_nodes"], 0)
        code, text, _ = run_cli("cache", "stats", "--server", server.url, "--json")
        self.assertEqual(json.loads(text)["blocks"]["cached"], 0)
        code, _, error = run_cli("ingest", "--server", server.url, "-", input_text="{bad\n")
        self.assertEqual(code, 2)
        self.assertIn("-:1: ", error)


if __name__ == "__main__":
    unittest.main(verbosity=2)
