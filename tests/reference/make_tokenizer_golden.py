#!/usr/bin/env python3
"""Writes strings with the token ids that PyPI tokenizers gives them, one JSON array a line.

    make_tokenizer_golden.py MODEL.gguf EMBEDDER_FOLDER OUT.jsonl [--count N] [--seed N]
                             [--text FILE ...]

Strings are generated; with --text, half of them are real ones from those files (corpus.py), which
must not be committed. tests/golden/tokenizers.jsonl is the output for the defaults.
"""

import argparse
import json
import os
import random

from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoTokenizer

import corpus
import prose

WORD_PIECE_TOKENS_MAX = 256
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<jupyter_code>",
            "[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]", "##ing", "<s>", "</s>", "<|im_start"]
WORDS = """
harbour telescope it's they're we'll I'd you've he'm DON'T o'clock rock'n'roll naïve façade
Straße Übermut größer été cœur señor corazón ação København Łódź žluťoučký kůň İzmir ısı čaj
Привет мир ёлка Київ Καλημέρα κόσμε ΟΔΥΣΣΕΎΣ שלום עולם مرحبا بالعالم نور فارسی गणित हिन्दी
বাংলা தமிழ் ไทย ภาษา ລາວ မြန်မာ ខ្មែរ አማርኛ ქართული հայերեն 灯台 学校 漢字かな カタカナ 한국어
서울 你好 世界 繁體 tiếng Việt Ελλάδα e\u0301te\u0301 A\u030a n\u0303 ﬁsh ﬂow Ⅷ ½ ² ㎏ ﷺ ǅ ß ẞ ſ
0 7 42 1999 3.14159 1,000,000 0x1F 1e-9 ١٢٣ ४५६ ①② 12th B2B http://example.org/a?b=c&d#e
user@example.org C++ #include <x> {"k":[1,2]} \\n \\u00e9 a_b_c snake-case -- --- ... ?! @#$%^&*
""".split()
EMOJI = ["🐝", "🌼", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇳🇴", "❤️", "☃", "5️⃣", "🧩", "🫠", "©", "™"]
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "\u00a0", "\u3000", "\u2028",
          "\u200b", "\u2003", "\x0b", "\x0c", "\x85", "\u1680", "    \t\t  "]
MARKS = ["\u0301", "\u0308", "\u0327", "\u0345", "\u20dd", "\ufe0f", "\u200d", "\u200c", "\u200f",
         "\u202e", "\u064b", "\u05b0", "\u093f", "\u302a", "\U0001d165", "\u034f"]


def random_character(source: random.Random) -> str:
    blocks = [(0x00, 0x7F), (0x80, 0x24F), (0x250, 0x52F), (0x530, 0x109F), (0x10A0, 0x1FFF),
              (0x2000, 0x2BFF), (0x2C00, 0x33FF), (0x3400, 0x9FFF), (0xA000, 0xD7FF),
              (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x323AF), (0xE0000, 0x10FFFF)]
    return chr(source.randint(*source.choice(blocks)))


def adversarial(source: random.Random) -> str:
    def several(low: int, high: int, make) -> str:
        return "".join(make() for _ in range(source.randint(low, high)))

    def word() -> str:
        w = source.choice(WORDS)
        return source.choice([w, w, w.upper(), w.capitalize(), w * 2])

    def mixed() -> str:
        return source.choice([
            lambda: word(), lambda: source.choice(SPACES), lambda: source.choice(EMOJI),
            lambda: random_character(source), lambda: source.choice(MARKS),
            lambda: source.choice(SPECIALS), lambda: str(source.randint(0, 10**6)),
            lambda: source.choice("'\"’.,;:!?()[]{}<>|/\\-_=+*&^%$#@~`")])()

    kind = source.randrange(9)
    if kind == 0:
        return several(1, 12, lambda: random_character(source))
    if kind == 1:
        return several(1, 10, lambda: word() + source.choice(SPACES))
    if kind == 2:
        return several(1, 8, lambda: source.choice(EMOJI + MARKS + SPACES))
    if kind == 3:
        return several(1, 6, lambda: source.choice("aeiouäñक한") + several(0, 3, lambda: source.choice(MARKS)))
    if kind == 4:
        return several(1, 8, lambda: source.choice(SPECIALS) + source.choice(["", " ", word()]))
    if kind == 5:  # one word, now and then a very long one
        letters = source.choice(["ab", "abcdefghijklmnopqrstuvwxyz", "etaoin'", "éèê", "漢字", "0123456789", " "])
        length = source.choice([3, 20, 47, 48, 49, 50, 99, 100, 101, 130]) if source.random() < 0.97 else 1500
        return several(length, length, lambda: source.choice(letters))
    if kind == 6:
        return several(1, 5, lambda: source.choice(SPACES)) + word() + several(1, 5, lambda: source.choice(SPACES))
    return several(1, 14, mixed)


def make_strings(source: random.Random, count: int, text_paths: list[str]) -> list[str]:
    strings = []
    if text_paths:
        real = [s for path in text_paths for s in corpus.read_strings(path)]
        strings += source.sample(real, min(len(real), count // 2))
    while len(strings) < count:
        if len(strings) % 10 == 0:
            strings.append(prose.document(source, 1)[1])
        else:
            strings.append(adversarial(source))
    return strings


def byte_pair_reference(model: str) -> Tokenizer:
    folder, name = os.path.split(os.path.abspath(model))
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name).backend_tokenizer
    # transformers drops tokenizer.ggml.pre = "smollm" when it reads GGUF. The model was trained
    # with the digit splitter in front, as its own tokenizer.json has it.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.encode_special_tokens = True  # the spelling of a special token is text
    return tokenizer


def word_piece_reference(folder: str) -> Tokenizer:
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(WORD_PIECE_TOKENS_MAX)
    tokenizer.encode_special_tokens = True
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("embedder")
    parser.add_argument("out")
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=20240614)
    parser.add_argument("--text", nargs="*", default=[])
    arguments = parser.parse_args()

    byte_pair = byte_pair_reference(arguments.model)
    word_piece = word_piece_reference(arguments.embedder)
    strings = make_strings(random.Random(arguments.seed), arguments.count, arguments.text)
    with open(arguments.out, "w", encoding="utf-8") as out:
        for text in strings:
            row = [text, byte_pair.encode(text, add_special_tokens=False).ids,
                   word_piece.encode(text).ids]
            out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
