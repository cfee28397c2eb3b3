#!/usr/bin/env python3
"""Writes tests/golden/logits.json: what PyPI transformers computes, in fp32, from the GGUF model.

    make_logits_golden.py MODEL.gguf OUT.json [--text FILE] [--full-logits FILE]

Prompts are generated (prose.py) unless --text names a file with real documents (corpus.py).
Results for such prompts are derived from the documents: compare with them, do not commit them. --full-logits writes the last
position's logits of every prompt as raw little-endian float32 [n_prompts, vocabulary_size].
"""

import argparse
import hashlib
import json
import os
import random
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import corpus
import prose

SEED = 20240612
N_PROMPTS = 50
N_CONTINUATION = 64
N_POSITIONS = 32
N_TOP = 8
PROMPT_TOKENS_MAX = 700


def make_prompts(documents: list[tuple[str, str]] | None) -> list[str]:
    source = random.Random(SEED)
    prompts = []
    for i in range(N_PROMPTS):
        question = prose.fill(source, source.choice(prose.QUESTIONS))
        if i < 4:  # raw text, no template
            prompts.append(prose.fill(source, source.choice(prose.PARAGRAPHS))[:40 + 60 * i])
            continue
        n_documents = i % 6
        if documents:
            chosen = source.sample(documents, n_documents)
        else:
            chosen = [prose.document(source, source.randint(1, 2)) for _ in range(n_documents)]
        prompts.append(prose.chat_prompt(source, chosen, question))
    return prompts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--text")
    parser.add_argument("--full-logits")
    arguments = parser.parse_args()

    folder, name = os.path.split(os.path.abspath(arguments.model))
    with open(arguments.model, "rb") as file:
        model_digest = hashlib.file_digest(file, "sha256").hexdigest()
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    model.eval()

    documents = corpus.read_documents(arguments.text) if arguments.text else None
    vocabulary_size = model.config.vocab_size
    positions = sorted(random.Random(SEED).sample(range(vocabulary_size), N_POSITIONS))
    full = open(arguments.full_logits, "wb") if arguments.full_logits else None
    results = []
    for i, text in enumerate(make_prompts(documents)):
        ids = tokenizer(text, add_special_tokens=False).input_ids
        if len(ids) > PROMPT_TOKENS_MAX:  # keep the end of the template
            ids = ids[:PROMPT_TOKENS_MAX - 100] + ids[-100:]
        with torch.inference_mode():
            # No stop token: the continuation runs on to its full length.
            generated = model.generate(
                torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                do_sample=False, max_new_tokens=N_CONTINUATION, eos_token_id=None, pad_token_id=0,
                return_dict_in_generate=True, output_logits=True)
        continuation = generated.sequences[0, len(ids):].tolist()
        steps = [step[0] for step in generated.logits]
        assert len(continuation) == len(steps) == N_CONTINUATION
        margins = []
        for step in steps:
            best, second = torch.topk(step, 2).values.tolist()
            margins.append(best - second)
        top = torch.topk(steps[0], N_TOP)
        if full:
            full.write(steps[0].contiguous().numpy().astype("<f4").tobytes())
        results.append({
            "ids": ids,
            "logits": [round(x, 5) for x in steps[0][positions].tolist()],
            "top": [[t, round(x, 5)] for t, x in zip(top.indices.tolist(), top.values.tolist())],
            "continuation": continuation,
            "margins": [round(m, 5) for m in margins],
        })
        print(f"{i}: {len(ids)} tokens, least margin {min(margins):.5f}: "
              f"{tokenizer.decode(continuation)[:70]!r}", file=sys.stderr, flush=True)
    with open(arguments.out, "w", encoding="utf-8") as out:
        head = {"model_sha256": model_digest, "vocabulary_size": vocabulary_size,
                "positions": positions}
        out.write(json.dumps(head)[:-1] + ', "prompts": [\n')
        out.write(",\n".join(json.dumps(r, separators=(",", ":")) for r in results))
        out.write("\n]}\n")


if __name__ == "__main__":
    main()
