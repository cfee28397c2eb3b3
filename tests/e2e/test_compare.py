"""`ragcache-loadgen compare` and `peers`, with servers that they start themselves."""

import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

from server import BIN, DEADLINE_S, EMBEDDING_MODEL, MODEL, facts, wait_until

LOADGEN = BIN.parent / "ragcache-loadgen"
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Of SmolLM2-135M in halves: keys and values of 30 layers with 3 heads of 64.
KV_BYTES_PER_TOKEN = 2 * 30 * 3 * 64 * 2
# Documents as long as answers are short: what is cached must show.
WORKLOAD = ["--workload", "zipf", "--zipf-documents", "6", "--zipf-min-tokens", "150",
            "--zipf-max-tokens", "250", "--max-tokens", "2", "--top-k", "2", "--warm-up", "8",
            "--requests", "10", "--rates", "0.5", "--rounds", "1", "--capacity-requests", "4"]


def loadgen(*arguments, code=0, environment=None):
    done = subprocess.run([str(part) for part in (LOADGEN, *arguments)], capture_output=True,
                          text=True, timeout=10 * DEADLINE_S,
                          env=os.environ | (environment or {}))
    assert done.returncode == code, f"{done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


def experiment(command, *arguments, code=0, environment=None):
    return loadgen(command, "--model", MODEL, "--embedding-model", EMBEDDING_MODEL, *WORKLOAD,
                   *arguments, code=code, environment=environment)


class Echo(http.server.BaseHTTPRequestHandler):
    """A peer that answers any prompt of token ids with one token."""

    protocol_version = "HTTP/1.1"
    prompts = []
    asked = set()  # for what, and with which key

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.prompts.append(body["prompt"])
        self.asked.add((body["model"], body["ignore_eos"], self.headers["Authorization"]))
        events = [{"choices": [{"index": 0, "text": "x", "finish_reason": "length"}]},
                  {"choices": [], "usage": {"prompt_tokens": len(body["prompt"]),
                                            "completion_tokens": 1}}]
        data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
        data += b"data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class Silent(http.server.BaseHTTPRequestHandler):
    """A peer that takes requests and never answers."""

    let_go = threading.Event()

    def do_POST(self):
        self.let_go.wait(10 * DEADLINE_S)

    def log_message(self, *_):
        pass


def write_profile(folder):
    profile = folder / "profile.json"
    profile.write_text(json.dumps({"cached_tokens": [0, 1000], "new_tokens": [1, 1000],
                                   "seconds": [0.01, 2, 0.02, 4]}))
    return profile


