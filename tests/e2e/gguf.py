#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# gguf.py - GGUF files against the checkpoints that they are made of.
#
# Writes the fixtures' weights as GGUF files by the public layout, exactly (F32, F16, BF16), which must
# give the fixtures' golden logits; and tiny made-up models in each quantised type, whose golden logits
# reference.py computes in float64 from the values that the blocks mean. golden.py serves such a
# file, and has its tokeniser cut a text as the fixture's does.
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
from functools import partial

import reference

U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5


def half(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


# ---- types: blocks of n numbers as bytes, drawn at random, and what they mean by the definition


def draw_scale(r, spread):
    return half(spread * r.uniform(0.5, 1.5) * r.choice((1, -1)))


def nibbles(low, high):
    return bytes(a | b << 4 for a, b in zip(low, high))


def q8_0(r, spread):
    d, q = draw_scale(r, spread / 73), [r.randrange(-128, 128) for _ in range(32)]
    return struct.pack("<e32b", d, *q), [d * v for v in q]


def legacy(r, spread, bits, minimum):
    """32 numbers with a scale, and a minimum or numbers on both sides of 0; fifth bits are apart."""
    top = 1 << bits
    d, q = draw_scale(r, spread / (0.29 * top)), [r.randrange(top) for _ in range(32)]
    m = half(-0.47 * top * d)
    data = struct.pack("<ee", d, m) if minimum else struct.pack("<e", d)
    if bits == 5:
        data += struct.pack("<I", sum((v >> 4) << i for i, v in enumerate(q)))
    data += nibbles([v & 15 for v in q[:16]], [v & 15 for v in q[16:]])
    return data, [single(d * v + m) if minimum else d * (v - top // 2) for v in q]


def k_scales(s, m):
    """Eight scales and eight minimums of 6 bits in 12 bytes."""
    return bytes([s[j] | (s[j + 4] >> 4) << 6 for j in range(4)] + [m[j] | (m[j + 4] >> 4) << 6 for j in range(4)] +
                 [(s[j] & 15) | (m[j] & 15) << 4 for j in range(4, 8)])


def k45(r, spread, bits):
    top = 1 << bits
    s, q = [r.randrange(64) for _ in range(8)], [r.randrange(top) for _ in range(256)]
    m = [min(63, v + r.randrange(3)) for v in s]
    d = draw_scale(r, spread / (0.29 * top * 36))
    dmin = half(d * (top - 1) / 2.1)
    data = struct.pack("<ee", d, dmin) + k_scales(s, m)
    if bits == 5:
        data += bytes(sum((q[32 * j + i] >> 4) << j for j in range(8)) for i in range(32))
    for j in range(0, 8, 2):
        data += nibbles([v & 15 for v in q[32 * j:32 * j + 32]], [v & 15 for v in q[32 * j + 32:32 * j + 64]])
    return data, [single(single(d * s[i // 32]) * q[i] - single(dmin * m[i // 32])) for i in range(256)]


def q6_k(r, spread):
    s, q = [r.randrange(-128, 128) for _ in range(16)], [r.randrange(64) for _ in range(256)]
    d = draw_scale(r, spread / (18.5 * 73))
    low, high = bytearray(128), bytearray(64)
    for i, v in enumerate(q):
        n, j, l = i // 128, i % 128 // 32, i % 32
        low[64 * n + 32 * (j % 2) + l] |= (v & 15) << 4 * (j // 2)
        high[32 * n + l] |= (v >> 4) << 2 * j
    return bytes(low + high) + struct.pack("<16be", *s, d), [d * s[i // 16] * (v - 32) for i, v in enumerate(q)]


def f16(r, spread):
    x = half(r.uniform(-1, 1) * spread * 1.7)
    return struct.pack("<e", x), [x]


# Number of the type, numbers in a block, how one is drawn.
TYPES = {
    "f16": (1, 1, f16), "q8_0": (8, 32, q8_0), "q6_k": (14, 256, q6_k),
    **{name: (number, 32, partial(legacy, bits=bits, minimum=minimum)) for name, number, bits, minimum in (
        ("q4_0", 2, 4, False), ("q4_1", 3, 4, True), ("q5_0", 6, 5, False), ("q5_1", 7, 5, True))},
    **{name: (number, 256, partial(k45, bits=bits)) for name, number, bits in (("q4_k", 12, 4), ("q5_k", 13, 5))},
}
# Files mix types, also in what one product reads: part of a tensor's name -> type, then that of the rest.
MIXED = {"q4_k_m": ({"embed": "q6_k", "v_proj": "q6_k", "down": "q6_k"}, "q4_k"),
         "q4_0_mixed": ({"k_proj": "q5_1", "up_proj": "q8_0"}, "q4_0")}
PLAIN = {"f32": (0, lambda flat: struct.pack("<%df" % len(flat), *flat)),
         "f16": (1, lambda flat: struct.pack("<%de" % len(flat), *flat)),
         "bf16": (30, lambda flat: b"".join(struct.pack("<f", x)[2:] for x in flat))}


# ---- files


def text(s):
    s = s.encode()
    return struct.pack("<Q", len(s)) + s


def value(v):
    if isinstance(v, bool):
        return struct.pack("<I?", BOOL, v)
    if isinstance(v, int):
        return struct.pack("<II", U32, v)
    if isinstance(v, float):
        return struct.pack("<If", F32, v)
    if isinstance(v, str):
        return struct.pack("<I", STRING) + text(v)
    if isinstance(v[0], str):
        return struct.pack("<IIQ", ARRAY, STRING, len(v)) + b"".join(map(text, v))
    return struct.pack("<IIQ%d%s" % (len(v), "f" if isinstance(v[0], float) else "i"), ARRAY,
                       F32 if isinstance(v[0], float) else I32, len(v), *v)


def save(path, keys, tensors):
    """tensors: name -> (number of the type, shape as checkpoints have it, bytes)"""
    head, data = b"", b""
    for name, (kind, shape, part) in tensors.items():
        head += text(name) + struct.pack("<I%dQIQ" % len(shape), len(shape), *reversed(shape), kind, len(data))
        data += part + bytes(-len(part) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(
        text(k) + value(v) for k, v in keys.items()) + head
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


def save_parts(path, keys, tensors, count):
    """As gguf-split does it: metadata in the first file alone. @path is the model's without ".gguf"."""
    names = list(tensors)
    for i in range(count):
        part = {name: tensors[name] for name in names[i * len(names) // count:(i + 1) * len(names) // count]}
        save(f"{path}-{i + 1:05}-of-{count:05}.gguf", {**(keys if i == 0 else {}), "split.no": i, "split.count": count,
                                                       "split.tensors.count": len(names)}, part)


NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
OF_LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
            "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
            "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
            "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
            "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
            "experts.gate_proj": "ffn_gate_exps", "experts.up_proj": "ffn_up_exps", "experts.down_proj": "ffn_down_exps"}
ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe",
                 "gemma2": "gemma2", "gemma3_text": "gemma3", "glm4": "glm4"}
# Where names mean something else.
GEMMA = {"pre_feedforward_layernorm": "ffn_norm", "post_attention_layernorm": "post_attention_norm",
         "post_feedforward_layernorm": "post_ffw_norm"}
OF_KIND = {"gemma2": GEMMA, "gemma3_text": GEMMA,
           "glm4": {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm",
                    "mlp.gate_up_proj": "ffn_up"}}


def their_name(name, kind="llama"):
    stem, suffix = name.rsplit(".", 1)
    if stem in NAMES:
        return NAMES[stem] + "." + suffix
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{OF_KIND.get(kind, {}).get(rest) or OF_LAYER[rest]}.{suffix}"


def metadata(c):
    a = ARCHITECTURES[c["model_type"]]
    keys = {"general.architecture": a, "general.alignment": 32}
    names = {"num_hidden_layers": "block_count", "max_position_embeddings": "context_length",
             "hidden_size": "embedding_length",
             "intermediate_size": "feed_forward_length", "num_attention_heads": "attention.head_count",
             "num_key_value_heads": "attention.head_count_kv", "rms_norm_eps": "attention.layer_norm_rms_epsilon",
             "head_dim": "attention.key_length", "num_experts": "expert_count",
             "num_local_experts": "expert_count", "num_experts_per_tok": "expert_used_count",
             "moe_intermediate_size": "expert_feed_forward_length",
             "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
             "sliding_window": "attention.sliding_window", "attn_logit_softcapping": "attn_logit_softcapping",
             "final_logit_softcapping": "final_logit_softcapping", "rope_local_base_freq": "rope.freq_base_swa"}
    for ours, theirs in names.items():
        if c.get(ours) is not None:
            keys[f"{a}.{theirs}"] = c[ours]
    if c["model_type"] == "glm4":
        keys["glm4.rope.dimension_count"] = c["head_dim"] // 2
    keys[f"{a}.rope.freq_base"] = float(c.get("rope_theta") or c.get("rope_parameters", {}).get("rope_theta", 10000))
    return keys


def permute(shape, flat, heads, width=1):
    """Rows of queries and keys as files of llama have them: neighbours rotate. An element is @width items."""
    d, cols = shape[0] // heads, width * (shape[1] if len(shape) > 1 else 1)
    order = [h * d + half * (d // 2) + i for h in range(heads) for i in range(d // 2) for half in (0, 1)]
    parts = [flat[r * cols:(r + 1) * cols] for r in order]
    return b"".join(parts) if isinstance(flat, bytes) else [x for part in parts for x in part]


def heads_of(c, name):
    if c["model_type"] != "llama":
        return 0
    if ".self_attn.q_proj." in name:
        return c["num_attention_heads"]
    return c["num_key_value_heads"] if ".self_attn.k_proj." in name else 0


def llama3_factors(c):
    s = c.get("rope_scaling")
    if not s or s.get("rope_type") != "llama3":
        return None
    d = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    scaling = dict(type="llama3", factor=s["factor"], low=s["low_freq_factor"], high=s["high_freq_factor"],
                   original=s["original_max_position_embeddings"])
    slow, _ = reference.speeds(d // 2, c["rope_theta"], scaling, 0)
    return [c["rope_theta"] ** (-2 * i / d) / f for i, f in enumerate(slow)]


# ---- a fixture, exactly


def read_safetensors(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(n)), f.read()
    for name, t in header.items():
        if name != "__metadata__":
            assert t["dtype"] == "BF16"
            part = data[slice(*t["data_offsets"])]
            yield name, t["shape"], list(struct.unpack("<%df" % (len(part) // 2),
                                                       b"".join(b"\0\0" + part[i:i + 2] for i in range(0, len(part), 2))))


def tokenizer_keys(directory):
    with open(directory + "/tokenizer.json") as f:
        t = json.load(f)
    with open(directory + "/tokenizer_config.json") as f:
        c = json.load(f)
    vocab = {i: (s, 1) for s, i in t["model"]["vocab"].items()}
    vocab.update({a["id"]: (a["content"], 3 if a["special"] else 4) for a in t["added_tokens"]})
    ids = {s: i for i, (s, _) in vocab.items()}
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2",
            "tokenizer.ggml.tokens": [vocab[i][0] for i in range(len(vocab))],
            "tokenizer.ggml.token_type": [vocab[i][1] for i in range(len(vocab))],
            "tokenizer.ggml.merges": [m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]],
            "tokenizer.ggml.eos_token_id": ids[c["eos_token"]], "tokenizer.ggml.padding_token_id": ids[c["pad_token"]],
            "tokenizer.ggml.add_bos_token": False, "tokenizer.chat_template": c["chat_template"]}


def as_converted(c, name, flat):
    """What gemma's converter does, and what its files cannot say: another root than that of a head's size."""
    if "gemma" not in c["model_type"]:
        return flat
    if name.endswith("norm.weight"):
        return [1 + x for x in flat]
    # Queries that are normalised are of a size of their own.
    factor = math.sqrt(c["head_dim"] / c["query_pre_attn_scalar"])
    return [factor * x for x in flat] if ".q_proj." in name and factor != 1 else flat


def from_fixture(directory, kind, path, files=0):
    """@files: in so many, whose names begin with @path"""
    with open(directory + "/config.json") as f:
        c = json.load(f)
    tensors, experts = {}, {}
    for file in sorted(os.listdir(directory)):
        if not file.startswith("model") or not file.endswith(".safetensors"):
            continue
        for name, shape, flat in read_safetensors(directory + "/" + file):
            if heads_of(c, name):
                flat = permute(shape, flat, heads_of(c, name))
            flat = as_converted(c, name, flat)
            if ".experts." in name:
                stem, rest = name.split(".mlp.experts.")
                number, what = rest.split(".", 1)
                experts.setdefault(stem + ".experts." + what, {})[int(number)] = (shape, flat)
            else:
                number, pack = PLAIN["f32" if len(shape) == 1 else kind]
                tensors[their_name(name, c["model_type"])] = (number, shape[1:] if shape[0] == 1 else shape, pack(flat))
    for name, parts in experts.items():
        number, pack = PLAIN[kind]
        tensors[their_name(name)] = (number, [len(parts)] + parts[0][0],
                                     b"".join(pack(parts[i][1]) for i in range(len(parts))))
    factors = llama3_factors(c)
    if factors:
        tensors["rope_freqs.weight"] = (0, [len(factors)], PLAIN["f32"][1](factors))
    keys = {**metadata(c), **tokenizer_keys(directory)}
    if files:
        save_parts(path, keys, tensors, files)
    else:
        save(path, keys, tensors)


# ---- made-up weights in a type


def type_of(kind, name):
    parts, rest = MIXED.get(kind, ({}, kind))
    return TYPES[next((parts[part] for part in parts if part in name), rest)]


class Quantised(reference.Weights):
    """Weights that the blocks of a type mean; vectors are float32."""

    def __init__(self, seed, kind):
        super().__init__(seed)
        self.kind, self.blocks = kind, {}

    def __call__(self, name, *shape, mean=0.0, spread=None):
        if name not in self.tensors and len(shape) > 1:
            _, size, draw = type_of(self.kind, name)
            data, flat = b"", []
            for _ in range(math.prod(shape) // size):
                block, values = draw(self.random, 1.7 / math.sqrt(3 * shape[-1]))
                data += block
                flat += values
            self.blocks[name] = data
            self.tensors[name] = (shape, flat)
        return super().__call__(name, *shape, mean=mean, spread=spread)


def make(directory, family, kind, seed):
    size = 64 if type_of(kind, "")[1] <= 32 else 256
    c = reference.sizes(family, size, size, 1, 4, 40, num_key_value_heads=2, head_dim=size // 4, rope_theta=500.0,
                        rms_norm_eps=1e-6, max_position_embeddings=64)
    more = {}
    if family == "glm4":
        c.update(attention_bias=True)
        more = dict(norms_after=True, fused=True, neighbours=True, rotated=size // 8, qkv_bias=True)
    model = reference.Model(dict(hidden=size, inner=size, layers=1, heads=4, kv=2, d=size // 4, vocab=40, theta=500,
                                 qk_norm=family.startswith("qwen3"), **more), seed)
    parts = ()
    if family == "qwen3_moe":
        parts = "gate_proj", "up_proj", "down_proj"
        c.update(num_experts=3, num_experts_per_tok=2, moe_intermediate_size=size)
        model.c.update(experts=3, top_k=2, expert_inner=size, normalise=True, sparse=lambda layer: True)
    model.w = Quantised(seed, kind)
    reference.save_model_golden(directory, model, seed)
    tensors = {}
    for part in parts:
        names = [f"model.layers.0.mlp.experts.{i}.{part}.weight" for i in range(3)]
        tensors[f"blk.0.{OF_LAYER['experts.' + part]}.weight"] = (type_of(kind, names[0])[0], [3, size, size], b"".join(
            model.w.blocks[name] for name in names))
        for name in names:
            del model.w.tensors[name]
    for name, (shape, flat) in model.w.tensors.items():
        if len(shape) == 1:
            tensors[their_name(name, family)] = (0, shape, PLAIN["f32"][1](flat))
            continue
        data, width = model.w.blocks[name], len(model.w.blocks[name]) // shape[0]
        if heads_of(c, name):
            data = permute(shape[:1], data, heads_of(c, name), width)
        tensors[their_name(name, family)] = (type_of(kind, name)[0], shape, data)
    save(directory + "/model.gguf", metadata(c), tensors)


FIXTURES = [("llama2", "f32"), ("llama31", "bf16"), ("qwen2-sharded", "bf16"), ("qwen3", "f32"), ("qwen2moe", "bf16"),
            ("qwen3moe", "f32"), ("gemma2", "f32"), ("gemma3", "f32")]
IN_PARTS = "qwen2-sharded"


def run(*args):
    done = subprocess.run(args, capture_output=True, text=True, env={**os.environ, "TXDA_BACKEND": "cmodel"})
    return done.returncode, (done.stdout + done.stderr).strip().splitlines() or [""]


def golden_runs(verify, fixtures):
    """Label, exit status and last words of each comparison."""
    made_up = [(("llama", "qwen3")[i % 2], kind) for i, kind in enumerate(TYPES)]
    made_up += [("glm4", "f16"), ("glm4", "q4_k_m")]
    made_up += [("qwen3_moe", kind) for kind in ("q4_0", "q8_0", *MIXED)] + [("qwen3", kind) for kind in MIXED]
    for seed, (what, kind) in enumerate(FIXTURES + made_up):
        with tempfile.TemporaryDirectory() as directory:
            golden = directory + "/golden.safetensors"
            if kind in PLAIN and what in dict(FIXTURES):
                golden = f"{fixtures}/{what}/golden.safetensors"
                split = what == IN_PARTS
                from_fixture(f"{fixtures}/{what}", kind, directory + ("/model" if split else "/model.gguf"), 3
                             if split else 0)
            else:
                make(directory, what, kind, 5 + seed)
            # A file, and a directory with it.
            file = "/model-00002-of-00003.gguf" if what == IN_PARTS else "/model.gguf"
            for path, *options in ((directory + file, "--precise"), (directory, "--precise", "--tp", "2")):
                code, words = run(verify, path, golden, *options)
                yield f"{what}, {kind}, {' '.join(options)}", code, words[-1]
            # Where rounding can choose another expert no row is sure.
            if kind not in PLAIN and what != "qwen3_moe":
                code, words = run(verify, directory, golden)
                yield f"{what}, {kind}", code, words[-1]


if __name__ == "__main__":
    failed = 0
    for label, code, words in golden_runs(os.environ["TXDA_VERIFY"], os.environ["FIXTURES"]):
        failed += bool(code)
        print(f"{label}: {words}")
    sys.exit(failed > 0)
