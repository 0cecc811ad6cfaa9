#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# kimi.py TXDAD TXDA-COMPILE TXDA-RUN TXDA-VERIFY FIXTURE - a checkpoint as Kimi K2 comes: DeepSeek-V3's shape under a name
# of its own, tiktoken.model and the special tokens of tokenizer_config.json instead of a tokenizer.json. It compiles,
# gives the fixture's logits, and has its text from the checkpoint and from the case dir alike.
import base64
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

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


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.host)


def ask(path, where, body):
    connection = Connection(path)
    connection.request("POST", where, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    assert response.status == 200, answer
    return answer


def check_daemon(txdad, directory, models):
    path = directory + "/socket"
    command = [txdad, "--socket", path, "--cache-dir", directory + "/cache", "--load", "demand"]
    for name, place in models.items():
        command += ["--model", f"{name}={place}"]
    with open(directory + "/log", "w+") as log:
        daemon = subprocess.Popen(command, stderr=log)
        try:
            while not os.path.exists(path) and daemon.poll() is None:
                time.sleep(0.05)
            messages = [{"role": "user", "content": HELLO}]
            want = [IDS["<|im_user|>"], *b"user", IDS["<|im_middle|>"], *HELLO.encode(), IDS["<|im_end|>"],
                    IDS["<|im_assistant|>"], *b"assistant", IDS["<|im_middle|>"]]
            for name in models:
                got = ask(path, "/tokenize", {"model": name, "messages": messages})["tokens"]
                assert got == want, got
                assert ask(path, "/detokenize", {"model": name, "tokens": [*"é".encode(), 262]})["prompt"] == "é<|reserved_token_262|>"
            answers = [ask(path, "/v1/chat/completions", {"model": name, "messages": messages, "max_tokens": 8, "temperature": 0})
                       for name in models]
            assert len({answer["choices"][0]["message"]["content"] for answer in answers}) == 1
            daemon.terminate()
            assert daemon.wait() == 0
        except BaseException:
            daemon.kill()
            log.seek(0)
            print(log.read())
            raise


def main():
    txdad, compiler, run, verify, fixture = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        model, case = directory + "/kimi", directory + "/case"
        os.mkdir(model)
        make(model, fixture)
        subprocess.run([verify, model, fixture + "/golden.safetensors", "--precise"], check=True)
        subprocess.run([compiler, model, "-o", case], check=True)
        for name in "tiktoken.model", "tokenizer_config.json":
            with open(f"{model}/{name}") as a, open(f"{case}/{name}") as b:
                assert a.read() == b.read()
        check_daemon(txdad, directory, {"checkpoint": model, "case": case})
        # Greedy: a random token may be the one that ends an answer.
        said = subprocess.run([run, "--private", "--temperature", "0", "--max-tokens", "4", case, "Hello"], check=True,
                              capture_output=True)
        assert said.stdout
    print("all checks passed")


if __name__ == "__main__":
    main()
