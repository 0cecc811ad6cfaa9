#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# reference.py [NAME...] - shapes that no checkpoint has, against a second implementation.
#
# Makes tiny checkpoints with made-up weights (odd numbers of heads, one KV head, dimensions that are
# no multiple of a tile, keys of config.json left out) and of families that no golden file has,
# computes their logits in float64, token by token, straight from the definitions, and has
# txda-verify compare: precise mode within 1e-4 of each row, on one chip and on several.
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

PROMPT, GREEDY = 19, 8


def bf16(x):
    u = struct.unpack("<I", struct.pack("<f", x))[0]
    u = (u + 0x7FFF + (u >> 16 & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", u))[0]


class Weights:
    """Makes a tensor the first time that it is asked for."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.tensors = {}

    def __call__(self, name, *shape, mean=0.0, spread=None):
        if name not in self.tensors:
            if spread is None:
                spread = 1.7 / math.sqrt(shape[-1]) if len(shape) > 1 else 0.2
            n = math.prod(shape)
            flat = [bf16(mean + self.random.uniform(-spread, spread)) for _ in range(n)]
            self.tensors[name] = (shape, flat)
        shape, flat = self.tensors[name]
        if len(shape) == 1:
            return flat
        rows = [flat[i:i + shape[-1]] for i in range(0, len(flat), shape[-1])]
        if len(shape) == 3:
            return [rows[i:i + shape[1]] for i in range(0, len(rows), shape[1])]
        return rows

    def save(self, path):
        header, at = {}, 0
        for name, (shape, flat) in self.tensors.items():
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * len(flat)]}
            at += 2 * len(flat)
        text = json.dumps(header).encode()
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for _, flat in self.tensors.values():
                f.write(b"".join(struct.pack("<f", x)[2:] for x in flat))


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def times(w, x, bias=None):
    y = [dot(row, x) for row in w]
    return [a + b for a, b in zip(y, bias)] if bias else y


def norm(x, w, eps):
    scale = 1 / math.sqrt(dot(x, x) / len(x) + eps)
    return [a * scale * b for a, b in zip(x, w)]


def silu(x):
    return x / (1 + math.exp(-x))


def gelu(x):
    return x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def cap(x, limit):
    return limit * math.tanh(x / limit) if limit else x


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def softmax(x):
    top = max(x)
    e = [math.exp(a - top) for a in x]
    total = sum(e)
    return [a / total for a in e]


def add(a, b):
    return [x + y for x, y in zip(a, b)]


def clamp(x):
    return min(max(x, 0), 1)


def yarn_gain(factor, weight=1):
    return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1


def yarn_slowed(s, n, theta):
    """The share by which each of n pairs is slowed down, from those that turn often to those that hardly do."""
    first, last = (n * math.log(s["original"] / (2 * math.pi * turns)) / math.log(theta)
                   for turns in (s.get("fast", 32), s.get("slow", 1)))
    if s.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * n - 1)
    return [clamp((i - first) / (last - first)) for i in range(n)]


def speeds(n, theta, s, position):
    """The angle that each of n pairs turns by from a position to the next, and a gain of the result."""
    if s is not None and s["type"] == "dynamic":
        # Beyond the trained length all that is seen so far stretches the base.
        length = max(position + 1, s["original"])
        theta *= (s["factor"] * length / s["original"] - (s["factor"] - 1)) ** (n / (n - 1))
        s = None
    plain = [theta ** (-i / n) for i in range(n)]
    gain = 1
    if s is None:
        return plain, gain
    if s["type"] == "linear":
        slowed = [1] * n
    elif s["type"] == "llama3":
        slowed = [1 - clamp((s["original"] * f / (2 * math.pi) - s["low"]) / (s["high"] - s["low"])) for f in plain]
    else:
        slowed = yarn_slowed(s, n, theta)
        gain = yarn_gain(s["factor"])
        if "mscale" in s:
            gain = yarn_gain(s["factor"], s["mscale"]) / yarn_gain(s["factor"], s["mscale_all_dim"])
        gain = s.get("gain", gain)
    return [f * (1 - a) + f / s["factor"] * a for f, a in zip(plain, slowed)], gain


def rotate(x, position, rope, neighbours=False):
    """Pairs are neighbours, or an element and the one half the rotated part further; the rest stays."""
    angles, gain = rope
    half = len(angles)
    y = list(x)
    for i, angle in enumerate(angles):
        a, b = (2 * i, 2 * i + 1) if neighbours else (i, i + half)
        cos, sin = gain * math.cos(position * angle), gain * math.sin(position * angle)
        y[a] = x[a] * cos - x[b] * sin
        y[b] = x[b] * cos + x[a] * sin
    return y


class Model:
    """c: all that the model is, whatever config.json leaves out."""

    def __init__(self, c, seed):
        self.c, self.w = c, Weights(seed)
        self.cache = [[] for _ in range(c["layers"])]
        self.index_keys = [[] for _ in range(c["layers"])]
        self.pairs = (c["rope"] if "latent" in c else c.get("rotated", c["d"])) // 2
        self.neighbours = c.get("neighbours", "latent" in c)

    def linear(self, name, x, n, bias=False):
        b = self.w(name + ".bias", n) if bias else None
        return times(self.w(name + ".weight", n, len(x)), x, b)

    def norm(self, name, x, eps=None):
        plus_one = self.c.get("gemma") or self.c.get("plus_one")
        w = self.w(name + ".weight", len(x), mean=0 if plus_one else 1)
        if plus_one:
            w = [1 + a for a in w]
        return norm(x, w, self.c.get("eps", 1e-6) if eps is None else eps)

    def turn(self, x, position, window=0):
        theta, scaling = self.c.get("theta", 10000.0), self.c.get("scaling")
        if window and "window_theta" in self.c:
            theta, scaling = self.c["window_theta"], self.c.get("window_scaling")
        return rotate(x, position, speeds(self.pairs, theta, scaling, position), self.neighbours)

    def mlp(self, name, x, inner, bias=False):
        act = gelu if self.c.get("gemma") else silu
        if self.c.get("fused"):
            y = self.linear(name + "gate_up_proj", x, 2 * inner, bias)
            gate, up = y[:inner], y[inner:]
        else:
            gate = self.linear(name + "gate_proj", x, inner, bias)
            up = self.linear(name + "up_proj", x, inner, bias)
        return self.linear(name + "down_proj", [act(g) * u for g, u in zip(gate, up)], len(x), bias)

    def attend(self, queries, keys, values, scale, window=0, sink=None):
        first = max(0, len(keys) - window) if window else 0
        scores = [cap(dot(queries, k) * scale, self.c.get("score_cap")) for k in keys[first:]]
        share = softmax(scores + [sink])[:-1] if sink is not None else softmax(scores)
        out = [0.0] * len(values[0])
        for p, v in zip(share, values[first:]):
            out = [o + p * a for o, a in zip(out, v)]
        return out

    def attention(self, layer, x, position):
        c, name = self.c, f"model.layers.{layer}.self_attn."
        heads, kv, d = c["heads"], c["kv"], c["d"]

        def split(what, n):
            y = self.linear(name + what + "_proj", x, n * d, c.get("qkv_bias", False))
            return [y[i * d:(i + 1) * d] for i in range(n)]
        gates = None
        if c.get("gated"):  # a query, its gate, the next head's query, …
            y = self.linear(name + "q_proj", x, 2 * heads * d, c.get("qkv_bias", False))
            q = [y[2 * i * d:(2 * i + 1) * d] for i in range(heads)]
            gates = [g for i in range(heads) for g in y[(2 * i + 1) * d:(2 * i + 2) * d]]
        else:
            q = split("q", heads)
        k, v = split("k", kv), split("v", kv)
        if c.get("qk_norm"):
            q = [self.norm(name + "q_norm", h) for h in q]
            k = [self.norm(name + "k_norm", h) for h in k]
        window = c["window"](layer) if "window" in c else 0
        q = [self.turn(h, position, window) for h in q]
        self.cache[layer].append(([self.turn(h, position, window) for h in k], v))
        out = []
        sinks = self.w(name + "sinks", heads, mean=0.5, spread=2.0) if c.get("sinks") else [None] * heads
        for h in range(heads):
            g = h * kv // heads
            out += self.attend(q[h], [t[0][g] for t in self.cache[layer]],
                               [t[1][g] for t in self.cache[layer]], c.get("scalar", d) ** -0.5, window, sinks[h])
        if gates:
            out = [o * sigmoid(g) for o, g in zip(out, gates)]
        return self.linear(name + "o_proj", out, c["hidden"], c.get("o_bias", False))

    def delta_inputs(self, name, x):
        """Channels of the convolution, gates of the result, and what beta and decay come from."""
        c = self.c
        hk, hv, dk, dv = c["delta"]
        r = hv // hk
        if not c.get("joint"):
            return (self.linear(name + "in_proj_qkv", x, 2 * hk * dk + hv * dv), self.linear(name + "in_proj_z", x, hv * dv),
                    self.linear(name + "in_proj_b", x, hv), self.linear(name + "in_proj_a", x, hv))
        size = 2 * dk + 2 * r * dv
        y = self.linear(name + "in_proj_qkvz", x, hk * size)
        ba = self.linear(name + "in_proj_ba", x, 2 * hv)
        parts = [[], [], [], []]
        for h in range(hk):
            group, at = y[h * size:(h + 1) * size], 0
            for part, n in zip(parts, (dk, dk, r * dv, r * dv)):
                part += group[at:at + n]
                at += n
        b = [v for h in range(hk) for v in ba[2 * r * h:2 * r * h + r]]
        a = [v for h in range(hk) for v in ba[2 * r * h + r:2 * r * (h + 1)]]
        return parts[0] + parts[1] + parts[2], parts[3], b, a

    def delta(self, layer, x):
        c, name = self.c, f"model.layers.{layer}.linear_attn."
        hk, hv, dk, dv = c["delta"]
        mixed, gates, b, a = self.delta_inputs(name, x)
        kernel, n = c["kernel"], len(mixed)
        w = self.w(name + "conv1d.weight", n, 1, kernel, spread=1.0)
        if not self.cache[layer]:
            self.cache[layer] = [[[0.0] * n] * (kernel - 1), [[[0.0] * dv for _ in range(dk)] for _ in range(hv)]]
        rows, states = self.cache[layer]
        rows = rows + [mixed]
        self.cache[layer][0] = rows[1:]
        y = [silu(sum(w[i][0][j] * rows[j][i] for j in range(kernel))) for i in range(n)]
        out = []
        for h in range(hv):
            g = h * hk // hv
            q, k = y[g * dk:(g + 1) * dk], y[(hk + g) * dk:(hk + g + 1) * dk]
            v = y[2 * hk * dk + h * dv:2 * hk * dk + (h + 1) * dv]
            q = [e / math.sqrt((dot(q, q) + 1e-6) * dk) for e in q]
            k = [e / math.sqrt(dot(k, k) + 1e-6) for e in k]
            a_log, dt = self.w(name + "A_log", hv, mean=0.5)[h], self.w(name + "dt_bias", hv)[h]
            decay = math.exp(-math.exp(a_log) * math.log(1 + math.exp(a[h] + dt)))
            s = [[decay * e for e in row] for row in states[h]]
            delta = [sigmoid(b[h]) * (v[j] - sum(s[i][j] * k[i] for i in range(dk))) for j in range(dv)]
            states[h] = s = [[s[i][j] + k[i] * delta[j] for j in range(dv)] for i in range(dk)]
            o = norm([sum(s[i][j] * q[i] for i in range(dk)) for j in range(dv)], self.w(name + "norm.weight", dv, mean=1),
                     c.get("eps", 1e-6))
            out += [e * silu(z) for e, z in zip(o, gates[h * dv:(h + 1) * dv])]
        return self.linear(name + "out_proj", out, c["hidden"])

    def index(self, layer, x, y, position):
        """The positions that a token sees: y is what its queries are made from."""
        c, name = self.c, f"model.layers.{layer}.self_attn.indexer."
        heads, d = c["index_heads"], c["index_dim"]
        rope = speeds(c["rope"] // 2, c.get("theta", 10000.0), c.get("scaling"), position)
        q = self.linear(name + "wq_b", y, heads * d)
        k = self.linear(name + "wk", x, d)
        mean = sum(k) / d
        scale = 1 / math.sqrt(sum((v - mean) ** 2 for v in k) / d + 1e-6)
        k = [(v - mean) * scale * w + b for v, w, b in zip(k, self.w(name + "k_norm.weight", d, mean=1),
                                                           self.w(name + "k_norm.bias", d))]
        self.index_keys[layer].append(rotate(k, position, rope))
        weights = self.linear(name + "weights_proj", x, heads)
        q = [rotate(q[h * d:(h + 1) * d], position, rope) for h in range(heads)]
        scores = [sum(w * max(0, dot(h, key)) for w, h in zip(weights, q)) for key in self.index_keys[layer]]
        return sorted(sorted(range(len(scores)), key=lambda p: -scores[p])[:c["index_keys"]])

    def latent(self, layer, x, position):
        c, name = self.c, f"model.layers.{layer}.self_attn."
        heads, nope, rope, vd, latent = c["heads"], c["nope"], c["rope"], c["v"], c["latent"]
        d, bias = nope + rope, c.get("down_bias", False)
        scale = d ** -0.5
        if "mscale_all_dim" in (c.get("scaling") or {}):
            scale *= yarn_gain(c["scaling"]["factor"], c["scaling"]["mscale_all_dim"]) ** 2
        seen = None
        if c.get("q_lora"):
            y = self.norm(name + "q_a_layernorm", self.linear(name + "q_a_proj", x, c["q_lora"], bias), 1e-6)
            q = self.linear(name + "q_b_proj", y, heads * d)
            if "index_keys" in c:
                seen = self.index(layer, x, y, position)
        else:
            q = self.linear(name + "q_proj", x, heads * d)
        y = self.linear(name + "kv_a_proj_with_mqa", x, latent + rope, bias)
        k_rope = self.turn(y[latent:], position)
        y = self.linear(name + "kv_b_proj", self.norm(name + "kv_a_layernorm", y[:latent], 1e-6), heads * (nope + vd))
        rows = [y[h * (nope + vd):(h + 1) * (nope + vd)] for h in range(heads)]
        self.cache[layer].append(([r[:nope] + k_rope for r in rows], [r[nope:] for r in rows]))
        out = []
        for h in range(heads):
            own = q[h * d:(h + 1) * d]
            cache = self.cache[layer] if seen is None else [self.cache[layer][p] for p in seen]
            out += self.attend(own[:nope] + self.turn(own[nope:], position),
                               [t[0][h] for t in cache], [t[1][h] for t in cache], scale)
        return self.linear(name + "o_proj", out, c["hidden"], bias)

    def choose(self, name, x):
        """[(expert, weight)] of a token."""
        c, n, k = self.c, self.c["experts"], self.c["top_k"]
        scores = times(self.w(name + "gate.weight", n, len(x), spread=1.0), x)
        if not c.get("sigmoid"):
            scores = corrected = softmax(scores)
        else:
            scores = [sigmoid(s) for s in scores]
            corrected = add(scores, self.w(name + "gate.e_score_correction_bias", n, mean=0.3))
        # A group is as good as its best expert, of sigmoids as its best two.
        size, of_group = n // c.get("groups", 1), 2 if c.get("sigmoid") else 1
        groups = sorted(range(n // size), key=lambda g: -sum(
            sorted(corrected[g * size:(g + 1) * size])[-of_group:]))[:c.get("top_groups", 1)]
        allowed = [e for e in range(n) if e // size in groups]
        best = sorted(allowed, key=lambda e: -corrected[e])[:k]
        weights = [scores[e] for e in best]
        if c.get("normalise"):
            weights = [w / sum(weights) for w in weights]
        return [(e, w * c.get("scale", 1)) for e, w in zip(best, weights)]

    def clamped_experts(self, layer, x):
        c, name = self.c, f"model.layers.{layer}.mlp."
        n, inner, hidden, limit = c["experts"], c["expert_inner"], len(x), c["limit"]
        scores = self.linear(name + "router", x, n, True)
        best = sorted(range(n), key=lambda e: -scores[e])[:c["top_k"]]
        first = self.w(name + "experts.gate_up_proj", n, hidden, 2 * inner, spread=0.5)
        second = self.w(name + "experts.down_proj", n, inner, hidden, spread=0.5)
        biases = (self.w(name + "experts.gate_up_proj_bias", n, 2 * inner, spread=1.0),
                  self.w(name + "experts.down_proj_bias", n, hidden, spread=1.0))
        out = [0.0] * hidden
        for e, weight in zip(best, softmax([scores[e] for e in best])):
            y = times(list(zip(*first[e])), x, biases[0][e])
            gates, ups = ([min(v, limit) for v in y[0::2]], [max(min(v, limit), -limit) for v in y[1::2]])
            y = [(u + 1) * g * sigmoid(1.702 * g) for g, u in zip(gates, ups)]
            out = add(out, [weight * v for v in times(list(zip(*second[e])), y, biases[1][e])])
        return out

    def expert(self, name, e, x):
        n, inner = self.c["experts"], self.c["expert_inner"]
        if not self.c.get("stacked"):
            return self.mlp(f"{name}experts.{e}.", x, inner)
        y = times(self.w(name + "experts.gate_up_proj", n, 2 * inner, len(x))[e], x)
        y = [silu(g) * u for g, u in zip(y[:inner], y[inner:])]
        return times(self.w(name + "experts.down_proj", n, len(x), inner)[e], y)

    def experts(self, layer, x):
        if "limit" in self.c:
            return self.clamped_experts(layer, x)
        c, name = self.c, f"model.layers.{layer}.mlp."
        out = [0.0] * len(x)
        for e in range(c["experts"]):  # so that all have weights
            self.expert(name, e, x)
        for e, weight in self.choose(name, x):
            out = add(out, [weight * y for y in self.expert(name, e, x)])
        if c.get("shared_gated"):
            gate = sigmoid(self.linear(name + "shared_expert_gate", x, 1)[0])
            out = add(out, [gate * y for y in self.mlp(name + "shared_expert.", x, c["shared_gated"])])
        if c.get("shared"):
            out = add(out, self.mlp(name + "shared_experts.", x, c["shared"]))
        return out

    def embed(self, token):
        return self.w("model.embed_tokens.weight", self.c["vocab"], self.c["hidden"], spread=1.0)[token]

    def after_layer(self, layer, x):
        return x

    def step(self, token, position):
        c = self.c
        x = self.embed(token)
        if c.get("gemma"):  # with a root of the weights' type
            x = [bf16(math.sqrt(c["hidden"])) * a for a in x]
        for layer in range(c["layers"]):
            name = f"model.layers.{layer}."
            y = self.norm(name + "input_layernorm", x)
            if "delta" in c and c["recurrent"](layer):
                y = self.delta(layer, y)
            else:
                y = self.latent(layer, y, position) if "latent" in c else self.attention(layer, y, position)
            if c.get("norms_after"):
                y = self.norm(name + "post_self_attn_layernorm", y)
            if c.get("gemma"):
                y = self.norm(name + "post_attention_layernorm", y)
            x = add(x, y)
            y = self.norm(name + ("pre_feedforward" if c.get("gemma") else "post_attention") + "_layernorm", x)
            sparse = "experts" in c and c["sparse"](layer)
            y = self.experts(layer, y) if sparse else self.mlp(name + "mlp.", y, c["inner"], c.get("mlp_bias", False))
            if c.get("norms_after"):
                y = self.norm(name + "post_mlp_layernorm", y)
            if c.get("gemma"):
                y = self.norm(name + "post_feedforward_layernorm", y)
            x = self.after_layer(layer, add(x, y))
        x = self.norm("model.norm", x)
        head = "model.embed_tokens" if c.get("tied") else "lm_head"
        return [cap(y, c.get("logit_cap")) for y in times(self.w(head + ".weight", c["vocab"], c["hidden"]), x)]


def save_golden(path, tensors, metadata=None):
    header, data = {"__metadata__": metadata or {"cases": "1"}}, b""
    for name, (kind, shape, values) in tensors.items():
        part = struct.pack("<%d%s" % (len(values), {"I32": "i", "F32": "f", "U8": "B"}[kind]), *values)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def save_model_golden(directory, m, seed):
    """What a model says to a prompt."""
    vocab = m.c["vocab"]
    draw = random.Random(seed)
    ids = [draw.randrange(vocab) for _ in range(PROMPT)]
    rows = [m.step(token, i) for i, token in enumerate(ids)]
    greedy, margin, row = [], [], rows[-1]
    for i in range(GREEDY):
        best = sorted(range(vocab), key=lambda t: -row[t])[:2]
        greedy.append(best[0])
        margin.append(row[best[0]] - row[best[1]])
        if i + 1 < GREEDY:
            row = m.step(best[0], PROMPT + i)
    save_golden(directory + "/golden.safetensors", {
        "case0.ids": ("I32", [PROMPT], ids), "case0.last": ("F32", [vocab], rows[-1]),
        "case0.at": ("I32", [PROMPT], list(range(PROMPT))),
        "case0.rows": ("F32", [PROMPT, vocab], [x for r in rows for x in r]),
        "case0.greedy": ("I32", [GREEDY], greedy), "case0.margin": ("F32", [GREEDY], margin)})


def make(directory, case, seed):
    """The checkpoint and its golden file."""
    m = Model(case["model"], seed)
    save_model_golden(directory, m, seed)
    m.w.save(directory + "/model.safetensors")
    with open(directory + "/config.json", "w") as f:
        json.dump(case["config"], f)


def sizes(kind, hidden, inner, layers, heads, vocab, **more):
    return {"model_type": kind, "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
            "num_attention_heads": heads, "vocab_size": vocab, **more}


CASES = {
    # Three heads of 22, one KV head, nothing a multiple of anything.
    "llama-one-kv-head": {
        "tp": [2, 3], "config": sizes("llama", 66, 101, 2, 3, 77, num_key_value_heads=1),
        "model": dict(hidden=66, inner=101, layers=2, heads=3, kv=1, d=22, vocab=77)},
    "qwen2-window": {
        "tp": [7], "config": sizes("qwen2", 98, 34, 2, 14, 65, num_key_value_heads=7, head_dim=10, use_sliding_window=True,
                                   sliding_window=5, max_window_layers=1, rope_theta=1e6),
        "model": dict(hidden=98, inner=34, layers=2, heads=14, kv=7, d=10, vocab=65, theta=1e6,
                      qkv_bias=True, window=lambda layer: 5 if layer >= 1 else 0)},
    "internlm3-biases": {
        "tp": [2], "config": sizes("internlm3", 36, 50, 2, 2, 64, num_key_value_heads=1, head_dim=18, qkv_bias=True,
                                   bias=True),
        "model": dict(hidden=36, inner=50, layers=2, heads=2, kv=1, d=18, vocab=64, qkv_bias=True, o_bias=True,
                      mlp_bias=True)},
    "qwen2-moe-shared": {
        "tp": [2, 5], "config": sizes("qwen2_moe", 52, 60, 3, 5, 90, num_key_value_heads=1, head_dim=14, num_experts=5,
                                      moe_intermediate_size=41, shared_expert_intermediate_size=36,
                                      mlp_only_layers=[1]),
        "model": dict(hidden=52, inner=60, layers=3, heads=5, kv=1, d=14, vocab=90, qkv_bias=True, experts=5, top_k=4,
                      expert_inner=41, shared_gated=36, sparse=lambda layer: layer != 1)},
    # Groups, shared expert, scale and normalisation as nobody says them; three dense layers.
    "deepseek-v3-defaults": {
        "tp": [3], "config": sizes("deepseek_v3", 50, 33, 4, 3, 80, q_lora_rank=18, kv_lora_rank=39, qk_rope_head_dim=6,
                                   qk_nope_head_dim=21, v_head_dim=15, n_routed_experts=16, num_experts_per_tok=5,
                                   moe_intermediate_size=19),
        "model": dict(hidden=50, inner=33, layers=4, heads=3, vocab=80, q_lora=18, latent=39, rope=6, nope=21, v=15,
                      experts=16, top_k=5, expert_inner=19, sigmoid=True, groups=8, top_groups=4, normalise=True,
                      scale=2.5, shared=19, sparse=lambda layer: layer >= 3)},
    # Halves where V3 has neighbours; the gain of the rotated part and that of all are not the same.
    "deepseek-v3-yarn-halves": {
        "tp": [], "config": sizes("deepseek_v3", 34, 29, 1, 2, 59, q_lora_rank=13, kv_lora_rank=17, qk_rope_head_dim=12,
                                  qk_nope_head_dim=7, v_head_dim=10, rope_interleave=False, rope_theta=40,
                                  rope_scaling={"rope_type": "yarn", "factor": 6, "beta_fast": 4, "mscale": 1.4,
                                                "mscale_all_dim": 0.6, "original_max_position_embeddings": 64}),
        "model": dict(hidden=34, inner=29, layers=1, heads=2, vocab=59, q_lora=13, latent=17, rope=12, nope=7, v=10,
                      neighbours=False, theta=40, scaling=dict(type="yarn", factor=6, fast=4, original=64, mscale=1.4,
                                                               mscale_all_dim=0.6))},
    # Five keys of up to 27, by three heads whose first elements rotate, scaled by YaRN.
    "deepseek-v32-index": {
        "tp": [3], "config": sizes("deepseek_v32", 46, 33, 2, 3, 70, q_lora_rank=14, kv_lora_rank=23, qk_rope_head_dim=8,
                                   qk_nope_head_dim=9, v_head_dim=7, n_routed_experts=6, num_experts_per_tok=2,
                                   moe_intermediate_size=11, n_group=3, topk_group=2, first_k_dense_replace=1,
                                   index_topk=5, index_n_heads=3, index_head_dim=18, rope_theta=50,
                                   rope_scaling={"type": "yarn", "factor": 8, "beta_fast": 5, "mscale": 1.0,
                                                 "mscale_all_dim": 1.0, "original_max_position_embeddings": 64}),
        "model": dict(hidden=46, inner=33, layers=2, heads=3, vocab=70, q_lora=14, latent=23, rope=8, nope=9, v=7, experts=6,
                      top_k=2, expert_inner=11, sigmoid=True, groups=3, top_groups=2, normalise=True, scale=2.5, shared=11,
                      sparse=lambda layer: layer >= 1, index_keys=5, index_heads=3, index_dim=18, theta=50,
                      scaling=dict(type="yarn", factor=8, fast=5, original=64, mscale=1.0, mscale_all_dim=1.0))},
    # The best expert makes a group; weights are not normalised but scaled; biases as far as there are any.
    "deepseek-v2-groups": {
        "tp": [3], "config": sizes("deepseek_v2", 42, 31, 2, 3, 73, q_lora_rank=15, kv_lora_rank=22, qk_rope_head_dim=10,
                                   qk_nope_head_dim=9, v_head_dim=8, n_routed_experts=12, num_experts_per_tok=3,
                                   moe_intermediate_size=13, n_shared_experts=1, topk_method="group_limited_greedy",
                                   n_group=4, topk_group=2, norm_topk_prob=False, routed_scaling_factor=2.3,
                                   first_k_dense_replace=1, attention_bias=True, rope_theta=60,
                                   rope_scaling={"type": "yarn", "factor": 40, "beta_fast": 5, "beta_slow": 1.5,
                                                 "mscale": 1.2, "mscale_all_dim": 0.707,
                                                 "original_max_position_embeddings": 90}),
        "model": dict(hidden=42, inner=31, layers=2, heads=3, vocab=73, q_lora=15, latent=22, rope=10, nope=9, v=8,
                      experts=12, top_k=3, expert_inner=13, groups=4, top_groups=2, scale=2.3, shared=13, theta=60,
                      down_bias=True, sparse=lambda layer: layer >= 1,
                      scaling=dict(type="yarn", factor=40, fast=5, slow=1.5, original=90, mscale=1.2,
                                   mscale_all_dim=0.707))},
    # Groups without a method that looks at them; two shared experts as nobody says; normalised, therefore not scaled.
    "deepseek-v2-greedy": {
        "tp": [2], "config": sizes("deepseek_v2", 38, 31, 3, 2, 71, kv_lora_rank=20, qk_rope_head_dim=6,
                                   qk_nope_head_dim=11, v_head_dim=9, n_routed_experts=8, num_experts_per_tok=3,
                                   moe_intermediate_size=14, topk_method="greedy", n_group=4, topk_group=1,
                                   norm_topk_prob=True, routed_scaling_factor=3.0, moe_layer_freq=2),
        "model": dict(hidden=38, inner=31, layers=3, heads=2, vocab=71, latent=20, rope=6, nope=11, v=9, experts=8, top_k=3,
                      expert_inner=14, normalise=True, shared=28, sparse=lambda layer: layer % 2 == 0)},
    # One expert alone is not normalised to one, whatever the config says, and therefore scaled.
    "deepseek-v2-one-expert": {
        "tp": [], "config": sizes("deepseek_v2", 30, 31, 1, 2, 53, kv_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=7,
                                  v_head_dim=6, n_routed_experts=5, num_experts_per_tok=1, moe_intermediate_size=17,
                                  n_shared_experts=None, norm_topk_prob=True, routed_scaling_factor=1.9),
        "model": dict(hidden=30, inner=31, layers=1, heads=2, vocab=53, latent=16, rope=4, nope=7, v=6, experts=5, top_k=1,
                      expert_inner=17, scale=1.9, sparse=lambda layer: True)},
    "glm4-norms-after": {
        "tp": [3], "config": sizes("glm4", 54, 47, 2, 6, 69, num_key_value_heads=3, head_dim=20, partial_rotary_factor=0.6,
                                   attention_bias=True, rms_norm_eps=1e-5, rope_theta=300),
        "model": dict(hidden=54, inner=47, layers=2, heads=6, kv=3, d=20, vocab=69, rotated=12, neighbours=True, fused=True,
                      norms_after=True, qkv_bias=True, eps=1e-5, theta=300)},
    "glm4-moe-groups-yarn": {
        "tp": [2], "config": sizes("glm4_moe", 46, 37, 2, 4, 62, num_key_value_heads=2, head_dim=16, n_routed_experts=9,
                                   num_experts_per_tok=2, moe_intermediate_size=15, n_shared_experts=2, n_group=3,
                                   topk_group=2, routed_scaling_factor=1.7, first_k_dense_replace=1, use_qk_norm=True,
                                   attention_bias=True, rms_norm_eps=1e-6,
                                   rope_parameters={"rope_type": "yarn", "rope_theta": 50, "partial_rotary_factor": 0.75,
                                                    "factor": 4, "beta_fast": 4, "truncate": False,
                                                    "attention_factor": 1.3, "original_max_position_embeddings": 64}),
        "model": dict(hidden=46, inner=37, layers=2, heads=4, kv=2, d=16, vocab=62, rotated=12, qk_norm=True, qkv_bias=True,
                      experts=9, top_k=2, expert_inner=15, sigmoid=True, groups=3, top_groups=2, normalise=True, scale=1.7,
                      shared=30, sparse=lambda layer: layer >= 1, theta=50,
                      scaling=dict(type="yarn", factor=4, fast=4, truncate=False, gain=1.3, original=64))},
    # Eight KV heads as nobody says; all layers have the window.
    "mistral-window-linear": {
        "tp": [4], "config": sizes("mistral", 48, 39, 2, 8, 68, sliding_window=6, rope_scaling={"type": "linear",
                                                                                               "factor": 2.5}),
        "model": dict(hidden=48, inner=39, layers=2, heads=8, kv=8, d=6, vocab=68, window=lambda layer: 6,
                      scaling=dict(type="linear", factor=2.5))},
    # Two pairs as they were, two in between, two slowed down.
    "llama-llama3-rope": {
        "tp": [2], "config": sizes("llama", 44, 39, 2, 4, 68, num_key_value_heads=2, head_dim=12, rope_theta=50,
                                   rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                                 "high_freq_factor": 4.0, "original_max_position_embeddings": 64}),
        "model": dict(hidden=44, inner=39, layers=2, heads=4, kv=2, d=12, vocab=68, theta=50,
                      scaling=dict(type="llama3", factor=8, low=1, high=4, original=64))},
    # The older spelling and the newer one. The prompt is longer than what the model was trained for: a
    # base of its own for each position from there on.
    "llama-dynamic": {
        "tp": [2], "config": sizes("llama", 44, 39, 2, 4, 68, num_key_value_heads=2, head_dim=12, rope_theta=50,
                                   max_position_embeddings=7, rope_scaling={"type": "dynamic", "factor": 4.0}),
        "model": dict(hidden=44, inner=39, layers=2, heads=4, kv=2, d=12, vocab=68, theta=50,
                      scaling=dict(type="dynamic", factor=4, original=7))},
    # The root of 50 is no bf16 value; three heads of 10 and caps that bite.
    "gemma2-odd": {
        "tp": [3], "config": sizes("gemma2", 50, 71, 3, 3, 77, num_key_value_heads=1, head_dim=10, sliding_window=7,
                                   attn_logit_softcapping=1.5, final_logit_softcapping=2.5, query_pre_attn_scalar=3),
        "model": dict(hidden=50, inner=71, layers=3, heads=3, kv=1, d=10, vocab=77, gemma=True, tied=True, scalar=3,
                      score_cap=1.5, logit_cap=2.5, window=lambda layer: 7 if layer % 2 == 0 else 0)},
    "gemma3-linear-biases": {
        "tp": [5], "config": sizes("gemma3_text", 46, 33, 4, 5, 90, num_key_value_heads=5, head_dim=18, sliding_window=5,
                                   sliding_window_pattern=3, tie_word_embeddings=False, attention_bias=True,
                                   query_pre_attn_scalar=11, rope_theta=500, rope_local_base_freq=40,
                                   rope_scaling={"rope_type": "linear", "factor": 3.0}),
        "model": dict(hidden=46, inner=33, layers=4, heads=5, kv=5, d=18, vocab=90, gemma=True, qk_norm=True, scalar=11,
                      qkv_bias=True, o_bias=True, theta=500, scaling=dict(type="linear", factor=3), window_theta=40,
                      window=lambda layer: 5 if (layer + 1) % 3 else 0)},
    # As newer files say it, rotations by kind of layer, both of them scaled.
    "gemma3-by-kind": {
        "tp": [2], "config": sizes("gemma3_text", 34, 33, 3, 2, 58, num_key_value_heads=1, head_dim=14, sliding_window=6,
                                   query_pre_attn_scalar=14, dtype="bfloat16", final_logit_softcapping=3,
                                   layer_types=["full_attention", "sliding_attention", "full_attention"],
                                   rope_parameters={
                                       "full_attention": {"rope_type": "linear", "factor": 2, "rope_theta": 700},
                                       "sliding_attention": {"rope_type": "llama3", "rope_theta": 30, "factor": 5.0,
                                                             "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                                             "original_max_position_embeddings": 32}}),
        "model": dict(hidden=34, inner=33, layers=3, heads=2, kv=1, d=14, vocab=58, gemma=True, qk_norm=True, tied=True,
                      scalar=14, logit_cap=3, theta=700, scaling=dict(type="linear", factor=2), window_theta=30,
                      window_scaling=dict(type="llama3", factor=5, low=1, high=4, original=32),
                      window=lambda layer: 6 if layer == 1 else 0)},
    # Three key heads of 10 and six of 9 for values, a convolution over three, one layer of attention.
    "qwen3-next-odd": {
        "tp": [2, 3], "config": sizes("qwen3_next", 46, 33, 3, 6, 70, num_key_value_heads=3, head_dim=16, num_experts=5,
                                      num_experts_per_tok=2, moe_intermediate_size=11, shared_expert_intermediate_size=13,
                                      mlp_only_layers=[1], linear_num_key_heads=3, linear_num_value_heads=6,
                                      linear_key_head_dim=10, linear_value_head_dim=9, linear_conv_kernel_dim=3,
                                      full_attention_interval=2, partial_rotary_factor=0.5, rope_theta=50),
        "model": dict(hidden=46, inner=33, layers=3, heads=6, kv=3, d=16, vocab=70, rotated=8, plus_one=True, qk_norm=True,
                      gated=True, theta=50, delta=(3, 6, 10, 9), kernel=3, joint=True, recurrent=lambda layer: layer != 1,
                      experts=5, top_k=2, expert_inner=11, normalise=True, shared_gated=13, sparse=lambda layer: layer != 1)},
    # All experts in one tensor, and beside them one that is gated; five of them for two chips.
    "qwen3.5-moe-text": {
        "tp": [2], "config": sizes("qwen3_5_moe_text", 42, 31, 3, 4, 66, num_key_value_heads=2, head_dim=16, dtype="bfloat16",
                                   linear_num_key_heads=1, linear_num_value_heads=4, linear_key_head_dim=7,
                                   linear_value_head_dim=18, linear_conv_kernel_dim=4, full_attention_interval=3,
                                   num_experts=5, num_experts_per_tok=2, moe_intermediate_size=11,
                                   shared_expert_intermediate_size=13,
                                   rope_parameters={"rope_type": "default", "rope_theta": 300, "partial_rotary_factor": 0.5}),
        "model": dict(hidden=42, inner=31, layers=3, heads=4, kv=2, d=16, vocab=66, rotated=8, plus_one=True, qk_norm=True,
                      gated=True, theta=300, delta=(1, 4, 7, 18), kernel=4, recurrent=lambda layer: layer != 2,
                      experts=5, top_k=2, expert_inner=11, normalise=True, stacked=True, shared_gated=13,
                      sparse=lambda layer: True)},
    # Plain weights, of which [hidden, 2 inner] has the shape of [2 inner, hidden]; a limit that bites.
    "gpt-oss-plain": {
        "tp": [3], "config": sizes("gpt_oss", 42, 21, 3, 6, 66, num_key_value_heads=3, head_dim=14, sliding_window=5,
                                   num_local_experts=5, experts_per_token=3, swiglu_limit=0.7, rope_theta=60,
                                   rope_scaling={"rope_type": "yarn", "factor": 4.0, "beta_fast": 5.0, "truncate": False,
                                                 "original_max_position_embeddings": 64}),
        "model": dict(hidden=42, inner=21, layers=3, heads=6, kv=3, d=14, vocab=66, eps=1e-5, qkv_bias=True, o_bias=True,
                      sinks=True, experts=5, top_k=3, expert_inner=21, limit=0.7, theta=60, sparse=lambda layer: True,
                      window=lambda layer: 5 if layer % 2 == 0 else 0,
                      scaling=dict(type="yarn", factor=4, fast=5, truncate=False, original=64))},
}


def run_cases(cases, make, names):
    """Compares each, on one chip and on several; ends the program."""
    failed = 0
    for seed, (name, case) in enumerate(cases.items()):
        with tempfile.TemporaryDirectory() as directory:
            if names and name not in names:
                continue
            make(directory, case, 7 + seed)
            for tp in [1, *case["tp"]]:
                command = [os.environ["TXDA_VERIFY"], directory, directory + "/golden.safetensors", "--precise", "--tp", str(tp)]
                run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                print(f"{name}, {tp} chips: {run.stdout if run.returncode else run.stdout.strip().splitlines()[-1]}")
                failed += run.returncode != 0
    print(f"{failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    run_cases(CASES, make, sys.argv[1:])
