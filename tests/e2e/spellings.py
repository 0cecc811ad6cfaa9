#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# spellings.py - checkpoints whose tensors are laid out in the other ways that theirs come in give the
# same logits: experts one by one and all in one tensor, texts of vision models under both prefixes.
# The spellings of config.json are for test_compile_config.
import json
import os
import struct
import subprocess

from daemon import check, conclude, directory, read_tensors


def write_tensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def merge_experts(config, tensors):
    """[expert, gates and ups, hidden] and [expert, hidden, inner] of the matrices of each expert."""
    merged, n = {}, 1 + max(int(name.split(".experts.")[1].split(".")[0]) for name in tensors if ".experts." in name)
    for name, tensor in tensors.items():
        if ".experts." not in name:
            merged[name] = tensor
        elif ".experts.0.gate_proj." in name:
            layer = name.split(".experts.")[0] + ".experts."
            gate, up, down = ([tensors[f"{layer}{e}.{what}_proj.weight"] for e in range(n)] for what in ("gate", "up", "down"))
            dtype, (inner, hidden), _ = gate[0]
            merged[layer + "gate_up_proj"] = (dtype, [n, 2 * inner, hidden], b"".join(g[2] + u[2] for g, u in zip(gate, up)))
            merged[layer + "down_proj"] = (dtype, [n, hidden, inner], b"".join(d[2] for d in down))
    return config, merged


def transposed(data, rows, cols):
    """Of elements of two bytes."""
    return b"".join(data[2 * (r * cols + c):2 * (r * cols + c + 1)] for c in range(cols) for r in range(rows))


def part_experts(config, tensors):
    """The matrices of each expert of [expert, hidden, gates and ups] and [expert, inner, hidden]."""
    parted = {}
    for name, (dtype, shape, data) in tensors.items():
        if not name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
            parted[name] = (dtype, shape, data)
            continue
        n, cols, rows = shape
        layer, size = name.rsplit(".", 1)[0], len(data) // n
        for e in range(n):
            matrix = transposed(data[e * size:(e + 1) * size], cols, rows)
            if name.endswith("down_proj"):
                parted[f"{layer}.{e}.down_proj.weight"] = (dtype, [rows, cols], matrix)
            else:
                parted[f"{layer}.{e}.gate_proj.weight"] = (dtype, [rows // 2, cols], matrix[:size // 2])
                parted[f"{layer}.{e}.up_proj.weight"] = (dtype, [rows // 2, cols], matrix[size // 2:])
    return config, parted


def within(prefix):
    """A text model as the text of a vision model, whose tower is not looked at."""
    def change(config, tensors):
        tower = {"vision_tower.vision_model.post_layernorm.weight": ("BF16", [2], bytes(4))}
        return ({"model_type": "gemma3", "text_config": config, "vision_config": {}},
                {**{prefix + name.removeprefix("model."): tensor for name, tensor in tensors.items()}, **tower})
    return change


for name, what, change in (("qwen3moe", "experts in one tensor", merge_experts),
                           ("qwen3_vl_moe", "experts one by one", part_experts),
                           ("gemma3", "in a vision model", within("language_model.model.")),
                           ("gemma3", "in a vision model of newer names", within("model.language_model."))):
    source = f"{os.environ['FIXTURES']}/{name}"
    with directory() as where:
        for file in os.listdir(source):
            if file not in ("config.json", "model.safetensors"):
                os.symlink(f"{source}/{file}", f"{where}/{file}")
        with open(source + "/config.json") as f:
            before = json.load(f), read_tensors(source + "/model.safetensors")[1]
        config, tensors = change(*before)
        check(tensors.keys() != before[1].keys(), f"{name}, {what}: as the fixture has it")
        with open(where + "/config.json", "w") as f:
            json.dump(config, f)
        write_tensors(where + "/model.safetensors", tensors)
        run = subprocess.run([os.environ["TXDA_VERIFY"], where, source + "/golden.safetensors", "--precise"],
                             capture_output=True, text=True)
        check(not run.returncode, f"{name}, {what}: {run.stdout}{run.stderr}")
conclude()
