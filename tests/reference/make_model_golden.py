#!/usr/bin/env python3
"""Writes tests/golden/models/: tiny models with random weights, and what PyPI transformers computes
from them in fp32.

    make_model_golden.py OUT_FOLDER

One folder per model: config.json with the weights in safetensors (in one file or sharded), or
model.gguf with a different quantised type for each matrix; logits.json has the prompts.
"""

import argparse
import json
import os
import random
import shutil

import gguf
import numpy as np
import torch
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM)

SEED = 20240702
N_PROMPTS = 6
N_CONTINUATION = 24
COMMON = {"vocab_size": 96, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2,
          "num_attention_heads": 3, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
          "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


def randomise(model: torch.nn.Module) -> None:
    """Logits far apart, so that greedy continuations vary and are stable."""
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
        elif name.endswith("bias"):
            torch.nn.init.normal_(weight, std=0.5)
        elif "embed" in name or "lm_head" in name:
            torch.nn.init.normal_(weight, std=1.0)
        else:
            torch.nn.init.normal_(weight, std=1.5 / weight.shape[1] ** 0.5)


def reference(model: torch.nn.Module, vocabulary_size: int) -> list[dict]:
    model = model.to(torch.float32).eval()
    source = random.Random(SEED)
    prompts = []
    for length in [1, 5, 17, 33, 48, 60][:N_PROMPTS]:
        ids = [source.randrange(3, vocabulary_size) for _ in range(length)]
        with torch.inference_mode():
            generated = model.generate(
                torch.tensor([ids]), attention_mask=torch.ones(1, length, dtype=torch.long),
                do_sample=False, max_new_tokens=N_CONTINUATION, eos_token_id=None, pad_token_id=0,
                return_dict_in_generate=True, output_logits=True)
        steps = [step[0] for step in generated.logits]
        margins = []
        for step in steps:
            best, second = torch.topk(step, 2).values.tolist()
            margins.append(round(best - second, 5))
        prompts.append({"ids": ids, "logits": [round(x, 5) for x in steps[0].tolist()],
                        "continuation": generated.sequences[0, length:].tolist(),
                        "margins": margins})
    return prompts


def write_golden(folder: str, model: torch.nn.Module, vocabulary_size: int) -> None:
    prompts = reference(model, vocabulary_size)
    print(folder, "least margin", min(m for p in prompts for m in p["margins"]))
    with open(os.path.join(folder, "logits.json"), "w", encoding="utf-8") as out:
        out.write("[\n" + ",\n".join(json.dumps(p, separators=(",", ":")) for p in prompts) + "\n]\n")


def write_safetensors(folder: str, model: torch.nn.Module, dtype: torch.dtype, shard: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    randomise(model)
    model = model.to(dtype)
    model.save_pretrained(folder, max_shard_size=shard)
    os.remove(os.path.join(folder, "generation_config.json"))
    # Read back: a model that was converted in memory has converted RoPE frequencies too.
    model = model.__class__.from_pretrained(folder, dtype=torch.float32)
    write_golden(folder, model, model.config.vocab_size)


def rotate_as_halves(weight: np.ndarray, n_heads: int) -> np.ndarray:
    pairs = weight.reshape(n_heads, weight.shape[0] // n_heads // 2, 2, weight.shape[1])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def write_gguf(folder: str) -> None:
    """A model whose matrices are random blocks: their values are what PyPI gguf reads."""
    import make_quantized_golden as quantized

    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    width, head_dim, n_heads, n_kv_heads, inner, vocabulary = 256, 16, 2, 1, 64, 64
    config = LlamaConfig(**(COMMON | {
        "vocab_size": vocabulary, "hidden_size": width, "intermediate_size": inner,
        "num_hidden_layers": 1, "num_attention_heads": n_heads, "num_key_value_heads": n_kv_heads,
        "head_dim": head_dim}), rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    model = LlamaForCausalLM(config)
    randomise(model)
    source = np.random.default_rng(SEED)
    writer = gguf.GGUFWriter(os.path.join(folder, "model.gguf"), "llama")
    writer.add_block_count(1)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(n_heads)
    writer.add_head_count_kv(n_kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_freq_base(1e4)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    matrices = {"model.embed_tokens": ("token_embd", "Q6_K"),
                "model.layers.0.self_attn.q_proj": ("blk.0.attn_q", "Q4_K"),
                "model.layers.0.self_attn.k_proj": ("blk.0.attn_k", "Q5_K"),
                "model.layers.0.self_attn.v_proj": ("blk.0.attn_v", "Q3_K"),
                "model.layers.0.self_attn.o_proj": ("blk.0.attn_output", "Q5_0"),
                "model.layers.0.mlp.gate_proj": ("blk.0.ffn_gate", "Q2_K"),
                "model.layers.0.mlp.up_proj": ("blk.0.ffn_up", "Q6_K"),
                "model.layers.0.mlp.down_proj": ("blk.0.ffn_down", "Q5_1"),
                "lm_head": ("output", "Q8_0")}
    scale = {"Q6_K": 2e-4, "Q5_K": 5e-4, "Q4_K": 5e-4, "Q3_K": 2e-3, "Q2_K": 5e-3, "Q5_0": 2e-2,
             "Q5_1": 2e-2, "Q8_0": 5e-3}
    state = model.state_dict()
    for name, (ours, kind_name) in matrices.items():
        weight = state[name + ".weight"]
        kind = gguf.GGMLQuantizationType[kind_name]
        elements, _ = gguf.GGML_QUANT_SIZES[kind]
        blocks = quantized.random_blocks(source, kind_name, weight.numel() // elements)
        for place in quantized.HALVES[kind_name]:
            halves = (scale[kind_name] * source.uniform(0.5, 1.0, len(blocks))).astype("<f2")
            if place > 0 and kind_name in ("Q4_K", "Q5_K", "Q2_K"):
                halves = (halves * (16 if kind_name != "Q2_K" else 1.5)).astype("<f2")
            if place > 0 and kind_name == "Q5_1":
                halves = (-15.5 * halves).astype("<f2")
            blocks[:, place:place + 2] = halves.view(np.uint8).reshape(-1, 2)
        values = gguf.quants.dequantize(blocks, kind).reshape(weight.shape)
        print(f"  {ours}: {kind_name}, standard deviation {values.std():.3f}")
        if ours.endswith("attn_q") or ours.endswith("attn_k"):
            values = rotate_as_halves(values, n_heads if ours.endswith("q") else n_kv_heads)
        with torch.no_grad():
            weight.copy_(torch.from_numpy(values.copy()))
        writer.add_tensor(ours + ".weight", blocks.reshape(weight.shape[0], -1), raw_dtype=kind)
    for name, ours in {"model.layers.0.input_layernorm": "blk.0.attn_norm",
                       "model.layers.0.post_attention_layernorm": "blk.0.ffn_norm",
                       "model.norm": "output_norm"}.items():
        writer.add_tensor(ours + ".weight", state[name + ".weight"].numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    write_golden(folder, model, vocabulary)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    arguments = parser.parse_args()
    torch.manual_seed(SEED)

    def path(name: str) -> str:
        return os.path.join(arguments.out, name)

    write_safetensors(path("llama_grouped"), LlamaForCausalLM(LlamaConfig(
        **COMMON, num_key_value_heads=1, rope_parameters=LLAMA3_ROPE)), torch.float32, "90KB")
    write_safetensors(path("llama_multi_head"), LlamaForCausalLM(LlamaConfig(
        **COMMON, num_key_value_heads=3, tie_word_embeddings=True,
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4})),
        torch.bfloat16, "1GB")
    write_safetensors(path("mistral"), MistralForCausalLM(MistralConfig(
        **COMMON, num_key_value_heads=1, sliding_window=96, head_dim=32,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6})), torch.float16, "1GB")
    write_safetensors(path("qwen2"), Qwen2ForCausalLM(Qwen2Config(
        **COMMON, num_key_value_heads=1, use_sliding_window=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6})), torch.float16, "1GB")
    write_gguf(path("quantized"))


if __name__ == "__main__":
    main()
