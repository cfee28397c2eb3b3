"""Sharded against unsharded: the same questions to both, the same documents found?

Both hold the same documents: one retrieval of role `all`, and a router with two shards, one of them
twice, all as real processes. For exact and IVF kinds every answer must be the same, ids, order and
scores; for HNSW the recall@10 against exact must be no lower. Exit status 0 if so. Questions are
asked when the index is of its kind: those of the ivf kinds are exact until they have been trained, for
which ivf_pq wants 39 documents for each of its 2^pq_bits codes.

Examples:
  tests/e2e/compare_shards.py --documents passages.jsonl.gz --questions questions.jsonl.gz
  tests/e2e/compare_shards.py --documents d.jsonl --questions q.jsonl --kinds exact,hnsw --limit 500
  tests/e2e/compare_shards.py --documents d.jsonl --questions q.jsonl --kinds ivf_pq --set pq_bits=4
"""

import argparse
import concurrent.futures
import gzip
import json
import pathlib
import sys

from cluster import Cluster
from server import Server, wait_until

TOP_K = 10
EQUAL_KINDS = ("exact", "ivf_flat", "ivf_pq", "ivf_sq8")
KINDS = EQUAL_KINDS + ("hnsw",)
BATCH = 1000


def lines_of(path):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def ingest(client, documents):
    for begin in range(0, len(documents), BATCH):
        client.ingest(documents[begin:begin + BATCH])
        print(f"compare_shards: {min(begin + BATCH, len(documents))} of {len(documents)} documents",
              file=sys.stderr, flush=True)


def wait_for_index(client, kind):
    def is_of_kind():
        status, body = client.request("GET", "/v1/corpora/default")
        return status == 200 and body["index_kind"] == kind
    wait_until(is_of_kind, f"an index of kind {kind} (are there documents enough to train it?)")


def search_all(client, questions):
    def search(question):
        status, body = client.request("POST", "/v1/search", {"query": question, "top_k": TOP_K})
        if status != 200:
            sys.exit(f"compare_shards: status {status}: {body}")
        return [(d["id"], d["score"]) for d in body["documents"]]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(search, questions))


def recall(found, exact):
    return sum(len({i for i, _ in f} & {i for i, _ in e}) / max(1, len(e))
               for f, e in zip(found, exact)) / len(exact)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=pathlib.Path, required=True,
                        help="JSONL, perhaps .gz: id, title, text")
    parser.add_argument("--questions", type=pathlib.Path, required=True,
                        help="JSONL, perhaps .gz, with a field `question`")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--limit", type=int, default=2000, help="questions")
    parser.add_argument("--max-documents", type=int, default=10**9)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="an option of retrieval, in both systems")
    options = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in options.set)
    documents = [{"id": str(d["id"]), "title": d.get("title", ""), "text": d["text"]}
                 for d in lines_of(options.documents)[:options.max_documents]]
    questions = [q["question"] for q in lines_of(options.questions)[:options.limit]]
    exact, failed = None, False
    for kind in options.kinds.split(","):
        found = {}
        retrieval = settings | {"index": kind}
        for name, start in (("unsharded", lambda: Server(**retrieval)),
                            ("sharded", lambda: Cluster(router=retrieval))):
            client = start()
            try:
                ingest(client, documents)
                wait_for_index(client, kind)
                found[name] = search_all(client, questions)
            finally:
                client.stop()
        exact = exact or found["unsharded"]
        same = sum(a == b for a, b in zip(found["unsharded"], found["sharded"]))
        recalls = {name: recall(f, exact) for name, f in found.items()}
        good = (same == len(questions) if kind in EQUAL_KINDS
                else recalls["sharded"] >= recalls["unsharded"] - 1e-9)
        failed |= not good
        print(f"{kind}: {same} of {len(questions)} answers the same; recall@{TOP_K} against exact: "
              f"unsharded {recalls['unsharded']:.4f}, sharded {recalls['sharded']:.4f}"
              f"{'' if good else '  FAILED'}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
