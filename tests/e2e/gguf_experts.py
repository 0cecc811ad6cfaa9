#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# gguf_experts.py - gpt-oss, GLM-4.5 and DeepSeek-V3 as GGUF files against the checkpoints that they
# are made of: experts stacked, MXFP4 in its own blocks, the layer that predicts a further token,
# latent attention in one matrix for all heads and in two for each.
import json
import os
import struct
import sys
import tempfile

import gguf
from daemon import read_tensors

MXFP4 = 39
OF_LAYER = {**gguf.OF_LAYER, "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
            "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
            "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b",
            "post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp", "eh_proj": "nextn.eh_proj",
            "enorm": "nextn.enorm", "hnorm": "nextn.hnorm", "embed_tokens": "nextn.embed_tokens",
            "shared_head.head": "nextn.shared_head_head", "shared_head.norm": "nextn.shared_head_norm",
            **{f"mlp.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")}}
# Names without a suffix, which files give one.
BARE = {"self_attn.sinks": "attn_sinks.weight", "mlp.gate.e_score_correction_bias": "exp_probs_b.bias"}


def single(part):
    """bf16 as float32"""
    return b"".join(b"\0\0" + part[i:i + 2] for i in range(0, len(part), 2))


def plain(shape, part):
    """Vectors are float32, matrices stay as they are."""
    return (0, shape, single(part)) if len(shape) == 1 else (30, shape, part)


def mx4_blocks(blocks, scales, rows):
    """Of each block of 32 the first half of nibbles are the low ones, behind the scale."""
    out, per_row = b"", len(scales) // rows
    for i in range(len(scales)):
        q = [n for b in blocks[16 * i:16 * i + 16] for n in (b & 15, b >> 4)]
        out += bytes([scales[i]]) + gguf.nibbles(q[:16], q[16:])
    return [out[17 * per_row * r:17 * per_row * (r + 1)] for r in range(rows)]


