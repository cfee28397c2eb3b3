#!/usr/bin/env python3
"""Writes tests/golden/embeddings.json and embeddings.f32: the embedder by PyPI transformers, fp32.

    make_embedding_golden.py EMBEDDER_FOLDER OUT_FOLDER

BertModel, mean over the tokens, L2 norm, at most the model's max_seq_length (256) tokens.
Each sentence runs alone, so that no padding takes part.
"""

import json
import os
import random
import sys

import numpy
import torch
from transformers import AutoTokenizer, BertModel

import prose

SEED = 20240613
N_GENERATED = 30

SENTENCES = [
    "",
    "?",
    "Lighthouse",
    "A bee dances.",
    "Where do bees find flowers?",
    "Who ground the mirror of the telescope at Kaldvik?",
    "WHO GROUND THE MIRROR OF THE TELESCOPE AT KALDVIK?",
    "How long did the railway from Tessaly Bay to the coast take, in minutes?",
    "Crème brûlée, naïve façades and a jalapeño: accents are stripped.",
    "Der Hafen von Arvenholm fror im Winter zu, und die Fischer gingen über das Eis.",
    "Le phare de Kaldvik montre deux éclats blancs toutes les douze secondes.",
    "La biblioteca guarda novecientos mil libros y las notas de una viajera.",
    "灯台の光は遠くまで届く。港の人々はその光を待っている。",
    "Маяк в Калдвике горит каждую ночь.",
    "The answer is 42, or 6 × 7, or 84/2; π ≈ 3.14159.",
    "for (size_t i = 0; i < n; ++i) { total += values[i]; }",
    "email: someone@example.org, phone +00 123 456-789",
    "🐝 + 🌼 = 🍯",
    "pneumonoultramicroscopicsilicovolcanoconiosis " * 3,
    "x" * 150,
]


def sentences() -> list[str]:
    source = random.Random(SEED)
    generated = []
    for i in range(N_GENERATED):
        if i % 3 == 0:
            generated.append(prose.fill(source, source.choice(prose.QUESTIONS)))
        else:  # from one paragraph to well over 256 tokens
            title, text = prose.document(source, 1 + i % 7)
            generated.append(f"{title}\n{text}")
    return SENTENCES + generated


def main() -> None:
    folder, out_folder = sys.argv[1:]
    with open(os.path.join(folder, "sentence_bert_config.json"), encoding="utf-8") as file:
        max_tokens = json.load(file)["max_seq_length"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    model = BertModel.from_pretrained(folder, dtype=torch.float32, add_pooling_layer=False)
    model.eval()
    entries, vectors = [], []
    for text in sentences():
        ids = tokenizer(text, truncation=True, max_length=max_tokens,
                        split_special_tokens=True).input_ids
        with torch.inference_mode():
            hidden = model(torch.tensor([ids])).last_hidden_state[0]
        mean = hidden.mean(dim=0)
        vectors.append((mean / mean.norm()).numpy().astype("<f4"))
        entries.append({"text": text, "ids": ids})
    with open(os.path.join(out_folder, "embeddings.json"), "w", encoding="utf-8") as out:
        lines = ",\n".join(json.dumps(e, ensure_ascii=False, separators=(",", ":"))
                           for e in entries)
        out.write(f'{{"max_tokens": {max_tokens}, "dimension": {len(vectors[0])}, '
                  f'"sentences": [\n{lines}\n]}}\n')
    numpy.stack(vectors).tofile(os.path.join(out_folder, "embeddings.f32"))
    print(f"{len(entries)} sentences, {max(len(e['ids']) for e in entries)} tokens at most")


if __name__ == "__main__":
    main()
