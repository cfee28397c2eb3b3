"""Answers over HTTP: exact whatever the cache holds, and unchanged for OpenAI's own client."""

import concurrent.futures
import contextlib
import json
import threading
import unittest

import openai

from server import Server, cached_of, chat_body, facts, text_of, wait_until

QUESTIONS = ["How often was the heron of the harbour counted?",
             "Who wrote down the count of the lynx of the quarry?",
             "Tell me about the otter of the orchard."]


class Answers(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        cls.server.ingest(facts())
        cls.openai = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0)

    def setUp(self):
        # An answer cut by a stop string leaves the worker one iteration later.
        wait_until(lambda: self.server.cache()["running_requests"] == 0, "an idle server")
        self.server.clear_cache()

    def stream(self, question, **fields):
        chunks = list(self.openai.chat.completions.create(
            model="ragcache", messages=[{"role": "user", "content": question}], stream=True,
            temperature=0, max_tokens=24, stream_options={"include_usage": True}, **fields))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        return text, chunks

    def test_the_openai_client_gets_the_same_answer_streamed_or_not(self):
        whole = self.openai.chat.completions.create(
            model="ragcache", messages=[{"role": "user", "content": QUESTIONS[0]}], temperature=0,
            max_tokens=24)
        text, chunks = self.stream(QUESTIONS[0])
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertGreater(len(text), 0)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
        self.assertIn(reasons[-1], ("stop", "length"))
        self.assertEqual(set(reasons[:-1]), {None})
        self.assertEqual(chunks[-1].usage.prompt_tokens, whole.usage.prompt_tokens)
        self.assertEqual(whole.usage.prompt_tokens_details.cached_tokens, 0)
        self.assertGreater(chunks[-1].usage.prompt_tokens_details.cached_tokens, 500)

    def test_the_openai_client_lists_the_model(self):
        models = self.openai.models.list().data
        self.assertEqual(len(models), 1)
        self.assertIn("SmolLM2", models[0].id)

    def test_the_openai_client_sees_its_own_error_types(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.openai.chat.completions.create(
                model="ragcache", messages=[{"role": "user", "content": "x"}], temperature=9)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.NotFoundError):
            self.openai.chat.completions.create(
                model="no-such-model", messages=[{"role": "user", "content": "x"}])

    def test_documents_come_with_the_answer_in_prompt_order(self):
        answer = self.server.chat(QUESTIONS[1], rag={"top_k": 3})
        self.assertEqual([d["rank"] for d in answer["documents"]], [1, 2, 3])
        self.assertEqual(answer["documents"][0]["title"], "The lynx of the quarry")
        scores = [d["score"] for d in answer["documents"]]
        self.assertEqual(scores, sorted(scores, reverse=True))
        named = ["fact-3", "fact-1"]
        answer = self.server.chat("What now?", rag={"documents": named})
        self.assertEqual([d["id"] for d in answer["documents"]], named)

    def test_cold_warm_evicted_batched_and_streamed_answers_are_the_same(self):
        cold = {}
        for question in QUESTIONS:
            self.server.clear_cache()
            answer = self.server.chat(question)
            self.assertEqual(cached_of(answer), 0)
            cold[question] = text_of(answer)
        self.server.clear_cache()
        for question in QUESTIONS:
            self.server.chat(question)
            warm = self.server.chat(question)
            self.assertGreater(cached_of(warm), warm["usage"]["prompt_tokens"] * 0.8)
            self.assertEqual(text_of(warm), cold[question], "warm")
            self.assertEqual(self.stream(question)[0], cold[question], "streamed")
        for clear in (True, False):
            if clear:
                self.server.clear_cache()
            with concurrent.futures.ThreadPoolExecutor(len(QUESTIONS) * 2) as pool:
                answers = list(pool.map(self.server.chat, QUESTIONS * 2))
            for question, answer in zip(QUESTIONS * 2, answers):
                self.assertEqual(text_of(answer), cold[question], "in a batch")

    def test_a_document_after_other_documents_is_not_taken_from_the_cache(self):
        self.server.chat("a", rag={"documents": ["fact-1", "fact-2"]})
        root = cached_of(self.server.chat("a", rag={"enabled": False}))
        swapped = self.server.chat("a", rag={"documents": ["fact-2", "fact-1"]})
        self.assertEqual(cached_of(swapped), root)
        shared = self.server.chat("b", rag={"documents": ["fact-1", "fact-3"]})
        self.assertGreater(cached_of(shared), root)

    def test_a_replaced_document_never_meets_its_old_text(self):
        def answer():
            return self.server.chat("What is the password?", rag={"documents": ["canary"]})

        self.server.ingest([{"id": "canary", "title": "Note", "text": "The password is walrus."}])
        self.assertIn("walrus", text_of(answer()).lower())
        self.assertIn("walrus", text_of(answer()).lower())
        self.server.ingest([{"id": "canary", "title": "Note", "text": "The password is falcon."}])
        replaced = text_of(answer()).lower()
        self.assertIn("falcon", replaced)
        self.assertNotIn("walrus", replaced)
        status, _ = self.server.request("DELETE", "/v1/documents/canary")
        self.assertEqual(status, 200)
        status, body = self.server.request("POST", "/v1/chat/completions",
                                           chat_body("x", rag={"documents": ["canary"]}))
        self.assertEqual(status, 404)
        self.assertEqual(body["error"]["message"],
                         "documents[0]: there is no document 'canary'")

    def test_a_document_replaced_and_deleted_under_load_is_never_seen_as_it_was(self):
        words = ["walrus", "falcon", "badger", "pelican", "tiger"]
        lock = threading.Lock()
        acknowledged = -1  # words up to here have been replaced for good, but for the last
        stale = []
        ending = threading.Event()

        def ask():
            while not ending.is_set():
                with lock:
                    at_start = acknowledged
                status, body = self.server.request(
                    "POST", "/v1/chat/completions",
                    chat_body("What is the password?", max_tokens=12,
                              rag={"documents": ["fact-1", "canary"]}))
                if status == 404 and at_start in (-1, len(words) - 1, len(words)):
                    continue
                answer = text_of(body).lower() if status == 200 else str(body)
                if status != 200 or any(word in answer for word in words[:max(at_start, 0)]):
                    with lock:
                        stale.append((at_start, status, answer))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for number, word in enumerate(words):
                self.server.ingest([{"id": "canary", "title": "Note",
                                     "text": f"The password is {word}."}])
                with lock:
                    acknowledged = number
                answer = self.server.chat("What is the password?",
                                          rag={"documents": ["fact-1", "canary"]})
                self.assertIn(word, text_of(answer).lower())
            with lock:
                acknowledged = len(words)  # from here on a 404 may come before it is asked for
            self.assertEqual(self.server.request("DELETE", "/v1/documents/canary")[0], 200)
            self.assertEqual(self.server.request(
                "POST", "/v1/chat/completions",
                chat_body("x", rag={"documents": ["canary"]}))[0], 404)
        finally:
            ending.set()
            for thread in threads:
                thread.join()
        # Whoever asked while the last text still stood may have had it; nobody had an older one.
        self.assertEqual([s for s in stale if s[0] < len(words) or words[-1] not in s[2]], [])

    def test_sampling_repeats_with_its_seed_and_stop_strings_cut(self):
        draws = [text_of(self.server.chat(QUESTIONS[0], temperature=1.5, seed=seed))
                 for seed in (1, 1, 2)]
        self.assertEqual(draws[0], draws[1])
        self.assertNotEqual(draws[0], draws[2])
        text = text_of(self.server.chat(QUESTIONS[0]))
        word = text.split()[2]
        cut = self.server.chat(QUESTIONS[0], stop=word)
        self.assertEqual(text_of(cut), text[:text.index(word)])
        self.assertEqual(cut["choices"][0]["finish_reason"], "stop")

    def test_hits_of_the_metrics_are_those_of_the_answers(self):
        def hits():
            return self.server.metric("ragcache_prefix_cache_hits_tokens_total")

        before = hits()
        total = sum(cached_of(self.server.chat(q, max_tokens=2)) for q in QUESTIONS * 2)
        self.assertGreater(total, 0)
        self.assertEqual(hits() - before, total)

    def test_requests_that_share_an_id_are_all_answered(self):
        def ask(question):
            return self.server.request("POST", "/v1/chat/completions",
                                       chat_body(question, max_tokens=8), {"x-request-id": "same"})

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for status, answer in pool.map(ask, QUESTIONS + QUESTIONS[:1]):
                self.assertEqual(status, 200, answer)

    def test_a_client_that_goes_away_frees_everything(self):
        with contextlib.closing(self.server.connect()) as connection:
            connection.request("POST", "/v1/chat/completions",
                               json.dumps(chat_body(QUESTIONS[2], stream=True, max_tokens=2000)),
                               {"Content-Type": "application/json"})
            connection.getresponse().read(1)
        wait_until(lambda: self.server.cache()["running_requests"] == 0, "the request's end", 5)
        cache = self.server.cache()
        self.assertEqual(cache["blocks"]["reserved"], 0)
        self.assertEqual(cache["pinned_nodes"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