class Retrieval(unittest.TestCase):
    """What stands on documents that an encoder finds."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.documents = facts(count=6, sentences=4)
        self.asked = [self.documents[place % 6] for place in range(12)]
        for name, rows in (("passages", self.documents), ("questions", [
                {"question": f"Who counted {document['title']}?", "passage": document["id"],
                 "answers": ["keeper"]} for document in self.asked])):
            (self.path / f"{name}.jsonl").write_text(
                "".join(json.dumps(row) + "\n" for row in rows))

    def test_modes_are_compared_on_found_documents(self):
        report = json.loads(loadgen(
            "compare", "--model", MODEL, "--embedding-model", EMBEDDING_MODEL, "--workload",
            "squad", "--data", self.path, "--max-tokens", "1", "--modes", "none,ragcache",
            "--warm-up", "4", "--requests", "8", "--rates", "0.5", "--rounds", "2",
            "--capacity-requests", "2", "--device-share", "0.9", "--profile",
            write_profile(self.path), "--json", "-").stdout)
        self.assertTrue(report["complete"], report)
        self.assertEqual(report["facts"]["documents"], "6")
        runs = {run["mode"]: run for run in report["runs"]}
        self.assertEqual([run["requests"] for run in runs.values()], [16, 16])
        self.assertEqual(runs["none"]["document_hit_ratio"], 0)
        # Twelve questions on six documents, two of them each.
        self.assertGreater(runs["ragcache"]["document_hit_ratio"], 0.3)
        self.assertGreater(runs["ragcache"]["search_not_overlapped_ms"], 0)
        self.assertEqual(len(runs["ragcache"]["round_ratio_vs"]["none"]), 2)

    def test_what_was_found_is_recorded_and_replayed(self):
        loadgen("record", "--corpus", self.path / "passages.jsonl", "--questions",
                f"asked={self.path / 'questions.jsonl'}", "--embedding-model", EMBEDDING_MODEL,
                "--model", MODEL, "--top-k", "2", "--out", self.path)
        trace = self.path / "asked.jsonl"
        found = [json.loads(line)["documents"] for line in trace.read_text().splitlines()]
        self.assertEqual([len(documents) for documents in found], [2] * 12)
        self.assertEqual([documents[0]["id"] for documents in found],
                         [document["id"] for document in self.asked])
        replay = json.loads(loadgen("policy", "--trace", trace, "--sizes", "1", "--device-share",
                                    "1", "--policies", "lru", "--json", "-").stdout)
        # The second time that each is asked for, both of its documents are cached.
        self.assertGreaterEqual(replay["runs"][0]["token_hit_ratio"], 0.4)


class Compare(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name)
        cls.json = cls.path / "compare.json"
        cls.html = cls.path / "compare.html"
        cls.plots = cls.path / "plots"
        cls.profile = write_profile(cls.path)
        cls.started = cls.path / "started"
        program = cls.path / "ragcache"
        program.write_text(f'#!/bin/sh\necho "$*" >> "{cls.started}"\nexec "{BIN}" "$@"\n')
        program.chmod(0o755)
        cls.options = ["--work-dir", cls.path / "work", "--profile", cls.profile,
                       "--device-share", "0.7", "--ragcache", program]
        cls.done = experiment("compare", *cls.options, "--json", cls.json, "--report", cls.html,
                              "--plots", cls.plots)

    def test_the_modes_are_compared_under_the_same_load(self):
        report = json.loads(self.json.read_text())
        self.assertTrue(report["complete"], report)
        self.assertEqual(report["workload"], "zipf")
        runs = {run["mode"]: run for run in report["runs"]}
        self.assertEqual(sorted(runs), ["gpu-lru", "none", "ragcache"])
        for run in runs.values():
            self.assertEqual((run["requests"], run["errors"]), (10, {}))
            self.assertEqual(run["rate_share"], 0.5)
            self.assertAlmostEqual(run["rate"], 0.5 * report["capacity_rps"])
            self.assertGreater(run["predicted"]["ttft_ms"], 0)
        self.assertEqual((runs["none"]["token_hit_ratio"], runs["none"]["document_hit_ratio"]),
                         (0, 0))
        self.assertEqual(runs["none"]["ratio_vs"]["none"], 1)
        self.assertGreater(runs["ragcache"]["document_hit_ratio"], 0.1)
        self.assertGreaterEqual(runs["ragcache"]["token_hit_ratio"],
                                runs["gpu-lru"]["token_hit_ratio"])
        self.assertGreater(runs["ragcache"]["scheduling_us"]["p50"], 0)
        self.assertGreater(runs["ragcache"]["ratio_vs"]["none"], 0)
        self.assertIn("ragcache", report["throughput_at_slo"])

    def test_an_interrupted_experiment_keeps_what_has_run(self):
        report = self.path / "interrupted.json"
        process = subprocess.Popen(
            [str(part) for part in (
                LOADGEN, "compare", "--model", MODEL, "--embedding-model", EMBEDDING_MODEL,
                *WORKLOAD, "--rates", "0.6,0.7", *self.options, "--json", report)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            wait_until(lambda: report.exists() or process.poll() is not None, "the first run",
                       10 * DEADLINE_S)
            self.assertTrue(report.exists(), "it ended before")
            so_far = json.loads(report.read_text())
            self.assertFalse(so_far["complete"])
            self.assertEqual(so_far["runs"][0]["errors"], {})
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
            process.wait()
        self.assertEqual(process.returncode, 1, err)
        self.assertIn("ended by SIGINT", err)
        self.assertIn("ended by SIGINT", out)
        ended = json.loads(report.read_text())
        self.assertFalse(ended["complete"])
        self.assertIn("ended by SIGINT", ended["stopped_because"])
        self.assertTrue(0 < len(ended["runs"]) < 9, ended["runs"])
        self.assertTrue(ended["runs"][0]["complete"])

    def test_servers_have_the_prefill_times_that_predict_them(self):
        starts = self.started.read_text().splitlines()
        self.assertGreater(len(starts), 3)
        for start in starts:
            self.assertIn(f"--profile {self.profile}", start)

    def test_servers_queue_whatever_comes(self):
        for start in self.started.read_text().splitlines():
            self.assertIn("--max-requests 1000000 --max-waiting 1000000 --max-top-k 1000", start)

    def test_the_report_is_written_in_all_its_forms(self):
        self.assertIn("\nprocessor: ", self.done.stdout)
        self.assertIn("sched µs p50/p99", self.done.stdout)
        self.assertIn(" serve --model ", self.done.stdout)
        self.assertIn("<svg", self.html.read_text())
        self.assertTrue((self.plots / "ttft_zipf.svg").exists())
        self.assertEqual((self.plots / "ttft_zipf.png").read_bytes()[:4], b"\x89PNG")

    def test_a_recording_tells_how_many_documents_its_requests_have(self):
        trace = self.path / "trace.jsonl"
        trace.write_text("".join(
            json.dumps({"timestamp": number, "input_length": 512 * blocks + 9, "output_length": 1,
                        "hash_ids": list(range(blocks + 1))}) + "\n"
            for number, blocks in enumerate((1, 2, 2, 2))))
        report = json.loads(loadgen(
            "compare", "--model", MODEL, "--embedding-model", EMBEDDING_MODEL, "--workload",
            "mooncake", "--data", trace, "--warm-up", "1", "--requests", "3", "--rounds", "0",
            "--profile", write_profile(self.path), "--device-share", "0.9", "--json", "-").stdout)
        self.assertEqual(report["facts"]["documents of a request"], "1.75")

    def test_a_workload_without_documents_is_named(self):
        trace = self.path / "azure.csv"
        trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n"
                         "2023-11-16 18:15:46.68,20,2\n2023-11-16 18:15:47.68,20,2\n")
        done = loadgen("compare", "--model", MODEL, "--embedding-model", EMBEDDING_MODEL,
                       "--workload", "azure", "--data", trace, "--warm-up", "1", "--requests", "1",
                       code=2)
        self.assertIn("azure has no documents", done.stderr)

    def test_another_server_gets_the_same_prompts_as_token_ids(self):
        peer = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
        threading.Thread(target=peer.serve_forever, daemon=True).start()
        self.addCleanup(peer.server_close)
        self.addCleanup(peer.shutdown)
        report = json.loads(experiment(
            "peers", *self.options, "--activations", "int8", "--kv-dtype", "int8",
            "--engines", "ragcache", "--url", f"echo=http://127.0.0.1:{peer.server_port}",
            "--url-model", "echo=some/model", "--url-key-env", "echo=ECHO_KEY", "--json", "-",
            environment={"ECHO_KEY": "secret"}).stdout)
        runs = {run["engine"]: run for run in report["runs"]}
        self.assertEqual({run["requests"] for run in runs.values()}, {10})
        self.assertEqual([run["errors"] for run in runs.values()], [{}, {}])
        self.assertLess(runs["ragcache"]["ratio_vs"]["echo"], 1)
        self.assertGreater(runs["ragcache"]["token_hit_ratio"], 0.1)
        self.assertGreater(runs["ragcache"]["document_hit_ratio"], 0.1)
        for figure in (runs["echo"]["document_hit_ratio"], runs["echo"]["scheduling_us"]["p50"],
                       runs["echo"]["queue_ms"]["mean"], runs["echo"]["search_not_overlapped_ms"]):
            self.assertIsNone(figure)
        self.assertIsNone(runs["echo"]["token_hit_ratio"], "it does not say")
        self.assertEqual(Echo.asked, {("some/model", True, "Bearer secret")})
        self.assertIn("echo: as it was started", report["facts"]["memory for KV"])
        self.assertEqual([report["facts"][f"RAGCache's {what}"] for what in ("activations", "KV")],
                         ["int8", "int8"])
        # Warm-up and counted requests; a prompt is its segments, one after another.
        self.assertEqual(len(Echo.prompts), 18)
        self.assertTrue(all(300 < len(prompt) < 700 for prompt in Echo.prompts))
        first = {tuple(prompt[:20]) for prompt in Echo.prompts}
        self.assertEqual(len(first), 1, "the system prompt comes first")

    def test_openvino_gets_the_bytes_of_both_tiers(self):
        report = json.loads(experiment(
            "peers", *self.options, "--engines", "openvino,openvino-f16", "--openvino-path",
            ROOT / "tests/fakes/openvino", "--json", "-").stdout)
        self.assertEqual([run["errors"] for run in report["runs"]], [{}, {}])
        mib = sum(int(report["facts"][f"{tier} tier, MiB"]) for tier in ("device", "host"))
        # A head's 64 numbers as bytes have a scale and a zero point of four bytes besides.
        for engine, precision, bytes_per_token in (
                ("openvino", "u8", KV_BYTES_PER_TOKEN * 72 // 128),
                ("openvino-f16", "f16", KV_BYTES_PER_TOKEN)):
            log = (self.path / "work" / f"{engine}.log").read_text().splitlines()
            made = json.loads(next(line for line in log if line.startswith("{")))
            self.assertEqual(made["properties"]["KV_CACHE_PRECISION"], precision)
            self.assertEqual(made["scheduler"]["max_num_seqs"], 16)
            blocks = made["scheduler"]["num_kv_blocks"]
            self.assertLessEqual(blocks * 32 * bytes_per_token, mib << 20)
            self.assertGreater((blocks + 1) * 32 * bytes_per_token, mib << 20)
            self.assertIn(f"{engine}: {blocks} blocks of 32 tokens in {precision}",
                          report["facts"]["memory for KV"])

    def test_a_peer_that_does_not_answer_is_given_up(self):
        peer = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent)
        threading.Thread(target=peer.serve_forever, daemon=True).start()
        self.addCleanup(peer.server_close)
        self.addCleanup(peer.shutdown)
        self.addCleanup(Silent.let_go.set)
        done = experiment("peers", *self.options, "--engines", "silent", "--url",
                          f"silent=http://127.0.0.1:{peer.server_port}", "--timeout", "0.5",
                          code=1)
        self.assertIn("timeout: no whole answer within 0.5 s", done.stderr)

    def test_bad_options_are_named(self):
        for arguments, words in ((["--modes", "none,fast"], '--modes: has "fast"'),
                                 (["--rates", "0"], "--rates"),
                                 (["--rounds", "-1"], "--rounds")):
            with self.subTest(arguments=arguments):
                done = loadgen("compare", "--model", MODEL, "--embedding-model", EMBEDDING_MODEL,
                               *WORKLOAD, *arguments, code=2)
                self.assertIn(words, done.stderr)
        for arguments, words in (
                (["--url", "llama.cpp=http://127.0.0.1:1"], '--url: has "llama.cpp"'),
                (["--engines", "vllm"], '--engines: has "vllm"'),
                (["--url-model", "vllm=m"], '--url-model: has "vllm"'),
                (["--baseline", "openvino"], "--baseline: openvino is none")):
            with self.subTest(arguments=arguments):
                self.assertIn(words, experiment("peers", *arguments, code=2).stderr)
        done = experiment("peers", "--engines", "openvino", "--openvino-server", "/no/such.py",
                          code=2)
        self.assertIn("--openvino-server: there is no /no/such.py", done.stderr)
        done = experiment("compare", "--ragcache", "/no/such/program", code=1)
        self.assertIn("/no/such/program", done.stderr)
        # Tiers that cannot hold one prompt.
        done = experiment("compare", *self.options[:4], "--device-share", "0.05", "--modes",
                          "ragcache", code=1)
        self.assertIn("blocks of KV memory", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
