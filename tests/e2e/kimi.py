#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# kimi.py - a checkpoint as Kimi K2 comes: DeepSeek-V3's shape under a name
# of its own, tiktoken.model and the special tokens of tokenizer_config.json instead of a tokenizer.json. It compiles,
# gives the fixture's logits, and has its text from the checkpoint and from the case dir alike.
import base64
import json
import os
import subprocess

from daemon import Daemon, check, conclude, directory

# Behind the 256 bytes, which with 256 special tokens are all that the fixture has rows for.
IDS = {"[BOS]": 256, "[EOS]": 257, "<|im_end|>": 258, "<|im_user|>": 259, "<|im_assistant|>": 260, "<|im_middle|>": 273}
TEMPLATE = ("{%- for m in messages %}<|im_user|>{{ m.role }}<|im_middle|>{{ m.content }}<|im_end|>{%- endfor %}"
            "{%- if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{%- endif %}")
HELLO = "Hello 你好"


def make(directory, fixture):
    os.symlink(fixture + "/model.safetensors", directory + "/model.safetensors")
    with open(fixture + "/config.json") as f:
        config = json.load(f)
    files = {
        "config.json": json.dumps({**config, "model_type": "kimi_k2"}),
        "tiktoken.model": "".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256)),
        "tokenizer_config.json": json.dumps({
            "tokenizer_class": "TikTokenTokenizer", "bos_token": "[BOS]", "eos_token": "[EOS]", "chat_template": TEMPLATE,
            "added_tokens_decoder": {i: {"content": name, "special": True} for name, i in IDS.items()}}),
        "generation_config.json": json.dumps({"eos_token_id": IDS["<|im_end|>"]}),
    }
    for name, text in files.items():
        with open(f"{directory}/{name}", "w") as f:
            f.write(text)


def check_daemon(where, models):
    options = [word for name, place in models.items() for word in ("--model", f"{name}={place}")]
    with Daemon("--cache-dir", where + "/cache", "--load", "demand", *options, model=False) as d:
        messages = [{"role": "user", "content": HELLO}]
        want = [IDS["<|im_user|>"], *b"user", IDS["<|im_middle|>"], *HELLO.encode(), IDS["<|im_end|>"],
                IDS["<|im_assistant|>"], *b"assistant", IDS["<|im_middle|>"]]
        answers = []
        for name in models:
            got = d.tokens(name, messages)
            check(got == want, f"{name}: tokens {got}")
            got = d.post("/detokenize", {"model": name, "tokens": [*"é".encode(), 262]})[1]
            check(got["prompt"] == "é<|reserved_token_262|>", f"{name}: {got}")
            answers.append(d.post("/v1/chat/completions", {"model": name, "messages": messages, "max_tokens": 8,
                                                           "temperature": 0})[1])
        check(len({answer["choices"][0]["message"]["content"] for answer in answers}) == 1, f"they differ: {answers}")


def main():
    compiler, run, verify = (os.environ[name] for name in ("TXDA_COMPILE", "TXDA_RUN", "TXDA_VERIFY"))
    fixture = os.environ["FIXTURES"] + "/deepseek3"
    with directory() as where:
        model, case = where + "/kimi", where + "/case"
        os.mkdir(model)
        make(model, fixture)
        subprocess.run([verify, model, fixture + "/golden.safetensors", "--precise"], check=True)
        subprocess.run([compiler, model, "-o", case], check=True)
        for name in "tiktoken.model", "tokenizer_config.json":
            with open(f"{model}/{name}") as a, open(f"{case}/{name}") as b:
                check(a.read() == b.read(), f"{name} is another one in the case dir")
        check_daemon(where, {"checkpoint": model, "case": case})
        # Greedy: a random token may be the one that ends an answer.
        said = subprocess.run([run, "--private", "--temperature", "0", "--max-tokens", "4", case, "Hello"],
                              check=True, capture_output=True)
        check(said.stdout, "txda-run says nothing")
    conclude()


main()
