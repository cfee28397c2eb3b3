#!/usr/bin/env python3
"""Writes tests/golden/quantized.json: random blocks of each GGUF type and the values that PyPI gguf
reads from them, as the bits of float32.

    make_quantized_golden.py OUT.json [--seed N]
"""

import argparse
import json

import gguf
import numpy as np

BLOCKS = {32: 3, 256: 2}
# Bytes of a block that are scales in half precision: random bits there would often be no number.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def random_blocks(source: np.random.Generator, name: str, count: int) -> np.ndarray:
    _, n_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    blocks = source.integers(0, 256, (count, n_bytes), dtype=np.uint8)
    for place in HALVES[name]:
        scales = (source.standard_normal(count) * 0.05).astype("<f2")
        blocks[:, place:place + 2] = scales.view(np.uint8).reshape(count, 2)
    return blocks


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=20240701)
    arguments = parser.parse_args()

    source = np.random.default_rng(arguments.seed)
    types = []
    for name in HALVES:
        kind = gguf.GGMLQuantizationType[name]
        elements, _ = gguf.GGML_QUANT_SIZES[kind]
        blocks = random_blocks(source, name, BLOCKS[elements])
        values = gguf.quants.dequantize(blocks, kind).astype("<f4")
        types.append({"name": name, "type": int(kind), "blocks": blocks.tobytes().hex(),
                      "values": values.tobytes().hex()})
    with open(arguments.out, "w", encoding="utf-8") as out:
        out.write("[\n" + ",\n".join(json.dumps(t) for t in types) + "\n]\n")


if __name__ == "__main__":
    main()
