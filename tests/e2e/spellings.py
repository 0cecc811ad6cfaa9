#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# spellings.py TXDA-VERIFY FIXTURES - checkpoints in the other spellings that theirs come in give the same logits: rotations
# and types as older and newer configs say them, experts one by one and all in one tensor, texts of vision models.
import json
import os
import struct
import subprocess
import sys
import tempfile

# What rope_parameters holds besides the rotation itself.
BESIDE = ("rope_theta", "partial_rotary_factor")


def to_older(config):
    config = dict(config)
    if "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")
    rope = dict(config.pop("rope_parameters", {}))
    if "full_attention" in rope:  # Gemma 3: a rotation for each kind of layer
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = dict(rope["full_attention"])
    config.update({key: rope.pop(key) for key in BESIDE if key in rope})
    if rope.get("rope_type", "default") == "default" and "mrope_section" in rope:
        rope["type"] = rope.pop("rope_type", "default")
    if set(rope) - {"rope_type"}:
        config["rope_scaling"] = rope
    return config


def to_newer(config):
    config = dict(config)
    if "torch_dtype" in config:
        config["dtype"] = config.pop("torch_dtype")
    if "rope_theta" not in config:
        return config
    rope = {"rope_type": "default", **(config.pop("rope_scaling", None) or {})}
    rope["rope_type"] = rope.pop("type", rope["rope_type"]).replace("mrope", "default")
    rope.update({key: config.pop(key) for key in BESIDE if key in config})
    if "rope_local_base_freq" in config:
        rope = {"full_attention": rope,
                "sliding_attention": {"rope_type": "default", "rope_theta": config.pop("rope_local_base_freq")}}
    config["rope_parameters"] = rope
    return config


def everywhere(change, config):
    """Of a model that sees, the text model's part, too."""
    config = change(config)
    if "text_config" in config:
        config["text_config"] = change(config["text_config"])
    return config


def read_tensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def write_tensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def merge_experts(tensors):
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
    return merged


def transposed(data, rows, cols):
    """Of elements of two bytes."""
    return b"".join(data[2 * (r * cols + c):2 * (r * cols + c + 1)] for c in range(cols) for r in range(rows))


def part_experts(tensors):
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
    return parted


def within(model_type, prefix):
    """A text model as the text of a vision model, whose tower is not looked at."""
    def change_config(config):
        return {"model_type": model_type, "text_config": config, "vision_config": {}}

    def change_tensors(tensors):
        tower = {"vision_tower.vision_model.post_layernorm.weight": ("BF16", [2], bytes(4))}
        return {**{prefix + name.removeprefix("model."): tensor for name, tensor in tensors.items()}, **tower}
    return change_config, change_tensors


ROTATIONS = ["llama31", "qwen3", "deepseek3", "gptoss", "qwen3next", "gemma3", "glm4moe-mtp", "qwen35", "qwen2_vl"]
CASES = [(name, f"{word} config", (lambda config, change=change: everywhere(change, config)), None)
         for name in ROTATIONS for word, change in (("older", to_older), ("newer", to_newer))]
CASES += [("qwen3moe", "experts in one tensor", to_newer, merge_experts),
          ("qwen3_vl_moe", "experts one by one", lambda config: everywhere(to_older, config), part_experts),
          ("gemma3", "in a vision model", *within("gemma3", "language_model.model.")),
          ("gemma3", "in a vision model of newer names", *within("gemma3", "model.language_model."))]


def main():
    verify, fixtures = sys.argv[1:]
    failed = runs = 0
    for name, what, change_config, change_tensors in CASES:
        source = os.path.join(fixtures, name)
        with open(source + "/config.json") as f:
            before = json.load(f)
        after = change_config(before)
        if before == after and not change_tensors:
            continue  # as the fixture has it
        with tempfile.TemporaryDirectory() as directory:
            for file in os.listdir(source):
                if file != "config.json" and not (change_tensors and file == "model.safetensors"):
                    os.symlink(os.path.join(source, file), os.path.join(directory, file))
            with open(directory + "/config.json", "w") as f:
                json.dump(after, f)
            if change_tensors:
                write_tensors(directory + "/model.safetensors", change_tensors(read_tensors(source + "/model.safetensors")))
            run = subprocess.run([verify, directory, source + "/golden.safetensors", "--precise"], capture_output=True, text=True,
                                 env={**os.environ, "TXDA_BACKEND": "cmodel"})
            runs += 1
            print(f"{name}, {what}: {(run.stdout.strip().splitlines() or ['nothing said'])[-1]}")
            if run.returncode:
                failed += 1
                print(json.dumps(after), run.stdout, run.stderr)
    print(f"{runs} checkpoints, {failed} failed")
    # Each fixture has one of the two spellings.
    return 1 if failed or runs < len(ROTATIONS) + 4 else 0


if __name__ == "__main__":
    sys.exit(main())
