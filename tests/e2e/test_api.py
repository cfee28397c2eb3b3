"""Every part of the HTTP API with OpenAI's own client, against real models."""

import gzip
import json
import math
import pathlib
import re
import tempfile
import unittest

import openai

from server import Server, cached_of, chat_body, text_of, wait_until

ANIMALS = [{"id": f"animal-{i}", "title": name, "text": f"The {name} lives in the {place}.",
            "metadata": {"place": place, "legs": legs, "tags": ["animal", place]}}
           for i, (name, place, legs) in enumerate([
               ("heron", "marsh", 2), ("badger", "forest", 4), ("lynx", "forest", 4),
               ("otter", "river", 4), ("plover", "marsh", 2), ("beetle", "forest", 6)])]
PROMPT = "One, two, three, four,"
ROOT = pathlib.Path(__file__).resolve().parents[2]


class Api(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = Server(default_top_k=200, max_top_k=500)
        cls.addClassCleanup(cls.server.stop)
        cls.server.ingest(ANIMALS)
        cls.openai = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0)

    def setUp(self):
        wait_until(lambda: self.server.cache()["running_requests"] == 0, "an idle server")
        self.server.clear_cache()

    def complete(self, prompt=PROMPT, **fields):
        return self.openai.completions.create(model="ragcache", prompt=prompt,
                                              **{"temperature": 0, "max_tokens": 12} | fields)

    def ids_found(self, query="an animal", **fields):
        status, body = self.server.request("POST", "/v1/search",
                                           {"query": query, "top_k": 10} | fields)
        self.assertEqual(status, 200, body)
        return [document["id"] for document in body["documents"]]

    # Completions

    def test_a_raw_prompt_goes_on_streamed_or_not(self):
        whole = self.complete()
        self.assertIn("five", whole.choices[0].text)
        self.assertEqual(whole.usage.completion_tokens, 12)
        pieces = [chunk.choices[0].text for chunk in self.complete(stream=True)]
        self.assertEqual("".join(pieces), whole.choices[0].text)

    def test_several_prompts_and_choices_are_numbered(self):
        alone = [self.complete(p).choices[0].text for p in (PROMPT, "Red, green,")]
        both = self.complete([PROMPT, "Red, green,"], n=2)
        self.assertEqual([c.index for c in both.choices], [0, 1, 2, 3])
        texts = [c.text for c in both.choices]
        self.assertEqual(texts, [alone[0], alone[0], alone[1], alone[1]])  # greedy
        drawn = self.complete(n=3, temperature=1.5, seed=7)
        self.assertGreater(len({c.text for c in drawn.choices}), 1)
        again = self.complete(n=3, temperature=1.5, seed=7)
        self.assertEqual([c.text for c in drawn.choices], [c.text for c in again.choices])

    def test_segments_are_cached_in_their_order(self):
        segments = ["Rome is the capital of Italy. " * 8, "Paris is the capital of France. " * 8]
        first, second = (self.complete("The capital of Italy is", max_tokens=4,
                                       extra_body={"segments": segments}) for _ in range(2))
        self.assertEqual(cached_of(first.model_dump()), 0)
        self.assertGreater(cached_of(second.model_dump()), 80)
        self.assertEqual(first.choices[0].text, second.choices[0].text)
        self.assertIn("Rome", second.choices[0].text)
        swapped = self.complete("The capital of Italy is", max_tokens=4,
                                extra_body={"segments": segments[::-1]})
        self.assertEqual(cached_of(swapped.model_dump()), 0)

    def test_logprobs_are_the_same_in_every_shape(self):
        whole = self.complete(logprobs=2).choices[0]
        self.assertEqual("".join(whole.logprobs.tokens), whole.text)
        self.assertEqual(len(whole.logprobs.token_logprobs), 12)
        for token, logprob, top in zip(whole.logprobs.tokens, whole.logprobs.token_logprobs,
                                       whole.logprobs.top_logprobs):
            self.assertLessEqual(logprob, 0)
            self.assertAlmostEqual(logprob, max(top.values()), places=5)  # greedy
            self.assertIn(token, top)
        offsets = whole.logprobs.text_offset
        for token, offset in zip(whole.logprobs.tokens, offsets):
            self.assertEqual(whole.text[offset:offset + len(token)], token)
        chunks = [c.choices[0] for c in self.complete(logprobs=2, stream=True)]
        streamed = [x for c in chunks if c.logprobs for x in c.logprobs.token_logprobs]
        for a, b in zip(streamed, whole.logprobs.token_logprobs, strict=True):
            self.assertAlmostEqual(a, b, places=4)

    def test_penalties_bias_and_stops_steer_the_answer(self):
        plain = self.complete(max_tokens=30).choices[0].text
        word = " five"
        self.assertIn(word, plain)
        stopped = self.complete(stop=word, max_tokens=30).choices[0]
        self.assertEqual(stopped.text, plain[:plain.index(word)])
        self.assertEqual(stopped.finish_reason, "stop")
        forced = self.complete(max_tokens=5, logit_bias={"28": 100}, logprobs=0).choices[0]
        self.assertEqual(len(set(forced.logprobs.tokens)), 1)
        free = self.complete(max_tokens=40, extra_body={"repetition_penalty": 1.9}).choices[0].text
        self.assertNotEqual(free, self.complete(max_tokens=40).choices[0].text)

    # Metrics

    def test_the_documents_name_metrics_that_exist(self):
        status, body = self.server.request("GET", "/metrics")
        self.assertEqual(status, 200)
        lines = body.decode().splitlines()
        pages = [page for pattern in ("*.md", "docs/*.md", "*/README.md", "services/*/README.md")
                 for page in sorted(ROOT.glob(pattern))]
        named = [(page.name, *found) for page in pages for found in re.findall(
            r"(?<![\w/.-])(ragcache_[a-z0-9_]*[a-z0-9])(?:\{([a-z_,]+)\})?", page.read_text())]
        self.assertGreater(len(named), 5)
        for page, name, labels in named:
            with self.subTest(page=page, metric=name):
                series = [line for line in lines
                          if re.match(name + r"(_bucket|_sum|_count)?[{ ]", line)]
                self.assertTrue(series)
                for label in filter(None, labels.split(",")):
                    self.assertIn(f'{label}="', series[0])

    # Chat

    def test_choices_of_a_chat_are_streamed_by_their_index(self):
        stream = self.openai.chat.completions.create(
            model="ragcache", n=2, max_tokens=8, temperature=1.2, seed=3, stream=True,
            messages=[{"role": "user", "content": "Say something."}])
        texts, reasons = ["", ""], [None, None]
        for chunk in stream:
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                reasons[choice.index] = choice.finish_reason or reasons[choice.index]
        self.assertTrue(all(texts))
        self.assertTrue(all(reasons), reasons)
        whole = self.openai.chat.completions.create(
            model="ragcache", n=2, max_tokens=8, temperature=1.2, seed=3,
            messages=[{"role": "user", "content": "Say something."}])
        self.assertEqual([c.message.content for c in whole.choices], texts)

    def test_chat_logprobs_add_up_to_the_answer(self):
        answer = self.openai.chat.completions.create(
            model="ragcache", max_tokens=8, temperature=0, logprobs=True, top_logprobs=3,
            messages=[{"role": "user", "content": "What is two plus two?"}])
        content = answer.choices[0].logprobs.content
        text = b"".join(bytes(token.bytes) for token in content).decode()
        self.assertTrue(text.startswith(answer.choices[0].message.content))
        for token in content:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertAlmostEqual(token.logprob, token.top_logprobs[0].logprob, places=5)

    def test_a_chat_may_ask_for_as_many_documents_as_the_options_allow(self):
        for rag in ({}, {"top_k": 500}):
            answer = self.server.chat("Who lives in the forest?", rag=rag, max_tokens=1)
            self.assertEqual(len(answer["documents"]), len(ANIMALS))
        status, _ = self.server.request("POST", "/v1/chat/completions",
                                        chat_body("Who?", rag={"top_k": 501}))
        self.assertEqual(status, 400)

    def test_a_filter_and_a_corpus_choose_the_documents(self):
        answer = self.server.chat("Where does it live?",
                                  rag={"filter": {"place": "marsh"}, "top_k": 5})
        self.assertEqual({d["id"] for d in answer["documents"]}, {"animal-0", "animal-4"})
        self.server.request("PUT", "/v1/corpora/notes", {})
        status, _ = self.server.request("POST", "/v1/documents?corpus=notes",
                                        {"id": "note", "text": "The password is walrus."})
        self.assertEqual(status, 200)
        answer = self.server.chat("What is the password?", rag={"corpus": "notes"})
        self.assertEqual([d["id"] for d in answer["documents"]], ["note"])
        self.assertIn("walr", text_of(answer).lower())  # a small model does not spell well
        status, _ = self.server.request("DELETE", "/v1/corpora/notes")
        self.assertEqual(status, 200)

    # Retrieval

    def test_embeddings_are_those_of_the_index(self):
        texts = ["The heron lives in the marsh.", "A sentence about nothing else."]
        default = self.openai.embeddings.create(model="ragcache", input=texts)
        plain = self.openai.embeddings.create(model="ragcache", input=texts,
                                              encoding_format="float")
        for a, b in zip(default.data, plain.data, strict=True):
            self.assertEqual(len(a.embedding), 384)
            self.assertAlmostEqual(math.hypot(*a.embedding), 1, places=4)
            for x, y in zip(a.embedding, b.embedding):
                self.assertAlmostEqual(x, y, places=6)
        self.assertGreater(default.usage.prompt_tokens, 10)
        query = "a bird of the marsh"
        vector = self.openai.embeddings.create(model="ragcache", input=query).data[0].embedding
        status, by_vector = self.server.request("POST", "/v1/search",
                                                {"embedding": vector, "top_k": 4})
        self.assertEqual(status, 200, by_vector)
        self.assertEqual([d["id"] for d in by_vector["documents"]], self.ids_found(query)[:4])
        status, body = self.server.request("POST", "/v1/search", {"embedding": vector[:100]})
        self.assertEqual(status, 400)
        self.assertIn("384", body["error"]["message"])

    def test_every_operator_of_a_filter_finds_its_documents(self):
        for wanted, ids in [({"place": "forest"}, {1, 2, 5}),
                            ({"place": {"ne": "forest"}}, {0, 3, 4}),
                            ({"place": {"in": ["river", "marsh"]}}, {0, 3, 4}),
                            ({"place": {"nin": ["river", "marsh"]}}, {1, 2, 5}),
                            ({"legs": {"gt": 2, "lte": 4}}, {1, 2, 3}),
                            ({"legs": {"lt": 4}}, {0, 4}), ({"legs": {"gte": 6}}, {5}),
                            ({"tags": "river"}, {3}), ({"legs": {"exists": False}}, set()),
                            ({"place": "forest", "legs": 4}, {1, 2}), ({"legs": "4"}, set())]:
            found = self.ids_found(filter=wanted)
            self.assertEqual(set(found), {f"animal-{i}" for i in ids}, wanted)

    def test_documents_are_put_listed_and_deleted(self):
        status, put = self.server.request("PUT", "/v1/documents/one",
                                          {"text": "first", "metadata": {"n": 1}})
        self.assertEqual(status, 200, put)
        lines = "".join(json.dumps(d) + "\n" for d in [{"id": "one", "text": "second"},
                                                       {"id": "two", "text": "other"},
                                                       {"id": "one", "text": "third"}])
        status, body = self.server.request(
            "POST", "/v1/documents", gzip.compress(lines.encode()),
            {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"})
        self.assertEqual(status, 200, body)
        status, one = self.server.request("GET", "/v1/documents/one")
        self.assertEqual((one["text"], one["metadata"]), ("third", {}))
        status, body = self.server.request("POST", "/v1/documents/delete",
                                           {"ids": ["one", "two", "none"]})
        self.assertEqual((status, body["deleted"]), (200, 2))
        status, _ = self.server.request("GET", "/v1/documents/one")
        self.assertEqual(status, 404)


class Keys(unittest.TestCase):

    def test_tenants_share_no_cache(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("one:key-of-tenant-one\ntwo:key-of-tenant-two\n")
            keys.flush()
            server = Server(api_keys_file=keys.name)  # read at the start
        self.addCleanup(server.stop)
        document = {"id": "d", "text": "A long story about a heron. " * 20}

        def ask(key):
            return openai.OpenAI(
                base_url=server.url + "/v1", api_key=key, max_retries=0).chat.completions.create(
                    model="ragcache", max_tokens=4, temperature=0,
                    messages=[{"role": "user", "content": "What is it about?"}],
                    extra_body={"rag": {"documents": ["d"]}}).model_dump()

        with self.assertRaises(openai.AuthenticationError):
            ask("key-of-nobody")
        status, _ = server.request("POST", "/v1/documents", document,
                                   {"Authorization": "Bearer key-of-tenant-one"})
        self.assertEqual(status, 200)
        self.assertEqual(cached_of(ask("key-of-tenant-one")), 0)
        self.assertGreater(cached_of(ask("key-of-tenant-one")), 50)
        self.assertEqual(cached_of(ask("key-of-tenant-two")), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
