"""The load generator against a real server: its reports, and what it says of servers that fail."""

import http.server
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import unittest

from server import BIN, DEADLINE_S, MODEL, Server, facts, wait_until

LOADGEN = BIN.with_name("ragcache-loadgen")
ZIPF = {"workload": "zipf", "zipf-documents": 8, "zipf-min-tokens": 40, "zipf-max-tokens": 80,
        "max-tokens": 4}


class BusyAtFirst(http.server.BaseHTTPRequestHandler):
    """A server that turns its first request away, and answers all others with one token."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        busy, self.server.busy = getattr(self.server, "busy", True), False
        event = {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}
        data = f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n".encode()
        self.send_response(503 if busy else 200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class Load:
    """A `ragcache-loadgen run` under way, whose report goes to a file."""

    def __init__(self, endpoint, **options):
        self.folder = tempfile.TemporaryDirectory()
        self.json = pathlib.Path(self.folder.name) / "run.json"
        arguments = [str(LOADGEN), "run", "--endpoint", endpoint, "--tokenizer", str(MODEL),
                     "--json", str(self.json)]
        for key, value in options.items():
            arguments += [f"--{key.replace('_', '-')}"]
            arguments += [] if value is True else [str(value)]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)

    def end(self):
        """(exit code, report or None, stdout, stderr)."""
        out, err = self.process.communicate(timeout=DEADLINE_S)
        report = json.loads(self.json.read_text()) if self.json.exists() else None
        self.folder.cleanup()
        return self.process.returncode, report, out, err


class Reports(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        # Of the test before: a request that is seen to run is to be this one's.
        wait_until(lambda: self.server.cache()["running_requests"] == 0, "the end of all requests")

    def answers_all(self, endpoint, **options):
        code, report, out, err = Load(endpoint, **options).end()
        self.assertEqual(code, 0, err)
        self.assertTrue(report["complete"])
        self.assertEqual(report["errors"], {})
        self.assertIn("first token, ms", out)
        for figures in (report["ttft_ms"], report["e2e_ms"]):
            self.assertTrue(0 < figures["p50"] <= figures["p90"] <= figures["p99"], figures)
        self.assertLessEqual(report["ttft_ms"]["p50"], report["e2e_ms"]["p50"])
        self.assertLess(report["client_delay_ms"]["p50"], 1000)
        self.assertGreater(report["throughput_rps"], 0)
        self.assertIn("cpu", report["environment"])
        return report

    def test_named_documents_that_come_again_are_cached(self):
        report = self.answers_all(self.server.url, **ZIPF, ingest=True, requests=12, warm_up=4,
                                  rate=8, seed=3)
        self.assertEqual(report["requests"], 12)
        self.assertEqual(report["seed"], 3)
        self.assertEqual(report["workload"], "zipf")
        self.assertGreater(report["tpot_ms"]["mean"], 0)
        self.assertTrue(0 < report["token_hit_ratio"] < 1, report)
        self.assertTrue(0 < report["document_hit_ratio"] <= 1, report)
        self.assertAlmostEqual(report["ceiling"], 1 / (1 - report["token_hit_ratio"]))
        self.assertGreater(report["skew"]["ceiling"], 1)
        self.assertIn("uniform", report["skew"])

    def test_found_documents_are_told_from_right_ones(self):
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder)
            passages = facts(count=6, sentences=3)
            (data / "passages.jsonl").write_text("".join(json.dumps(p) + "\n" for p in passages))
            (data / "questions.jsonl").write_text("".join(
                json.dumps({"question": f"How often was it counted? {p['title']}",
                            "passage": p["id"], "answers": ["often"]}) + "\n" for p in passages))
            report = self.answers_all(
                self.server.url, workload="squad", data=data, ingest=True, top_k=2, requests=6,
                rate=8, max_tokens=4, report=data / "run.html", plots=data / "plots")
            self.assertIn("<svg", (data / "run.html").read_text())
            self.assertEqual({p.suffix for p in (data / "plots").iterdir()}, {".svg", ".png"})
        self.assertGreater(report["retrieval_recall"], 0.5)
        self.assertTrue(0 <= report["answer_f1"] <= 1)
        self.assertGreater(report["search_ms"]["mean"], 0)

    def test_a_recording_is_sent_as_it_was_recorded(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as trace:
            for number in range(4):
                trace.write(json.dumps({"timestamp": 400 * number, "input_length": 40 + number,
                                        "output_length": 7, "hash_ids": []}) + "\n")
            trace.flush()
            report = self.answers_all(self.server.url, workload="mooncake", data=trace.name,
                                      requests=4, speedup=2)
        self.assertEqual(report["arrivals"], "recorded")
        self.assertAlmostEqual(report["rate"], 5)
        self.assertAlmostEqual(report["output_tokens_per_s"], 7 * report["throughput_rps"])

    def test_the_prompt_may_hold_the_documents_and_the_way_be_openais(self):
        report = self.answers_all(self.server.url + "/v1", **ZIPF, retrieval="before", requests=4,
                                  api="ragcache", rate=8)
        self.assertIsNone(report["document_hit_ratio"], "the server knows of no documents")

    def test_a_server_that_hangs_is_named(self):
        load = Load(self.server.url, **ZIPF, ingest=True, requests=400, rate=10, timeout=1.5,
                    max_failures=3)
        wait_until(lambda: self.server.cache()["running_requests"] > 0, "a request")
        os.kill(self.server.process.pid, signal.SIGSTOP)
        try:
            code, report, _, err = load.end()
        finally:
            os.kill(self.server.process.pid, signal.SIGCONT)
        self.assertEqual(code, 1, err)
        self.assertFalse(report["complete"])
        self.assertIn("no whole answer within 1.5 s", report["stopped_because"])
        self.assertIn("no whole answer within 1.5 s", err)
        self.assertGreaterEqual(report["errors"]["timeout"], 3)

    def test_an_interrupted_load_reports_what_it_has(self):
        load = Load(self.server.url, **ZIPF, ingest=True, requests=400, rate=4)
        wait_until(lambda: self.server.cache()["running_requests"] > 0, "a request")
        load.process.send_signal(signal.SIGINT)
        code, report, _, err = load.end()
        self.assertEqual(code, 1, err)
        self.assertEqual(report["stopped_because"], "ended by SIGINT")
        self.assertGreater(report["errors"]["not sent"], 300)


class Failures(unittest.TestCase):

    def test_a_server_that_is_killed_is_named(self):
        server = Server()
        load = Load(server.url, **ZIPF, ingest=True, requests=400, rate=10, max_failures=5)
        wait_until(lambda: server.metric("ragcache_http_requests_total", 'code="200"',
                                         'route="/v1/chat/completions"') > 0, "an answer's end")
        server.kill()
        code, report, out, err = load.end()
        self.assertEqual(code, 1, err)
        self.assertFalse(report["complete"])
        self.assertIn("5 requests failed one after another", report["stopped_because"])
        self.assertIn("ended early", out)
        self.assertGreater(report["throughput_rps"], 0)
        self.assertGreaterEqual(sum(report["errors"].get(kind, 0)
                                    for kind in ("closed", "refused")), 5)

        code, report, _, err = Load(server.url, **ZIPF, requests=1).end()
        self.assertEqual((code, report), (1, None))
        self.assertIn("cannot connect", err)

    def test_a_request_of_the_warm_up_that_fails_is_told(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), BusyAtFirst)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        code, report, out, err = Load(f"http://127.0.0.1:{server.server_port}", **ZIPF,
                                      retrieval="before", warm_up=1, requests=2, rate=20).end()
        self.assertEqual(code, 1, err)
        self.assertEqual((report["requests"], report["errors"]), (2, {}))
        self.assertEqual(report["warm_up_errors"], {"status 503": 1})
        self.assertIn("failed in the warm-up: status 503", out)
        self.assertIn("1 of the warm-up's 1 requests failed", err)

    def test_a_bad_line_of_a_trace_is_named(self):
        good = {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as trace:
            trace.write(json.dumps(good) + "\n" + json.dumps(good | {"hash_ids": "x"}) + "\n")
            trace.flush()
            code, report, _, err = Load("http://127.0.0.1:1", workload="mooncake",
                                        data=trace.name).end()
        self.assertEqual((code, report), (2, None))
        self.assertIn(f"{trace.name}:2", err)

    def test_a_workload_with_too_few_requests_is_refused(self):
        line = {"timestamp": 0, "input_length": 60, "output_length": 1, "hash_ids": []}
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as trace:
            trace.write(4 * (json.dumps(line) + "\n"))
            trace.flush()
            code, report, _, err = Load("http://127.0.0.1:1", workload="mooncake",
                                        data=trace.name, warm_up=2, requests=3).end()
        self.assertEqual((code, report), (2, None), err)
        self.assertIn("has 4 requests, fewer than --warm-up 2 and --requests 3", err)

    def test_bad_options_are_named_with_their_bounds(self):
        for options, words in ((ZIPF | {"rate": 0}, ("--rate", "0.001")),
                               (ZIPF | {"top-k": 0}, ("--top-k", "1")),
                               (ZIPF | {"workload": "x"}, ("--workload", "mmlu")),
                               (ZIPF | {"retrieval": "server"}, ("--retrieval", "named")),
                               (ZIPF | {"warm-up": 5, "requests": 0}, ("--requests",)),
                               (ZIPF | {"speedup": 2}, ("--speedup", "poisson")),
                               (ZIPF | {"arrivals": "recorded"}, ("recorded",))):
            with self.subTest(options=options):
                code, report, _, err = Load("http://127.0.0.1:1", **options).end()
                self.assertEqual((code, report), (2, None), err)
                for word in words:
                    self.assertIn(word, err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
