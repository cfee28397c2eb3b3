#!/usr/bin/env python3
"""Tokenizers of model folders against PyPI tokenizers and sentencepiece.

    make_folder_tokenizer_golden.py train OUT_FOLDER
    make_folder_tokenizer_golden.py encode TOKENIZER OUT_FOLDER [--count N] [--seed N] [--text FILE...]

`train` makes tests/golden/tokenizers/: small tokenizers of every known form, trained on generated
text (prose.py), each with strings and the ids that the reference gives. `encode` takes a real
tokenizer.json, or a SentencePiece model, and writes a folder of the same form; with --text half of
the strings are real ones from those files (corpus.py). The C++ test reads such folders where
RAG_TOKENIZER_FOLDERS names them, separated by colons.

The reference is asked as RAGCache asks: no special tokens from text, no space in front.
"""

import argparse
import io
import json
import os
import random
import shutil

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import prose
from make_tokenizer_golden import make_strings

SEED = 20240703
N_STRINGS = 150
LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
                r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
TAGS = ["<s>", "</s>", "<unk>", "[INST]", "[/INST]", "<<SYS>>", "<0x0A>", "<0xE2>", "\u2581",
        "\u2581\u2581the", "<|begin_of_text|>", "<|eot_id|>", "<tool_call>", "<think>", "ſ", "'ſ",
        "'S", "'LL", "'rE", "\r\n\r\n", " \r", "!\n\n", "\u00a0x", "\u0130", "\x00"]


def is_tag(spelling: str) -> bool:
    """As common/tokenizer/vocabulary.h has it: text never gives a token that is spelled like one."""
    return len(spelling) > 2 and (spelling[0] + spelling[-1] in ("<>", "[]"))


def strings(source: random.Random, count: int, text_paths: list[str]) -> list[str]:
    made = make_strings(source, count, text_paths)
    for i in range(0, len(made), 5):
        pieces = [made[i]] + [source.choice(TAGS) for _ in range(source.randint(1, 4))]
        source.shuffle(pieces)
        made[i] = source.choice(["", " "]).join(pieces)
    return made


def without_prefix(step):
    """A normalizer or pre-tokenizer of a tokenizer.json that puts no space in front."""
    if step is None:
        return None
    for key in ("normalizers", "pretokenizers"):
        if key in step:
            step = {**step, key: [s for s in map(without_prefix, step[key]) if s is not None]}
    if step["type"] == "Prepend":
        return None
    if step["type"] == "Metaspace":
        step = {**step, "prepend_scheme": "never"}
    return step


def json_encoder(path: str):
    with open(path, encoding="utf-8") as file:
        root = json.load(file)
    root["normalizer"] = without_prefix(root["normalizer"])
    root["pre_tokenizer"] = without_prefix(root["pre_tokenizer"])
    for token in root["added_tokens"]:
        token["special"] = token["special"] or is_tag(token["content"])
    tokenizer = Tokenizer.from_str(json.dumps(root))
    tokenizer.encode_special_tokens = True
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def sentence_piece_encoder(path: str):
    model = sentencepiece_model_pb2.ModelProto()
    with open(path, "rb") as file:
        model.ParseFromString(file.read())
    model.normalizer_spec.add_dummy_prefix = False
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model.SerializeToString())
    return processor.EncodeAsIds


def write_strings(folder: str, encode, texts: list[str]) -> None:
    with open(os.path.join(folder, "strings.jsonl"), "w", encoding="utf-8") as out:
        for text in texts:
            out.write(json.dumps([text, encode(text)], ensure_ascii=False,
                                 separators=(",", ":")) + "\n")


def training_text() -> list[str]:
    source = random.Random(SEED)
    extra = "It's they're I'VE 1999 2024 été größer naïve Привет 你好 🐝 \n\n\t  {}[]()<>|/\\".split(" ")
    return [prose.document(source, 3)[1] + " " + source.choice(extra) for _ in range(150)]