def gpt_oss_experts(tensors):
    """Gates and ups alternate in the checkpoint, and are tensors of their own in files."""
    out = {}
    for name, (_, shape, part) in tensors.items():
        if ".experts." not in name:
            continue
        stem, what = name.split("mlp.experts.")
        stem = stem.replace("model.layers.", "blk.")
        n = shape[0]
        both = what.startswith("gate_up")
        if what.endswith("_bias"):
            values = struct.unpack("<%df" % (n * shape[1]), single(part))
            for label, rows in ((("gate", values[0::2]), ("up", values[1::2])) if both else (("down", values),)):
                out[f"{stem}ffn_{label}_exps.bias"] = (0, [n, len(rows) // n], struct.pack("<%df" % len(rows), *rows))
        elif what.endswith("_blocks"):
            rows = mx4_blocks(part, tensors[name[:-6] + "scales"][2], n * shape[1])
            for label, mine in ((("gate", rows[0::2]), ("up", rows[1::2])) if both else (("down", rows),)):
                out[f"{stem}ffn_{label}_exps.weight"] = (MXFP4, [n, len(mine) // n, 32 * shape[2]], b"".join(mine))
    return out


def one_by_one_experts(tensors):
    stacks = {}
    for name, (_, shape, part) in tensors.items():
        if ".mlp.experts." in name:
            layer, rest = name.split(".mlp.experts.")
            number, what, _ = rest.split(".")
            label = f"{layer.replace('model.layers', 'blk')}.ffn_{what.removesuffix('_proj')}_exps.weight"
            stacks.setdefault(label, {})[int(number)] = (shape, part)
    return {name: (30, [len(stack)] + stack[0][0], b"".join(stack[i][1] for i in range(len(stack))))
            for name, stack in stacks.items()}


def latent_heads(c, stem, part):
    """kv_b as newer files have it: each head's keys transposed, and its values."""
    nope, v, latent, heads = (c[k] for k in ("qk_nope_head_dim", "v_head_dim", "kv_lora_rank", "num_attention_heads"))
    row = lambda h, r: part[2 * latent * (h * (nope + v) + r):2 * latent * (h * (nope + v) + r + 1)]
    keys = b"".join(row(h, r)[2 * col:2 * col + 2] for h in range(heads) for col in range(latent) for r in range(nope))
    values = b"".join(row(h, nope + r) for h in range(heads) for r in range(v))
    return {stem + "attn_k_b.weight": (30, [heads, latent, nope], keys),
            stem + "attn_v_b.weight": (30, [heads, v, latent], values)}


def keys_of(c, by_heads):
    a = {"gpt_oss": "gpt-oss", "glm4_moe": "glm4moe", "deepseek_v3": "deepseek2"}[c["model_type"]]
    names = {"max_position_embeddings": "context_length", "hidden_size": "embedding_length",
             "intermediate_size": "feed_forward_length", "num_attention_heads": "attention.head_count",
             "num_key_value_heads": "attention.head_count_kv", "head_dim": "attention.key_length",
             "num_local_experts": "expert_count", "n_routed_experts": "expert_count",
             "num_experts_per_tok": "expert_used_count", "moe_intermediate_size": "expert_feed_forward_length",
             "n_shared_experts": "expert_shared_count", "first_k_dense_replace": "leading_dense_block_count",
             "n_group": "expert_group_count", "topk_group": "expert_group_used_count",
             "norm_topk_prob": "expert_weights_norm", "sliding_window": "attention.sliding_window"}
    keys = {f"{a}.{theirs}": c[ours] for ours, theirs in names.items() if ours in c}
    keys.update({"general.architecture": a, f"{a}.attention.layer_norm_rms_epsilon": c["rms_norm_eps"],
                 f"{a}.rope.freq_base": float(c["rope_theta"]), f"{a}.block_count": c["num_hidden_layers"]})
    if a == "gpt-oss":
        keys.update({f"{a}.expert_feed_forward_length": c["intermediate_size"], f"{a}.rope.scaling.type": "yarn",
                     f"{a}.rope.scaling.factor": float(c["rope_scaling"]["factor"]),
                     f"{a}.rope.scaling.original_context_length": c["rope_scaling"]["original_max_position_embeddings"]})
        return keys
    keys.update({f"{a}.expert_gating_func": 2, f"{a}.expert_weights_scale": float(c["routed_scaling_factor"])})
    if a == "glm4moe":
        keys.update({f"{a}.block_count": c["num_hidden_layers"] + c["num_nextn_predict_layers"],
                     f"{a}.nextn_predict_layers": c["num_nextn_predict_layers"],
                     f"{a}.rope.dimension_count": int(c["head_dim"] * c["partial_rotary_factor"])})
        return keys
    length, cached = c["qk_nope_head_dim"] + c["qk_rope_head_dim"], c["kv_lora_rank"] + c["qk_rope_head_dim"]
    keys.update({f"{a}.attention.q_lora_rank": c["q_lora_rank"], f"{a}.attention.kv_lora_rank": c["kv_lora_rank"],
                 f"{a}.rope.dimension_count": c["qk_rope_head_dim"], f"{a}.attention.key_length": length,
                 f"{a}.attention.value_length": c["v_head_dim"]})
    if by_heads:
        keys.update({f"{a}.attention.head_count_kv": 1, f"{a}.attention.key_length": cached,
                     f"{a}.attention.value_length": c["kv_lora_rank"], f"{a}.attention.key_length_mla": length,
                     f"{a}.attention.value_length_mla": c["v_head_dim"]})
    return keys


def convert(directory, path, by_heads):
    with open(directory + "/config.json") as f:
        c = json.load(f)
    tensors = read_tensors(directory + "/model.safetensors")[1]
    oss = c["model_type"] == "gpt_oss"
    out = gpt_oss_experts(tensors) if oss else one_by_one_experts(tensors)
    for name, (_, shape, part) in tensors.items():
        if ".experts." in name or (not oss and c["model_type"] == "deepseek_v3" and ".layers.%d." % c["num_hidden_layers"] in name):
            continue
        stem, _, suffix = name.rpartition(".")
        if stem in gguf.NAMES:
            out[f"{gguf.NAMES[stem]}.{suffix}"] = plain(shape, part)
            continue
        _, _, layer, rest = name.split(".", 3)
        if rest in BARE:
            out[f"blk.{layer}.{BARE[rest]}"] = plain(shape, part)
        elif by_heads and "kv_b_proj" in rest:
            out.update(latent_heads(c, f"blk.{layer}.", part))
        else:
            rest = rest.rpartition(".")[0]
            label = "ffn_norm" if rest == "post_attention_layernorm" and c["model_type"] == "deepseek_v3" else OF_LAYER[rest]
            out[f"blk.{layer}.{label}.{suffix}"] = plain(shape, part)
    gguf.save(path, {**keys_of(c, by_heads), **gguf.tokenizer_keys(directory)}, out)


RUNS = [("gptoss", False, [[], ["--tp", "2"]]), ("glm4moe-mtp", False, [[], ["--tp", "2"], ["--mtp"]]),
        ("deepseek3", False, [[], ["--tp", "2"]]), ("deepseek3", True, [[], ["--tp", "2"], ["--tp", "4"]])]


def main():
    verify, fixtures = os.environ["TXDA_VERIFY"], os.environ["FIXTURES"]
    passed = failed = 0
    for name, by_heads, options in RUNS:
        with tempfile.TemporaryDirectory() as directory:
            convert(f"{fixtures}/{name}", directory + "/model.gguf", by_heads)
            for more in options:
                code, words = gguf.run(verify, directory, f"{fixtures}/{name}/golden.safetensors", "--precise", *more)
                passed, failed = passed + (not code), failed + bool(code)
                print(f"{name}{', by heads' if by_heads else ''} {' '.join(more)}: {words[-1]}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
