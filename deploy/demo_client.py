#!/usr/bin/env python3
"""Asks a running RAGCache questions over HTTP and prints how soon the first token came.

Each pair: with an empty cache, a question through the normal search (cold); then another question on
the documents found, in the same order (warm). Times are the client's own: from sending the request
to the first piece of the answer. Standard library only.
"""

import argparse
import contextlib
import http.client
import json
import statistics
import sys
import textwrap
import time
from urllib.parse import urlsplit

TIMEOUT_S = 300
TOP_K = 5
WIDTH = 100

# A question, and another one about the same documents.
PAIRS = [
    ("How did the Apollo 11 lunar module land on the Moon?",
     "Who flew the lunar module, and what went wrong on the way down?"),
    ("How do aardvarks find and eat termites?",
     "What does an aardwolf eat, and how much of it in a night?"),
    ("What is George Orwell's Animal Farm about?",
     "Which historical events does the story stand for?"),
    ("How is asphalt made and used for roads?",
     "What is the difference between asphalt and bitumen?"),
    ("What is an abacus and how is it used?",
     "Which peoples of antiquity calculated with such a tool?"),
]
# Two people asking about one subject in their own words, both through the search.
NATURAL_PAIR = ("When did people first walk on the Moon, and who were they?",
                "Who chose the landing site of the first Moon landing?")
WARM_UP = "What is an alphabet?"


class DemoError(Exception):
    """A fault with a message for the person who runs the demo."""


class Client:
    """One server. Not thread-safe."""

    def __init__(self, url, model, max_tokens):
        self.address = urlsplit(url).netloc
        self.model = model
        self.max_tokens = max_tokens

    def send(self, method, path, body=None):
        """Sends one request on a connection of its own and returns (connection, response)."""
        connection = http.client.HTTPConnection(self.address, timeout=TIMEOUT_S)
        payload = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, payload, {"Content-Type": "application/json"})
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise DemoError(f"no answer from {self.address} to {method} {path}: {error}") from None
        if response.status >= 400:
            text = response.read(2000).decode(errors="replace")
            raise DemoError(f"{method} {path} was answered {response.status}: {text}")
        return connection, response

    def first_model(self):
        connection, response = self.send("GET", "/v1/models")
        with contextlib.closing(connection):
            return json.load(response)["data"][0]["id"]

    def clear_cache(self):
        connection, response = self.send("POST", "/admin/cache/clear", {})
        with contextlib.closing(connection):
            response.read()

    def ask(self, question, rag, on_documents=None, on_text=None, max_tokens=None):
        """Streams one answer. Returns answer, documents and the figures of the last chunk."""
        body = {"model": self.model, "stream": True, "stream_options": {"include_usage": True},
                "temperature": 0, "max_tokens": max_tokens or self.max_tokens, "rag": rag,
                "messages": [{"role": "user", "content": question}]}
        answer, documents, usage, timings, ttft_ms = "", None, {}, {}, None
        start = time.perf_counter()
        connection, response = self.send("POST", "/v1/chat/completions", body)
        with contextlib.closing(connection):
            for chunk in chunks_of(response):
                if "error" in chunk:
                    raise DemoError(f"the answer broke off: {chunk['error']}")
                if documents is None and "documents" in chunk:
                    documents = chunk["documents"]
                    if on_documents:
                        on_documents(documents)
                for choice in chunk.get("choices", []):
                    piece = choice.get("delta", {}).get("content") or ""
                    if piece and ttft_ms is None:
                        ttft_ms = (time.perf_counter() - start) * 1000
                    answer += piece
                    if piece and on_text:
                        on_text(piece)
                usage = chunk.get("usage") or usage
                timings = chunk.get("timings") or timings
        if ttft_ms is None or not usage:
            raise DemoError(f"the answer to '{question}' has no text or no usage: {answer!r}")
        figures = {"ttft_ms": round(ttft_ms, 1), "search_ms": round(timings.get("search_ms", 0), 1),
                   "prompt_tokens": usage["prompt_tokens"],
                   "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"]}
        return answer.strip(), documents or [], figures


def chunks_of(response):
    """Yields the JSON objects of a server-sent event stream until [DONE]."""
    for line in response:
        text = line.decode().strip()
        if not text.startswith("data:"):
            continue
        data = text[len("data:"):].strip()
        if data == "[DONE]":
            return
        yield json.loads(data)
    raise DemoError("the answer's stream ended before [DONE]")


