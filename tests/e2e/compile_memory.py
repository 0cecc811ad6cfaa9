#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# compile_memory.py - how much memory a large checkpoint takes to compile. Makes a sparse checkpoint
# of TXDA_MEMORY_GB gigabytes (1), compiles it, and watches the compiler's anonymous memory: what it
# has beyond the page cache must stay below 256 MB, whatever the size.
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time

from daemon import check, conclude, directory

GB = int(os.environ.get("TXDA_MEMORY_GB", "1"))
LAYERS = GB * 1000 // 202  # a layer of this shape has 202 MB in bf16
LAYER = {"input_layernorm": [4096], "post_attention_layernorm": [4096],
         **{f"self_attn.{i}_proj": [4096, 4096] for i in "qkvo"},
         "mlp.gate_proj": [5504, 4096], "mlp.up_proj": [5504, 4096], "mlp.down_proj": [4096, 5504]}


def make(where):
    shapes = {"model.embed_tokens": [8000, 4096], "lm_head": [8000, 4096], "model.norm": [4096],
              **{f"model.layers.{i}.{name}": shape for i in range(LAYERS) for name, shape in LAYER.items()}}
    header, at = {}, 0
    for name, shape in shapes.items():
        n = 2 * shape[0] * shape[-1] if len(shape) > 1 else 2 * shape[0]
        header[name + ".weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    with open(where + "/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)
    with open(where + "/config.json", "w") as f:
        json.dump({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 5504, "num_hidden_layers": LAYERS,
                   "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 8000, "torch_dtype": "bfloat16"}, f)
    return at


def main():
    with directory() as where:
        if shutil.disk_usage(where).free < (2 * GB + 2) << 30:
            print(f"fewer than {2 * GB + 2} GB are free")
            sys.exit(77)
        data, peak = make(where), 0
        compiler = subprocess.Popen([os.environ["TXDA_COMPILE"], where, "-o", where + "/case", "--quiet"])
        while compiler.poll() is None:
            with open(f"/proc/{compiler.pid}/status") as f:
                peak = max(peak, *(int(kib) for kib in re.findall(r"RssAnon:\s*(\d+)", f.read())), 0)
            time.sleep(0.05)
        written = os.path.getsize(where + "/case/chip0/param.bin")
        print(f"{data} bytes of weights compiled to {written}, at most {peak >> 10} MB of memory")
        check(not compiler.returncode and written >= data, "it did not compile")
        check(0 < peak < 256 << 10, f"{peak} KiB of anonymous memory; the limit is {256 << 10}")
    conclude()


main()
