"""Real texts for comparisons, read from whatever JSON the user has. Never for committed files."""

import bz2
import gzip
import json
import lzma
from collections.abc import Iterator

TEXT_CHARACTERS_MIN = 100


def _open(path: str):
    for suffix, opener in ((".gz", gzip.open), (".bz2", bz2.open), (".xz", lzma.open)):
        if path.endswith(suffix):
            return opener(path, "rt", encoding="utf-8")
    return open(path, encoding="utf-8")


def _values(path: str) -> Iterator:
    with _open(path) as file:
        name = path.removesuffix(".gz").removesuffix(".bz2").removesuffix(".xz")
        if name.endswith(".jsonl"):
            yield from (json.loads(line) for line in file)
        elif name.endswith(".json"):
            yield json.load(file)
        else:
            yield from (line.rstrip("\n") for line in file)


def _strings(value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def read_strings(path: str) -> list[str]:
    """Every string value of a .json or .jsonl file, every line of any other, without repeats."""
    return list(dict.fromkeys(s for value in _values(path) for s in _strings(value) if s))


def read_documents(path: str) -> list[tuple[str, str]]:
    """The long strings of a file as (title, text); the title is the text's beginning."""
    return [(text[:40].split(".")[0], text) for text in read_strings(path)
            if len(text) >= TEXT_CHARACTERS_MIN]
