#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# towers.py [NAME...] - vision models of shapes that no checkpoint has, against a second implementation.
#
# Makes tiny checkpoints with made-up weights (odd heads, patches, merges, depths, windows and
# tables, keys of config.json left out, older and newer spellings), decodes made-up pictures to
# pixels, computes embeddings and logits in float64 straight from the definitions, and has
# txda-verify compare all of it in precise mode.
import json
import math
import random
import sys
from operator import mul

import reference
from reference import silu, softmax

GREEDY = 3


# ---- pictures --------------------------------------------------------------------------------------------------------

def cubic(x):
    x = abs(x)
    if x < 1:
        return 1.5 * x ** 3 - 2.5 * x ** 2 + 1
    return -0.5 * (x ** 3 - 5 * x ** 2 + 8 * x - 4) if x < 2 else 0.0


def triangle(x):
    return max(0.0, 1 - abs(x))


def resized_line(line, size, kernel, support):
    """A line of pixels, as Pillow resamples it."""
    if len(line) == size:
        return line
    scale = len(line) / size
    wide, out = max(scale, 1), []
    for x in range(size):
        centre = (x + 0.5) * scale
        first = max(int(centre - support * wide + 0.5), 0)
        last = min(int(centre + support * wide + 0.5), len(line))
        weights = [kernel((k - centre + 0.5) / wide) for k in range(first, last)]
        total = sum(weights)
        fixed = [int(w / total * (1 << 22) + (0.5 if w >= 0 else -0.5)) for w in weights]
        out.append(tuple(min(max((sum(w * line[first + k][c] for k, w in enumerate(fixed)) + (1 << 21)) >> 22, 0), 255)
                         for c in range(3)))
    return out


def resized(picture, height, width, resample=3):
    kernel = (cubic, 2) if resample == 3 else (triangle, 1)
    rows = [resized_line(row, width, *kernel) for row in picture]
    columns = [resized_line(list(column), height, *kernel) for column in zip(*rows)]
    return [list(row) for row in zip(*columns)]


def value(c, byte, channel):
    return (byte / 255 - c["mean"][channel]) / c["std"][channel]


def rounded(x, f):
    return round(x / f) * f


def merged_size(c, h, w):
    """Sides that a tower which merges patches sees."""
    f, frames = c["patch"] * c["merge"], c["frames"] if c.get("count_frames") else 1
    if c.get("count_frames") and min(h, w) < f:
        scale = max(f / h, f / w)
        h, w = int(h * scale), int(w * scale)
    rh, rw = rounded(h, f), rounded(w, f)
    if frames * rh * rw > c["most"]:
        beta = math.sqrt(frames * h * w / c["most"])
        rh, rw = (max(f, math.floor(s / beta / f) * f) for s in (h, w))
    elif frames * rh * rw < c["least"]:
        beta = math.sqrt(c["least"] / (frames * h * w))
        rh, rw = (math.ceil(s * beta / f) * f for s in (h, w))
    return rh, rw


