#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# glm4v_moe.py TXDA-VERIFY GLM4V - a GLM-4.5V of two parts that are proven alone: the tower of the golden GLM-4V, with
# its pictures, embeddings and positions, before a made-up text model with experts, as reference.py computes it.
import json
import os
import struct
import subprocess
import sys
import tempfile

import reference

GREEDY = 4
SECTIONS = (2, 3, 3)  # pairs that turn by time, row, column
TEXT = dict(hidden=64, inner=48, layers=3, heads=4, kv=2, d=32, vocab=528, rotated=16, eps=1e-5, qkv_bias=True, experts=8,
            top_k=2, expert_inner=24, sigmoid=True, normalise=True, scale=1.5, shared=24, sparse=lambda layer: layer >= 1)
CONFIG = {"model_type": "glm4v_moe_text", "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 3,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 528, "n_routed_experts": 8,
          "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 1, "first_k_dense_replace": 1,
          "routed_scaling_factor": 1.5, "attention_bias": True, "rms_norm_eps": 1e-5,
          "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                              "mrope_section": SECTIONS}}
TEXTS = ("rows", "at", "last", "greedy", "margin")  # what the text model says


class Seeing(reference.Model):
    """A token is its number, or the embedding of a part of a picture; a position has three coordinates."""

    def embed(self, token):
        return token if isinstance(token, list) else super().embed(token)

    def turn(self, x, position, window=0):
        axes = [axis for axis, n in enumerate(SECTIONS) for _ in range(n)]
        y, half = list(x), len(axes)
        for i, (angle, axis) in enumerate(zip(reference.speeds(half, 10000.0, None, 0)[0], axes)):
            y[i], y[i + half] = reference.rotate([x[i], x[i + half]], position[axis], ([angle], 1))
        return y


def read_tensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    metadata = header.pop("__metadata__", {})
    return metadata, {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def numbers(tensor):
    kind, _, data = tensor
    return list(struct.unpack("<%d%s" % (len(data) // 4, "i" if kind == "I32" else "f"), data))


def say(m, case, image_token):
    """What the text model says to a case's prompt."""
    ids, positions = numbers(case["ids"]), numbers(case["position_ids"])
    rows = numbers(case["image_embeds"]) if "image_embeds" in case else []
    embeds = iter([rows[i:i + 64] for i in range(0, len(rows), 64)])
    m.cache = [[] for _ in m.cache]
    n = len(ids)
    said = [m.step(next(embeds) if token == image_token else token, [positions[axis * n + i] for axis in range(3)])
            for i, token in enumerate(ids)]
    greedy, margin, row = [], [], said[-1]
    for i in range(GREEDY):
        best = sorted(range(528), key=lambda t: -row[t])[:2]
        greedy.append(best[0])
        margin.append(row[best[0]] - row[best[1]])
        row = m.step(best[0], [n + i + numbers(case["rope_delta"])[0]] * 3)
    return {"rows": ("F32", [n, 528], [x for r in said for x in r]), "at": ("I32", [n], list(range(n))),
            "last": ("F32", [528], said[-1]), "greedy": ("I32", [GREEDY], greedy), "margin": ("F32", [GREEDY], margin)}


def make(directory, glm4v):
    for name in os.listdir(glm4v):
        if name not in ("config.json", "model.safetensors", "golden.safetensors"):
            os.symlink(f"{glm4v}/{name}", f"{directory}/{name}")
    with open(glm4v + "/config.json") as f:
        config = json.load(f)
    config.update(model_type="glm4v_moe", architectures=["Glm4vMoeForConditionalGeneration"], text_config=CONFIG)
    config["vision_config"]["model_type"] = "glm4v_moe_vision"
    with open(directory + "/config.json", "w") as f:
        json.dump(config, f)
    metadata, golden = read_tensors(glm4v + "/golden.safetensors")
    m, tensors = Seeing(TEXT, 11), {}
    for i in range(int(metadata["cases"])):
        case = {name.split(".", 1)[1]: t for name, t in golden.items() if name.startswith(f"case{i}.")}
        kept = {key: (t[0], t[1], numbers(t)) for key, t in case.items() if key not in TEXTS}
        for key, t in {**kept, **say(m, case, config["image_token_id"])}.items():
            tensors[f"case{i}.{key}"] = t
    reference.save_golden(directory + "/golden.safetensors", tensors, metadata)
    for name, t in read_tensors(glm4v + "/model.safetensors")[1].items():
        if name.startswith("model.visual."):
            m.w.tensors[name] = (t[1], [struct.unpack("<f", b"\0\0" + t[2][i:i + 2])[0] for i in range(0, len(t[2]), 2)])
    m.w.tensors = {name.replace("model.", "model.language_model.", 1) if name.startswith("model.") and "visual" not in name
                   else name: t for name, t in m.w.tensors.items()}
    m.w.save(directory + "/model.safetensors")


def main():
    verify, glm4v = sys.argv[1], os.path.abspath(sys.argv[2])
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        make(directory, glm4v)
        for tp in (1, 2, 4):
            run = subprocess.run([verify, directory, directory + "/golden.safetensors", "--precise", "--tp", str(tp)],
                                 capture_output=True, text=True, env={**os.environ, "TXDA_BACKEND": "cmodel"})
            print(run.stdout, run.stderr)
            failed += run.returncode != 0
    return 1 if failed else 0


sys.exit(main())
