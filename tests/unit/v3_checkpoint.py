# SPDX-License-Identifier: MIT
"""v3_checkpoint.py FIXTURE DIR - makes DIR from a golden fixture (deepseek3, glm4moe-mtp).

A checkpoint of DeepSeek-V3's or GLM-4.5's shape, scaled down, whose layer that predicts further
tokens is mostly right: a model of one layer with embeddings of length one, and behind it that layer
once more, which joins a token's embedding with nothing of the hidden state before it. All that it
lacks of the model is the first token."""
import json
import math
import os
import struct
import sys

LAYER = "model.layers.2."  # of the fixture, the one that becomes both

fixture, out = sys.argv[1:]
with open(fixture + "/model.safetensors", "rb") as f:
    header = json.loads(f.read(*struct.unpack("<Q", f.read(8))))
    data = f.read()
tensors, weights = {}, []


def add(name, shape, values):
    """@values: the bf16 numbers as bytes."""
    at = sum(map(len, weights))
    tensors[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(values)]}
    weights.append(values)


def read(name):
    begin, end = header[name]["data_offsets"]
    return header[name]["shape"], data[begin:end]


def to_bf16(value):
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF


def unit_rows(shape, values):
    """Makes the root of the mean square of each row 1."""
    rows, cols = shape
    bits = struct.unpack("<%dH" % (rows * cols), values)
    floats = struct.unpack("<%df" % len(bits), b"".join(struct.pack("<I", b << 16) for b in bits))
    scaled = []
    for r in range(rows):
        row = floats[r * cols : (r + 1) * cols]
        root = math.sqrt(sum(x * x for x in row) / cols)
        scaled += [to_bf16(x / root) for x in row]
    return struct.pack("<%dH" % len(scaled), *scaled)


shape, values = read("model.embed_tokens.weight")
hidden = shape[1]
one = struct.pack("<H", to_bf16(1))
add("model.embed_tokens.weight", shape, unit_rows(shape, values))
add("lm_head.weight", *read("lm_head.weight"))
add("model.norm.weight", *read("model.norm.weight"))
for layer in range(2):
    for name in header:
        if name.startswith(LAYER):
            add("model.layers.%d.%s" % (layer, name[len(LAYER) :]), *read(name))
add("model.layers.1.shared_head.norm.weight", *read("model.norm.weight"))
add("model.layers.1.shared_head.head.weight", *read("lm_head.weight"))
add("model.layers.1.enorm.weight", [hidden], one * hidden)
add("model.layers.1.hnorm.weight", [hidden], one * hidden)
row = b"".join(one.ljust(2 * (2 * hidden + 1), b"\0") for _ in range(hidden))
add("model.layers.1.eh_proj.weight", [hidden, 2 * hidden], row[: 4 * hidden * hidden])
os.makedirs(out, exist_ok=True)
with open(out + "/model.safetensors", "wb") as f:
    text = json.dumps(tensors, separators=(",", ":")).encode()
    f.write(struct.pack("<Q", len(text)) + text + b"".join(weights))
with open(fixture + "/config.json") as f:
    config = json.load(f)
config.update(num_hidden_layers=1, first_k_dense_replace=0, num_nextn_predict_layers=1)
with open(out + "/config.json", "w") as f:
    json.dump(config, f)