def merged_pixels(c, picture):
    """Patches square by square, each [channel, frame, row, column]; the grid."""
    h, w = merged_size(c, len(picture), len(picture[0]))
    picture, m, p = resized(picture, h, w, c.get("resample", 3)), c["merge"], c["patch"]
    patches = []
    for y in range(0, h, m * p):
        for x in range(0, w, m * p):
            for i in range(m * m):
                top, left = y + i // m * p, x + i % m * p
                patches.append([value(c, picture[top + r][left + s][k], k) for k in range(3) for _ in range(c["frames"])
                                for r in range(p) for s in range(p)])
    return patches, (h // p, w // p)


def pinpoint(c, h, w):
    def rank(point):
        scale = min(point[1] / w, point[0] / h)
        area = min(int(w * scale) * int(h * scale), h * w)
        return -area, point[0] * point[1] - area
    return min(c["pinpoints"], key=rank)


def tile_pixels(c, picture):
    """Planes of the tiles: the whole in one, then those of the grid."""
    h, w, side = len(picture), len(picture[0]), c["tile"]
    gh, gw = pinpoint(c, h, w)
    if gw / w < gh / h:
        width, height = gw, min(math.ceil(h * (gw / w)), gh)
    else:
        height, width = gh, min(math.ceil(w * (gh / h)), gw)
    resample = c.get("resample", 3)
    whole, small = resized(picture, side, side, resample), resized(picture, height, width, resample)
    top, left = (gh - height) // 2, (gw - width) // 2
    canvas = [[(0, 0, 0)] * gw for _ in range(gh)]
    for y, row in enumerate(small):
        canvas[top + y][left:left + width] = row
    tiles = [whole] + [[row[x:x + side] for row in canvas[y:y + side]] for y in range(0, gh, side) for x in range(0, gw, side)]
    return [[value(c, pixel[k], k) for k in range(3) for row in tile for pixel in row] for tile in tiles]


def piece_size(c, h, w, scale):
    f, side = 4 * c["patch"], c["resolution"]
    if scale or h * w > side * side:
        ratio = w / h
        h = int(side / math.sqrt(ratio))
        w = int(h * ratio)
    return max(rounded(h, f), f), max(rounded(w, f), f)


def slice_grid(c, h, w):
    many = min(math.ceil(w * h / c["resolution"] ** 2), c["slices"])
    grids = [(n // columns, columns) for n in (many - 1, many, many + 1) if 1 < n <= c["slices"] for columns in range(1, n + 1)
             if n % columns == 0]
    if many <= 1:
        return None
    return min(grids, key=lambda g: abs(math.log(w / h) - math.log(g[1] / g[0]))) if grids else (1, 1)


def slice_pixels(c, picture):
    """Units: the patches of the whole, then those of each slice, row by row; their grids."""
    h, w, p, resample = len(picture), len(picture[0]), c["patch"], c.get("resample", 3)
    grid = slice_grid(c, h, w)
    pieces = [resized(picture, *piece_size(c, h, w, grid is None), resample)]
    if grid:
        rows, columns = grid
        ph, pw = piece_size(c, max(rounded(h, rows), rows) / rows, max(rounded(w, columns), columns) / columns, True)
        large = resized(picture, ph * rows, pw * columns, resample)
        pieces += [[row[x:x + pw] for row in large[y:y + ph]] for y in range(0, ph * rows, ph) for x in range(0, pw * columns, pw)]
    units = []
    for piece in pieces:
        gh, gw = len(piece) // p, len(piece[0]) // p
        units.append(([[value(c, piece[y * p + r][x * p + s][k], k) for k in range(3) for r in range(p) for s in range(p)]
                       for y in range(gh) for x in range(gw)], (gh, gw)))
    return units


# ---- towers ----------------------------------------------------------------------------------------------------------

def quick_gelu(x):
    return x / (1 + math.exp(-1.702 * x))


def erf_gelu(x):
    return x / 2 * (1 + math.erf(x / math.sqrt(2)))


ACTS = {"gelu": erf_gelu, "gelu_pytorch_tanh": reference.gelu, "quick_gelu": quick_gelu, "silu": silu}


def catmull(t):
    """Weights of four points around a place, t behind the second one: cubic with a = -0.75."""
    a = -0.75

    def far(x):
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    def near(x):
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return far(t + 1), near(t), near(1 - t), far(2 - t)


class Tower:
    """c: all that the tower is, whatever config.json leaves out; rows are lists of numbers."""

    def __init__(self, c, weights):
        self.c, self.w = c, weights

    def linear(self, name, rows, n, bias=True):
        w = self.w(name + ".weight", n, len(rows[0]))
        b = self.w(name + ".bias", n) if bias else [0.0] * n
        return [[sum(map(mul, weights, x)) + k for weights, k in zip(w, b)] for x in rows]

    def norm(self, name, rows, eps=None, rms=None):
        eps = self.c["eps"] if eps is None else eps
        w = self.w(name + ".weight", len(rows[0]), mean=1)
        if self.c.get("rms") if rms is None else rms:
            return [reference.norm(x, w, eps) for x in rows]
        b, out = self.w(name + ".bias", len(w)), []
        for x in rows:
            mean = sum(x) / len(x)
            scale = 1 / math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + eps)
            out.append([(v - mean) * scale * a + k for v, a, k in zip(x, w, b)])
        return out

    def turned(self, head, place):
        """Rows turn one half of the pairs, columns the other."""
        half = len(head) // 2
        speeds = [self.c.get("theta", 10000.0) ** (-2 * i / half) for i in range(half // 2)]
        y = list(head)
        for i in range(half):
            angle = place[i // (half // 2)] * speeds[i % (half // 2)]
            cos, sin = math.cos(angle), math.sin(angle)
            y[i], y[i + half] = head[i] * cos - head[i + half] * sin, head[i + half] * cos + head[i] * sin
        return y

    def attend(self, q, k, v, groups, places):
        """Each row of a group sees all rows of it."""
        n = self.c["heads"]
        d = len(q[0]) // n
        out = [[0.0] * len(q[0]) for _ in q]
        for h in range(n):
            part = slice(h * d, (h + 1) * d)
            for group in groups:
                keys = [self.turned(k[r][part], places[r]) if places else k[r][part] for r in group]
                columns = list(zip(*(v[r][part] for r in group)))
                for r in group:
                    query = self.turned(q[r][part], places[r]) if places else q[r][part]
                    share = softmax([sum(map(mul, query, key)) / math.sqrt(d) for key in keys])
                    out[r][part] = [sum(map(mul, share, column)) for column in columns]
        return out

    def attention(self, name, rows, groups, places, names):
        n, bias = len(rows[0]), self.c.get("qkv_bias", True)
        if len(names) == 2:
            qkv = self.linear(name + names[0], rows, 3 * n, bias)
            q, k, v = ([x[i * n:(i + 1) * n] for x in qkv] for i in range(3))
        else:
            q, k, v = (self.linear(name + what, rows, n, bias) for what in names[:3])
        return self.linear(name + names[-1], self.attend(q, k, v, groups, places), n, self.c.get("proj_bias", True))

    def mlp(self, name, rows, names):
        c, n, act = self.c, len(rows[0]), ACTS[self.c["act"]]
        bias = c.get("mlp_bias", True)
        y = [[act(a) for a in x] for x in self.linear(name + names[0], rows, c["inner"], bias)]
        if len(names) == 3:
            y = [[a * b for a, b in zip(x, up)] for x, up in zip(y, self.linear(name + names[1], rows, c["inner"], bias))]
        return self.linear(name + names[-1], y, n, bias)

    def layer(self, name, rows, groups, places, names):
        y = self.attention(name + names["attention"], self.norm(name + names["norms"][0], rows), groups, places, names["heads"])
        rows = [reference.add(a, b) for a, b in zip(rows, y)]
        y = self.mlp(name + "mlp.", self.norm(name + names["norms"][1], rows), names["mlp"])
        return [reference.add(a, b) for a, b in zip(rows, y)]


MERGING = {"attention": "attn.", "heads": ("qkv", "proj"), "norms": ("norm1", "norm2")}
CLIP = {"attention": "self_attn.", "heads": ("q_proj", "k_proj", "v_proj", "out_proj"), "norms": ("layer_norm1", "layer_norm2"),
        "mlp": ("fc1", "fc2")}


class Merging(Tower):
    """Qwen and GLM: squares of patches become tokens."""

    def places(self, grid):
        h, w, m = *grid, self.c["merge"]
        return [(y + i // m, x + i % m) for y in range(0, h, m) for x in range(0, w, m) for i in range(m * m)]

    def learned(self, grid):
        """Of the square table of positions, for each place of the grid: [(row of the table, weight)]."""
        h, w, side, out = *grid, self.c["side"], []
        for y, x in self.places(grid):
            if self.c["table"] == "bilinear":
                taps = []
                for i, n in ((y, h), (x, w)):
                    at = i * (side - 1) / (n - 1) if n > 1 else 0.0
                    taps.append([(int(at), 1 - at + int(at)), (min(int(at) + 1, side - 1), at - int(at))])
            else:
                taps = []
                for i, n in ((y, h), (x, w)):
                    at = (i + 0.5) / n * side - 0.5
                    low = math.floor(at)
                    taps.append([(min(max(low - 1 + k, 0), side - 1), f) for k, f in enumerate(catmull(at - low))])
            out.append([(r * side + s, a * b) for r, a in taps[0] for s, b in taps[1]])
        return out

    def windows(self, grid):
        h, w, n, m = *grid, self.c["window"], self.c["merge"]
        groups = {}
        for row, (y, x) in enumerate(self.places(grid)):
            groups.setdefault((y // m // n, x // m // n), []).append(row)
        return list(groups.values())

    def products(self, name, rows, fc1, fc2):
        y = [[erf_gelu(a) for a in x] for x in self.linear(name + fc1, rows, len(rows[0]))]
        return self.linear(name + fc2, y, self.c["out"])

    def joined(self, rows):
        n = self.c["merge"] ** 2
        return [sum(rows[i:i + n], []) for i in range(0, len(rows), n)]

    def merger(self, name, rows):
        c = self.c
        if not c.get("downsample"):
            first = {"norm": "ln_q", "fc": ("mlp.0", "mlp.2")} if c["older"] else {"norm": "norm", "fc": ("linear_fc1", "linear_fc2")}
            return self.products(name, self.joined(self.norm(name + first["norm"], rows, 1e-6)), *first["fc"])
        rows, m, n = self.norm("visual.post_layernorm", rows), c["merge"], len(rows[0])
        w, b = self.w("visual.downsample.weight", c["out"], n * m * m), self.w("visual.downsample.bias", c["out"])
        squares = [[square[i * n + k] for k in range(n) for i in range(m * m)] for square in self.joined(rows)]
        y = [[sum(map(mul, weights, x)) + k for weights, k in zip(w, b)] for x in squares]
        y = self.norm(name + "post_projection_norm", self.linear(name + "proj", y, c["out"], False), 1e-5, rms=False)
        y = [[erf_gelu(a) for a in x] for x in y]
        gate, up = (self.linear(name + what, y, c["merge_inner"], False) for what in ("gate_proj", "up_proj"))
        return self.linear(name + "down_proj", [[silu(g) * u for g, u in zip(*pair)] for pair in zip(gate, up)], c["out"], False)

    def encode(self, pixels, grid):
        """Embeddings, and those of the taps."""
        c, places = self.c, self.places(grid)
        rows, deep = self.linear("visual.patch_embed.proj", pixels, c["hidden"], c.get("patch_bias", False)), {}
        if c.get("downsample"):
            rows = self.norm("visual.post_conv_layernorm", rows)
        if "table" in c:
            name = "visual.embeddings.position_embedding" if c.get("downsample") else "visual.pos_embed"
            table = self.w(name + ".weight", c["side"] ** 2, c["hidden"])
            rows = [[a + sum(f * table[r][k] for r, f in taps) for k, a in enumerate(x)] for x, taps in zip(rows, self.learned(grid))]
        whole = [list(range(len(rows)))]
        names = {**MERGING, "mlp": ("gate_proj", "up_proj", "down_proj") if c.get("gated") else
                 ("fc1", "fc2") if c["older"] else ("linear_fc1", "linear_fc2")}
        for layer in range(c["depth"]):
            groups = whole if "window" not in c or layer in c["full"] else self.windows(grid)
            rows = self.layer(f"visual.blocks.{layer}.", rows, groups, places, names)
            if layer in c.get("taps", ()):
                name = f"visual.deepstack_merger_list.{c['taps'].index(layer)}."
                deep[layer] = self.products(name, self.norm(name + "norm", self.joined(rows), 1e-6), "linear_fc1", "linear_fc2")
        return self.merger("visual.merger.", rows), [deep[layer] for layer in sorted(deep)]


class Tiles(Tower):
    """CLIP."""

    def encode_tile(self, planes):
        c, p, side, s = self.c, self.c["patch"], self.c["tile"] // self.c["patch"], self.c["tile"]
        patches = [[planes[k * s * s + (y * p + r) * s + x * p + q] for k in range(3) for r in range(p) for q in range(p)]
                   for y in range(side) for x in range(side)]
        name = "vision_tower.vision_model."
        rows = self.linear(name + "embeddings.patch_embedding", patches, c["hidden"], False)
        table = self.w(name + "embeddings.position_embedding.weight", side * side + 1, c["hidden"])
        rows = [self.w(name + "embeddings.class_embedding", c["hidden"])] + rows
        rows = [self.norm(name + "pre_layrnorm", [reference.add(a, b)])[0] for a, b in zip(rows, table)]
        states, whole = [rows], [list(range(len(rows)))]
        for layer in range(c["depth"]):
            states.append(self.layer(f"{name}encoder.layers.{layer}.", states[-1], whole, None, CLIP))
        act, bias = ACTS[c["merge_act"]], c["merge_bias"]
        y = self.linear("multi_modal_projector.linear_1", states[c["feature"]][1:], c["out"], bias)
        y = [[act(a) for a in x] for x in y]
        return self.linear("multi_modal_projector.linear_2", y, c["out"], bias)

    def encode(self, tiles, size):
        c, n = self.c, self.c["tile"] // self.c["patch"]
        (h, w), (gh, gw) = size, (s // c["tile"] for s in pinpoint(c, *size))
        whole, *parts = [self.encode_tile(tile) for tile in tiles]
        lines = [[parts[y // n * gw + x // n][y % n * n + x % n] for x in range(gw * n)] for y in range(gh * n)]
        if w / h > gw / gh:
            cut = (gh * n - int(round(h * (gw * n / w), 7))) // 2
            lines = lines[cut:gh * n - cut]
        else:
            cut = (gw * n - int(round(w * (gh * n / h), 7))) // 2
            lines = [line[cut:gw * n - cut] for line in lines]
        newline = self.w("image_newline", c["out"])
        return whole + [x for line in lines for x in line + [newline]], []


class Slices(Tower):
    """MiniCPM-V: windows of four patches become one row, four of those a token."""

    def squares(self, grid):
        h, w = grid
        return [[(y + i // 2) * w + x + i % 2 for i in range(4)] for y in range(0, h, 2) for x in range(0, w, 2)]

    def shrunk(self, rows, grid):
        name, groups = "vision_tower.vit_merger.", self.squares(grid)
        y = self.attention(name + "self_attn.", self.norm(name + "layer_norm1", rows), groups, None, CLIP["heads"])
        rows = [reference.add(a, b) for a, b in zip(rows, y)]
        joined = [sum((rows[r] for r in group), []) for group in groups]
        y = self.linear(name + "linear_1", self.norm(name + "pre_norm", joined), 4 * self.c["inner"])
        y = self.linear(name + "linear_2", [[reference.gelu(a) for a in x] for x in y], self.c["hidden"])
        return [[a + sum(rows[r][k] for r in group) / 4 for k, a in enumerate(x)] for x, group in zip(y, groups)]

    def encode(self, patches, grid):
        c, name, n = self.c, "vision_tower.", self.c["side"]
        rows = self.linear(name + "embeddings.patch_embedding", patches, c["hidden"])
        table = self.w(name + "embeddings.position_embedding.weight", n * n, c["hidden"])
        h, w = grid
        rows = [reference.add(x, table[i // w * n // h * n + i % w * n // w]) for i, x in enumerate(rows)]
        for layer in range(c["depth"]):
            rows = self.layer(f"{name}encoder.layers.{layer}.", rows, [list(range(len(rows)))], None, CLIP)
            if c["twice"] and layer == c["shrink"]:
                rows, grid = self.shrunk(rows, grid), (h // 2, w // 2)
        rows = self.norm(name + "post_layernorm", rows)
        y = [sum((rows[r] for r in group), []) for group in self.squares(grid)]
        y = self.norm("merger.mlp.0.pre_norm", y, 1e-6)
        y = [[erf_gelu(a) for a in x] for x in self.linear("merger.mlp.0.linear_1", y, len(y[0]))]
        return self.linear("merger.mlp.0.linear_2", y, c["out"]), []


# ---- text ------------------------------------------------------------------------------------------------------------

class Seeing(reference.Model):
    """A token is its number or (embedding, those of the taps); a position may have three coordinates."""

    def embed(self, token):
        self.deep = [] if isinstance(token, int) else token[1]
        return super().embed(token) if isinstance(token, int) else token[0]

    def after_layer(self, layer, x):
        return reference.add(x, self.deep[layer]) if layer < len(self.deep) else x

    def turn(self, x, position, window=0):
        if "sections" not in self.c:
            return super().turn(x, position[0], window)
        t, h, w = self.c["sections"]
        if self.c.get("interleaved"):
            axes = [i % 3 if i % 3 and i < 3 * (h, w)[i % 3 - 1] else 0 for i in range(self.pairs)]
        else:
            axes = [0] * t + [1] * h + [2] * w
        y, half = list(x), self.pairs
        for i, axis in enumerate(axes):
            a, b = (2 * i, 2 * i + 1) if self.neighbours else (i, i + half)
            angle = position[axis] * self.c.get("theta", 10000.0) ** (-i / half)
            y[a] = x[a] * math.cos(angle) - x[b] * math.sin(angle)
            y[b] = x[b] * math.cos(angle) + x[a] * math.sin(angle)
        return y


def positions_of(ids, grids, merge, image_token):
    """Time, row and column of each token, and by how much later ones are off their index."""
    out, at, i, grids = [], 0, 0, iter(grids)
    while i < len(ids):
        if ids[i] != image_token:
            out.append((at, at, at))
            at, i = at + 1, i + 1
            continue
        h, w = (side // merge for side in next(grids))
        out += [(at, at + k // w, at + k % w) for k in range(h * w)]
        at, i = at + max(h, w), i + h * w
    return out, at - len(ids)


# ---- models ----------------------------------------------------------------------------------------------------------

VOCAB, IMAGE = 70, 67


def sizes(hidden, inner, layers, heads, kv, **more):
    return {"hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv, "vocab_size": VOCAB, **more}


def processor(kind, c, **more):
    return {**({"image_processor_type": kind} if kind else {}), "image_mean": c["mean"], "image_std": c["std"],
            "resample": c.get("resample", 3), **more}


def limits(c):
    return {"shortest_edge": c["least"], "longest_edge": c["most"]}


def squares(c):
    return {"patch_size": c["patch"], "merge_size": c["merge"], "temporal_patch_size": c["frames"]}


CLIP_MEAN = {"mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}
HALF = {"mean": [0.5] * 3, "std": [0.5] * 3}
OWN = {"mean": [0.1, 0.45, 0.7], "std": [0.2, 0.9, 0.33]}

# Towers, and how config.json says them.
QWEN2 = dict(OWN, patch=7, merge=3, frames=1, hidden=24, heads=3, inner=60, depth=2, act="gelu", eps=1e-6, out=42, older=True,
             least=1500, most=2700)
QWEN25 = dict(CLIP_MEAN, patch=5, merge=2, frames=2, hidden=60, heads=5, inner=37, depth=2, act="silu", eps=1e-6, rms=True,
              gated=True, out=40, older=True, window=3, full=[], least=400, most=2500)
QWEN25_SMALL = dict(HALF, patch=4, merge=1, frames=2, hidden=24, heads=2, inner=50, depth=3, act="silu", eps=1e-6, rms=True,
                    gated=True, out=40, older=True, window=2, full=[0, 2], least=100, most=1000)
QWEN3 = dict(HALF, patch=6, merge=3, frames=2, hidden=36, heads=3, inner=50, depth=4, act="gelu_pytorch_tanh", eps=1e-6, out=42,
             older=False, patch_bias=True, table="bilinear", side=3, taps=[3, 0], least=700, most=2800)
QWEN35 = dict(HALF, patch=5, merge=2, frames=2, hidden=28, heads=7, inner=33, depth=2, act="gelu", eps=1e-6, out=42, older=False,
              patch_bias=True, table="bilinear", side=1, theta=500.0, least=300, most=1500)
GLM = dict(OWN, patch=7, merge=3, frames=2, hidden=36, heads=3, inner=40, depth=2, act="silu", eps=1e-3, rms=True, gated=True,
           out=40, older=True, patch_bias=True, qkv_bias=True, proj_bias=False, mlp_bias=False, table="bicubic", side=5,
           downsample=True, merge_inner=50, count_frames=True, least=2000, most=5000)
GLM_MOE = dict(CLIP_MEAN, patch=4, merge=2, frames=1, hidden=20, heads=5, inner=46, depth=3, act="silu", eps=1e-6, rms=True,
               gated=True, out=46, older=True, patch_bias=True, qkv_bias=False, proj_bias=False, mlp_bias=False, table="bicubic",
               side=2, downsample=True, merge_inner=31, count_frames=True, least=200, most=1000)
LLAVA = dict(CLIP_MEAN, tile=26, patch=6, hidden=30, heads=2, inner=41, depth=3, act="gelu", eps=1e-4, out=48, feature=3,
             merge_act="quick_gelu", merge_bias=False, pinpoints=[(26, 52), (78, 26)])
MINICPM = dict(HALF, patch=3, hidden=18, heads=2, inner=25, depth=3, act="gelu", eps=1e-4, out=42, side=7, twice=True, shrink=0,
               slices=6, resolution=26)
MINICPM_FINE = dict(OWN, patch=4, hidden=20, heads=2, inner=17, depth=2, act="gelu_pytorch_tanh", eps=1e-6, out=42, side=5,
                    twice=False, slices=3, resolution=20)

# Text models.
ONE_KV = dict(hidden=42, inner=37, layers=2, heads=3, kv=1, d=14, vocab=VOCAB, sections=(1, 2, 4), qkv_bias=True, theta=300.0)
HYBRID = dict(hidden=42, inner=31, layers=3, heads=4, kv=2, d=16, vocab=VOCAB, rotated=12, plus_one=True, qk_norm=True, gated=True,
              theta=300.0, delta=(1, 4, 7, 18), kernel=4, recurrent=lambda layer: layer != 1, sections=(2, 2, 2), interleaved=True)
HYBRID_KEYS = sizes(42, 31, 3, 4, 2, head_dim=16, linear_num_key_heads=1, linear_num_value_heads=4, linear_key_head_dim=7,
                    linear_value_head_dim=18, linear_conv_kernel_dim=4,
                    layer_types=["linear_attention", "full_attention", "linear_attention"],
                    rope_parameters={"rope_type": "default", "rope_theta": 300, "partial_rotary_factor": 0.75,
                                     "mrope_section": [2, 2, 2]})
GLM_TEXT = dict(hidden=40, inner=33, layers=2, heads=2, kv=1, d=24, vocab=VOCAB, rotated=12, neighbours=True, fused=True,
                norms_after=True, qkv_bias=True, eps=1e-4, theta=200.0, sections=(1, 2, 3))
GLM_MOE_TEXT = dict(hidden=46, inner=37, layers=2, heads=4, kv=2, d=16, vocab=VOCAB, rotated=8, qkv_bias=True, experts=6, top_k=2,
                    expert_inner=15, sigmoid=True, groups=3, top_groups=2, normalise=True, scale=1.7, shared=30, eps=1e-5,
                    sparse=lambda layer: layer >= 1, theta=50.0, sections=(2, 1, 1))
MINICPM_TEXT = {key: v for key, v in HYBRID.items() if key not in ("sections", "interleaved")}


def mrope(sections, **more):
    return {"type": "mrope", "mrope_section": list(sections), **more}


CASES = {
    # Squares of nine, one frame, everything at the top.
    "qwen2-vl-flat": {
        "kind": Merging, "tower": QWEN2, "text": ONE_KV, "tp": [3],
        "config": {"model_type": "qwen2_vl", **sizes(42, 37, 2, 3, 1), "rope_theta": 300.0, "rope_scaling": mrope((1, 2, 4)),
                   "rms_norm_eps": 1e-6, "image_token_id": IMAGE,
                   "vision_config": {"depth": 2, "embed_dim": 24, "num_heads": 3, "mlp_ratio": 2.5, "hidden_size": 42,
                                     "patch_size": 7, "spatial_merge_size": 3, "temporal_patch_size": 1, "hidden_act": "gelu"}},
        "processor": processor("Qwen2VLImageProcessor", QWEN2, size={"min_pixels": 1500, "max_pixels": 2700}, **squares(QWEN2))},
    # Five heads of twelve; no layer sees all of an image.
    "qwen2.5-vl-all-windows": {
        "kind": Merging, "tower": QWEN25, "tp": [2],
        "text": dict(hidden=40, inner=33, layers=2, heads=4, kv=2, d=10, vocab=VOCAB, sections=(2, 2, 1), qkv_bias=True,
                     theta=500.0, eps=1e-6),
        "config": {"model_type": "qwen2_5_vl", **sizes(40, 33, 2, 4, 2), "rope_theta": 500.0, "rope_scaling": mrope((2, 2, 1)),
                   "rms_norm_eps": 1e-6, "image_token_id": IMAGE,
                   "vision_config": {"depth": 2, "hidden_size": 60, "num_heads": 5, "intermediate_size": 37, "out_hidden_size": 40,
                                     "patch_size": 5, "window_size": 39, "fullatt_block_indexes": []}},
        "processor": processor("Qwen2VLImageProcessor", QWEN25, min_pixels=400, max_pixels=2500, **squares(QWEN25))},
    # Every patch is a token, windows of four; limits in both places.
    "qwen2.5-vl-no-merge": {
        "kind": Merging, "tower": QWEN25_SMALL, "newer": True, "tp": [],
        "text": dict(hidden=40, inner=33, layers=2, heads=5, kv=5, d=8, vocab=VOCAB, sections=(2, 1, 1), qkv_bias=True,
                     theta=1000000.0, eps=1e-5),
        "config": {"model_type": "qwen2_5_vl", "image_token_id": IMAGE, "tie_word_embeddings": False,
                   "text_config": {"model_type": "qwen2_5_vl_text", **sizes(40, 33, 2, 5, 5), "rms_norm_eps": 1e-5,
                                   "rope_parameters": {"rope_type": "default", "type": "default", "rope_theta": 1e6,
                                                       "mrope_section": [2, 1, 1]}},
                   "vision_config": {"model_type": "qwen2_5_vl", "depth": 3, "hidden_size": 24, "num_heads": 2,
                                     "intermediate_size": 50, "out_hidden_size": 40, "patch_size": 4, "spatial_merge_size": 1,
                                     "window_size": 11, "fullatt_block_indexes": [0, 2]}},
        "processor": processor("Qwen2_5_VLImageProcessor", QWEN25_SMALL, size={"shortest_edge": 7, "longest_edge": 9},
                               min_pixels=100, max_pixels=1000, **squares(QWEN25_SMALL))},
    # A table of 3 x 3; the last layer's tap has the first merger; as many taps as text layers.
    "qwen3-vl-taps": {
        "kind": Merging, "tower": QWEN3, "newer": True, "tp": [3],
        "text": dict(hidden=42, inner=37, layers=2, heads=3, kv=3, d=14, vocab=VOCAB, qk_norm=True, tied=True, sections=(3, 2, 2),
                     interleaved=True, theta=300.0),
        "config": {"model_type": "qwen3_vl", "image_token_id": IMAGE, "tie_word_embeddings": True,
                   "text_config": {"model_type": "qwen3_vl_text", **sizes(42, 37, 2, 3, 3), "head_dim": 14, "rope_theta": 300.0,
                                   "rope_scaling": {"mrope_interleaved": True, "mrope_section": [3, 2, 2], "rope_type": "default"}},
                   "vision_config": {"model_type": "qwen3_vl", "depth": 4, "hidden_size": 36, "num_heads": 3,
                                     "intermediate_size": 50, "out_hidden_size": 42, "patch_size": 6, "spatial_merge_size": 3,
                                     "num_position_embeddings": 9, "deepstack_visual_indexes": [3, 0]}},
        "processor": processor("Qwen2VLImageProcessorFast", QWEN3, size=limits(QWEN3), **squares(QWEN3))},
    # One learned position for all patches, another base for the tower's rotation.
    "qwen3.5": {
        "kind": Merging, "tower": QWEN35, "newer": True, "tp": [2], "text": HYBRID,
        "config": {"model_type": "qwen3_5", "image_token_id": IMAGE, "tie_word_embeddings": False, "dtype": "bfloat16",
                   "text_config": {"model_type": "qwen3_5_text", **HYBRID_KEYS},
                   "vision_config": {"model_type": "qwen3_5_vision", "depth": 2, "hidden_size": 28, "num_heads": 7,
                                     "intermediate_size": 33, "out_hidden_size": 42, "patch_size": 5, "num_position_embeddings": 1,
                                     "hidden_act": "gelu", "rope_parameters": {"rope_type": "axial", "rope_theta": 500.0}}},
        "processor": processor("Qwen2VLImageProcessorFast", QWEN35, size=limits(QWEN35), **squares(QWEN35))},
    # An epsilon of its own for the merger's norm, whatever the tower's is.
    "glm4v-nines": {
        "kind": Merging, "tower": GLM, "newer": True, "tp": [2], "text": GLM_TEXT,
        "config": {"model_type": "glm4v", "image_token_id": IMAGE, "tie_word_embeddings": False,
                   "text_config": {"model_type": "glm4v_text", **sizes(40, 33, 2, 2, 1), "head_dim": 24, "rms_norm_eps": 1e-4,
                                   "rope_theta": 200.0, "partial_rotary_factor": 0.5,
                                   "rope_scaling": {"rope_type": "default", "mrope_section": [1, 2, 3]}},
                   "vision_config": {"depth": 2, "hidden_size": 36, "num_heads": 3, "intermediate_size": 50, "out_hidden_size": 40,
                                     "patch_size": 7, "image_size": 41, "spatial_merge_size": 3, "attention_bias": True,
                                     "rms_norm_eps": 1e-3}},
        "processor": processor("Glm4vImageProcessor", GLM, size=limits(GLM), **squares(GLM))},
    "glm4v-moe": {
        "kind": Merging, "tower": GLM_MOE, "newer": True, "tp": [2], "text": GLM_MOE_TEXT,
        "config": {"model_type": "glm4v_moe", "image_token_id": IMAGE, "tie_word_embeddings": False,
                   "text_config": {"model_type": "glm4v_moe_text", **sizes(46, 37, 2, 4, 2), "head_dim": 16, "n_routed_experts": 6,
                                   "num_experts_per_tok": 2, "moe_intermediate_size": 15, "n_shared_experts": 2, "n_group": 3,
                                   "topk_group": 2, "routed_scaling_factor": 1.7, "first_k_dense_replace": 1, "use_qk_norm": False,
                                   "norm_topk_prob": True, "rope_theta": 50.0, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5,
                                   "rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]}},
                   "vision_config": {"depth": 3, "hidden_size": 20, "num_heads": 5, "intermediate_size": 31, "out_hidden_size": 46,
                                     "patch_size": 4, "image_size": 8, "temporal_patch_size": 1, "rms_norm_eps": 1e-6}},
        "processor": processor(None, GLM_MOE, size=limits(GLM_MOE), **squares(GLM_MOE))},
    # Tiles that patches do not fill, heads of 15, before a Mistral whose window is smaller than a tile.
    "llava-next-mistral": {
        "kind": Tiles, "tower": LLAVA, "newer": True, "tp": [2],
        "text": dict(hidden=48, inner=39, layers=2, heads=8, kv=2, d=6, vocab=VOCAB, window=lambda layer: 11, eps=1e-5),
        "config": {"model_type": "llava_next", "image_token_id": IMAGE, "tie_word_embeddings": False,
                   "projector_hidden_act": "quick_gelu", "multimodal_projector_bias": False, "vision_feature_layer": -1,
                   "image_grid_pinpoints": LLAVA["pinpoints"],
                   "text_config": {"model_type": "mistral", **sizes(48, 39, 2, 8, 2), "sliding_window": 11, "rms_norm_eps": 1e-5},
                   "vision_config": {"model_type": "clip_vision_model", "hidden_size": 30, "num_attention_heads": 2,
                                     "intermediate_size": 41, "num_hidden_layers": 3, "image_size": 26, "patch_size": 6,
                                     "hidden_act": "gelu", "layer_norm_eps": 1e-4}},
        "processor": processor("LlavaNextImageProcessor", LLAVA, size={"shortest_edge": 26}, crop_size={"height": 26, "width": 26},
                               image_grid_pinpoints=LLAVA["pinpoints"], do_center_crop=True)},
    # Windows merge behind the first layer; heads of nine.
    "minicpm-first-layer": {
        "kind": Slices, "tower": MINICPM, "newer": True, "tp": [2], "text": MINICPM_TEXT,
        "config": {"model_type": "minicpmv4_6", "image_token_id": IMAGE, "insert_layer_id": 0, "tie_word_embeddings": False,
                   "text_config": {"model_type": "qwen3_5_text", **HYBRID_KEYS},
                   "vision_config": {"hidden_size": 18, "num_attention_heads": 2, "intermediate_size": 25, "num_hidden_layers": 3,
                                     "image_size": 23, "patch_size": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-4}},
        "processor": processor("MiniCPMV4_6ImageProcessor", MINICPM, max_slice_nums=6, scale_resolution=26, patch_size=3)},
    "minicpm-4x": {
        "kind": Slices, "tower": MINICPM_FINE, "newer": True, "tp": [], "text": MINICPM_TEXT,
        "config": {"model_type": "minicpmv4_6", "image_token_id": IMAGE, "downsample_mode": "4x", "tie_word_embeddings": False,
                   "text_config": {"model_type": "qwen3_5_text", **HYBRID_KEYS},
                   "vision_config": {"hidden_size": 20, "num_attention_heads": 2, "intermediate_size": 17, "num_hidden_layers": 2,
                                     "image_size": 20, "patch_size": 4}},
        "processor": processor("MiniCPMV4_6ImageProcessorPil", MINICPM_FINE, max_slice_nums=3, scale_resolution=20, patch_size=4,
                               downsample_mode="4x")},
}
# Heights and widths: wide, tall, tiny, square.
PICTURES = [(31, 58), (77, 20), (5, 7), (40, 40)]


# ---- checkpoints -----------------------------------------------------------------------------------------------------

def see(case, tower, picture):
    """Of one picture: [(pixels, size, embeddings, those of taps)]; only slices make several of it."""
    c = case["tower"]
    if case["kind"] is Slices:
        units = slice_pixels(c, picture)
    elif case["kind"] is Tiles:
        units = [(tile_pixels(c, picture), (len(picture), len(picture[0])))]
    else:
        units = [merged_pixels(c, picture)]
    return [(pixels, size, *tower.encode(pixels, size)) for pixels, size in units]


def pixel_values(case, units):
    kind, c = case["kind"], case["tower"]
    rows = [row for pixels, _, _, _ in units for row in pixels]
    if kind is Merging:
        return [len(rows), len(rows[0])], [x for row in rows for x in row]
    if kind is Tiles:
        most, n = max(len(u[0]) for u in units), 3 * c["tile"] ** 2
        return ([len(units), most, 3, c["tile"], c["tile"]],
                [x for pixels, _, _, _ in units for tile in pixels + [[0.0] * n] * (most - len(pixels)) for x in tile])
    p = c["patch"]
    return [1, 3, p, len(rows) * p], [x for line in range(3 * p) for row in rows for x in row[line * p:(line + 1) * p]]


def say(case, m, tokens, positions, delta):
    rows = [m.step(token, position) for token, position in zip(tokens, positions)]
    greedy, margin, row, n = [], [], rows[-1], len(rows)
    for i in range(GREEDY):
        best = sorted(range(VOCAB), key=lambda t: -row[t])[:2]
        greedy.append(best[0])
        margin.append(row[best[0]] - row[best[1]])
        if i + 1 < GREEDY:
            row = m.step(best[0], [n + i + delta] * 3)
    return {"rows": ("F32", [n, VOCAB], [x for r in rows for x in r]), "at": ("I32", [n], list(range(n))),
            "last": ("F32", [VOCAB], rows[-1]), "greedy": ("I32", [GREEDY], greedy), "margin": ("F32", [GREEDY], margin)}


def golden(case, m, seed):
    """One prompt with all of the pictures; its tensors and metadata."""
    draw, tower = random.Random(seed), case["kind"](case["tower"], m.w)
    pictures = [[[tuple(draw.randrange(256) for _ in range(3)) for _ in range(w)] for _ in range(h)] for h, w in PICTURES]
    units = [unit for picture in pictures for unit in see(case, tower, picture)]
    ids, tokens = [3, 1, 4], [3, 1, 4]
    for _, _, embeds, deep in units:
        ids += [IMAGE] * len(embeds) + [9, 2]
        tokens += [(x, [tap[i] for tap in deep]) for i, x in enumerate(embeds)] + [9, 2]
    n, merging = len(ids), case["kind"] is Merging
    grids = [size for _, size, _, _ in units]
    positions, delta = (positions_of(ids, grids, case["tower"]["merge"], IMAGE) if merging else
                        ([(i, i, i) for i in range(n)], 0))
    shape, values = pixel_values(case, units)
    embeds = [x for u in units for x in u[2]]
    tensors = {"ids": ("I32", [n], ids), **say(case, m, tokens, positions, delta), "pixel_values": ("F32", shape, values),
               "image_embeds": ("F32", [len(embeds), len(embeds[0])], [x for row in embeds for x in row])}
    name = {Merging: "image_grid_thw", Tiles: "image_sizes", Slices: "target_sizes"}[case["kind"]]
    rows = [[1, *size] if merging else list(size) for size in grids]
    tensors[name] = ("I32", [len(rows), len(rows[0])], [x for row in rows for x in row])
    for k in range(len(units[0][3])):
        deep = [x for u in units for x in u[3][k]]
        tensors[f"deepstack{k}"] = ("F32", [len(deep), len(deep[0])], [x for row in deep for x in row])
    if merging:
        tensors["position_ids"] = ("I32", [3, n], [p[axis] for axis in range(3) for p in positions])
        tensors["rope_delta"] = ("I32", [1], [delta])
    tensors = {"case0." + key: t for key, t in tensors.items()}
    for i, picture in enumerate(pictures):
        tensors[f"image.{i}.png"] = ("U8", [len(picture), len(picture[0]), 3], [v for row in picture for pixel in row for v in pixel])
    return tensors, {"cases": "1", "case0.images": json.dumps([f"images/{i}.png" for i in range(len(pictures))])}


def spelt(case, name):
    """The name of a tensor in the file."""
    text = name.startswith(("model.", "lm_head."))
    if not case.get("newer"):
        return name
    if text:
        return name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name
    return "model." + name


def make(directory, case, seed):
    m = Seeing(case["text"], seed)
    reference.save_golden(directory + "/golden.safetensors", *golden(case, m, seed))
    m.w.tensors = {spelt(case, name): t for name, t in m.w.tensors.items()}
    m.w.save(directory + "/model.safetensors")
    with open(directory + "/config.json", "w") as f:
        json.dump(case["config"], f)
    # Within another file, as newer versions write it, where it comes first.
    files = {"processor_config": {"image_processor": case["processor"], "video_processor": {"do_resize": False}},
             "preprocessor_config": {"image_processor_type": "another"}} if case.get("newer") else {
             "processor_config": {"image_token": "<image>"}, "preprocessor_config": case["processor"]}
    for name, what in files.items():
        with open(f"{directory}/{name}.json", "w") as f:
            json.dump(what, f)


if __name__ == "__main__":
    reference.run_cases(CASES, make, sys.argv[1:])