def train_byte_level() -> dict:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(training_text(), trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    # A token that no merges lead to shows whether merges are ignored.
    root = json.loads(tokenizer.to_str())
    root["model"]["vocab"]["\u0120telescope"] = len(root["model"]["vocab"])
    tokenizer = Tokenizer.from_str(json.dumps(root))
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
                                  "<|end_header_id|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(["<tool_call>", "ab", "abc"])
    return json.loads(tokenizer.to_str())


def byte_level_variants(base: dict) -> dict[str, dict]:
    def split(expression: str) -> dict:
        return {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated",
             "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False}]}

    digits = {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}
    return {"gpt2": base, "smollm": {**base, "pre_tokenizer": digits},
            "llama3": {**base, "model": {**base["model"], "ignore_merges": True},
                       "pre_tokenizer": split(LLAMA3_SPLIT)},
            "qwen2": {**base, "pre_tokenizer": split(QWEN2_SPLIT), "normalizer": {"type": "NFC"}}}


def train_sentence_piece() -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(training_text()), model_writer=model, model_type="bpe",
        vocab_size=700, byte_fallback=True, character_coverage=0.999, split_digits=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1,
        allow_whitespace_only_pieces=True, control_symbols=["[INST]", "[/INST]"],
        user_defined_symbols=["ab\u2581c"], minloglevel=2)
    return model.getvalue()


def character_json(model: sentencepiece_model_pb2.ModelProto, metaspace: bool) -> dict:
    """The tokenizer.json that goes with a SentencePiece model: merges in order of their score."""
    vocab = {piece.piece: i for i, piece in enumerate(model.pieces)}
    merges = []
    for i, piece in enumerate(model.pieces):
        if piece.type != 1:
            continue
        for cut in range(1, len(piece.piece)):
            left, right = piece.piece[:cut], piece.piece[cut:]
            if left in vocab and right in vocab:
                merges.append((-piece.score, vocab[left], vocab[right], [left, right]))
    added = [{"id": i, "content": piece.piece, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True}
             for i, piece in enumerate(model.pieces) if piece.type in (2, 3) and i < 3]
    space = "\u2581"
    normalizer = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": space},
        {"type": "Replace", "pattern": {"String": " "}, "content": space}]}
    split = {"type": "Metaspace", "replacement": space, "prepend_scheme": "first", "split": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": None if metaspace else normalizer,
            "pre_tokenizer": split if metaspace else None, "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>",
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": True, "byte_fallback": True, "vocab": vocab,
                      "merges": [pair for *_, pair in sorted(merges)]}}


def write_gguf(path: str, model: sentencepiece_model_pb2.ModelProto) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([piece.piece.encode() for piece in model.pieces])
    writer.add_token_scores([piece.score for piece in model.pieces])
    writer.add_token_types([piece.type for piece in model.pieces])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def train(out: str) -> None:
    shutil.rmtree(out, ignore_errors=True)
    source = random.Random(SEED)
    for name, root in byte_level_variants(train_byte_level()).items():
        folder = os.path.join(out, name)
        os.makedirs(folder)
        path = os.path.join(folder, "tokenizer.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(root, file, ensure_ascii=False, separators=(",", ":"))
        write_strings(folder, json_encoder(path), strings(source, N_STRINGS, []))

    serialized = train_sentence_piece()
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(serialized)
    folder = os.path.join(out, "sentence_piece")
    os.makedirs(folder)
    path = os.path.join(folder, "tokenizer.model")
    with open(path, "wb") as file:
        file.write(serialized)
    encode = sentence_piece_encoder(path)
    write_strings(folder, encode, strings(source, 2 * N_STRINGS, []))
    folder = os.path.join(out, "sentence_piece_gguf")
    os.makedirs(folder)
    write_gguf(os.path.join(folder, "tokenizer.gguf"), model)
    write_strings(folder, encode, strings(source, N_STRINGS, []))
    for name, metaspace in (("characters", False), ("characters_metaspace", True)):
        folder = os.path.join(out, name)
        os.makedirs(folder)
        path = os.path.join(folder, "tokenizer.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(character_json(model, metaspace), file, ensure_ascii=False,
                      separators=(",", ":"))
        write_strings(folder, json_encoder(path), strings(source, N_STRINGS, []))


def encode(tokenizer: str, out: str, count: int, seed: int, text: list[str]) -> None:
    os.makedirs(out)
    is_json = tokenizer.endswith(".json")
    shutil.copy(tokenizer, os.path.join(out, "tokenizer.json" if is_json else "tokenizer.model"))
    encoder = json_encoder(tokenizer) if is_json else sentence_piece_encoder(tokenizer)
    write_strings(out, encoder, strings(random.Random(seed), count, text))


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("train")
    command.add_argument("out")
    command = commands.add_parser("encode")
    command.add_argument("tokenizer")
    command.add_argument("out")
    command.add_argument("--count", type=int, default=10000)
    command.add_argument("--seed", type=int, default=SEED)
    command.add_argument("--text", nargs="*", default=[])
    arguments = parser.parse_args()
    if arguments.command == "train":
        train(arguments.out)
    else:
        encode(arguments.tokenizer, arguments.out, arguments.count, arguments.seed, arguments.text)


if __name__ == "__main__":
    main()