class Printer:
    """Prints an answer as it comes, indented, with a new line at the first space near the edge."""

    INDENT = "      "

    def __init__(self):
        self.column = 0
        self.space = False

    def __call__(self, piece):
        for character in piece:
            if character.isspace():
                self.space = True
                continue
            if self.column == 0:
                sys.stdout.write(self.INDENT)
            elif self.space and self.column > WIDTH - 18:
                sys.stdout.write("\n" + self.INDENT)
                self.column = 0
            elif self.space:
                sys.stdout.write(" ")
            self.space = False
            sys.stdout.write(character)
            self.column += 1
        sys.stdout.flush()


def print_documents(documents):
    names = ", ".join(f"{d['title']} {d['score']:.2f}" for d in documents)
    print(textwrap.fill(f"documents: {names}", WIDTH, initial_indent="    ",
                        subsequent_indent=" " * 15), flush=True)


def print_figures(figures):
    print(f"\n    -> first token after {figures['ttft_ms']:.0f} ms, search "
          f"{figures['search_ms']:.0f} ms, {figures['cached_tokens']} of "
          f"{figures['prompt_tokens']} prompt tokens cached\n", flush=True)


def ask_and_print(client, label, question, rag):
    print(f"  {label}: {question}", flush=True)
    # A question that names its documents has no scores to show.
    answer, documents, figures = client.ask(
        question, rag, on_documents=None if "documents" in rag else print_documents,
        on_text=Printer())
    print_figures(figures)
    return answer, documents, figures


def ask_pair(client, number, question, follow_up):
    """Returns one entry of the JSON report: the question cold, the follow-up on its documents."""
    print(f"--- {number} of {len(PAIRS)}")
    client.clear_cache()
    answer, documents, cold = ask_and_print(client, "cold", question, {"top_k": TOP_K})
    if len(documents) != TOP_K:
        raise DemoError(f"'{question}' found {len(documents)} documents instead of {TOP_K}: "
                        "are the demo's documents ingested?")
    _, _, warm = ask_and_print(client, "warm, on the same documents", follow_up,
                               {"documents": [document["id"] for document in documents]})
    shown = [{key: document[key] for key in ("id", "title", "score")} for document in documents]
    return {"question": question, "answer": answer, "documents": shown, "cold": cold, "warm": warm}


def ask_natural_pair(client):
    print("--- two people, one subject: both questions through the search, whatever it finds")
    client.clear_cache()
    ask_and_print(client, "first ", NATURAL_PAIR[0], {"top_k": TOP_K})
    ask_and_print(client, "second", NATURAL_PAIR[1], {"top_k": TOP_K})


def speedup(entry):
    return entry["cold"]["ttft_ms"] / entry["warm"]["ttft_ms"]


def print_table(entries, median):
    print(f"{'question':<54} {'prompt':>7} {'cached':>7} {'cold':>9} {'warm':>8} {'speed-up':>9}")
    print(f"{'':<54} {'tokens':>7} {'tokens':>7} {'TTFT ms':>9} {'TTFT ms':>8}")
    print("-" * WIDTH)
    for entry in entries:
        print(f"{textwrap.shorten(entry['question'], 54):<54} {entry['warm']['prompt_tokens']:>7} "
              f"{entry['warm']['cached_tokens']:>7} {entry['cold']['ttft_ms']:>9.0f} "
              f"{entry['warm']['ttft_ms']:>8.0f} {speedup(entry):>8.1f}x")
    print("-" * WIDTH)
    print(f"Tokens are those of the warm question. Median speed-up of the first token: {median:.1f}x")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True, help="the server, such as http://127.0.0.1:8080")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--max-tokens", type=int, default=32, help="length of each answer")
    options = parser.parse_args()

    client = Client(options.url, "", options.max_tokens)
    client.model = client.first_model()
    # The first request after a start touches every weight for the first time; it is not counted.
    client.ask(WARM_UP, {"top_k": TOP_K}, max_tokens=1)
    entries = [ask_pair(client, number, *pair) for number, pair in enumerate(PAIRS, 1)]
    ask_natural_pair(client)
    median = statistics.median(speedup(entry) for entry in entries)
    print_table(entries, median)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"questions": entries, "median_ttft_speedup": round(median, 2)}, out, indent=2,
                      ensure_ascii=False)
            out.write("\n")


if __name__ == "__main__":
    try:
        main()
    except DemoError as error:
        sys.exit(f"demo: {error}")
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        sys.exit(f"demo: unexpected answer of the server: {type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
