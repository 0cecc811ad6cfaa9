#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# pictures.py [OPTION...] - models that see, through the daemon: the golden fixtures from their
# picture files, in company and in pieces, where pictures may come from, how many a user may have,
# and hostile ones. What decoders make of a picture is for test_image_decode.
import base64
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile

from bombs import bombs, gif, gif_frame, mutated, png, webp
from daemon import (MODEL, Daemon, at_once, beside, check, conclude, connect, log_probability, numbers, raw_request,
                    read_answer, read_tensors, request_bytes, until)

FIXTURES = os.environ["FIXTURES"]
ROOT = os.getuid() == 0
NOBODY = 65534
# Greedy tokens are the reference's in float32; with bf16 inputs a near tie may fall the other way,
# so a run counts as far as the reference's margin is larger than that.
MARGIN = 0.06
GOOD, OTHER = png(40, 30), png(40, 30, lambda x, y: (y, x, 9))


def at(url, **more):
    return {"type": "image_url", "image_url": {"url": url, **more}}


def uri(data, kind="image/png", **more):
    return at(f"data:{kind};base64," + base64.b64encode(data).decode(), **more)


def show(*parts):
    return [{"role": "user", "content": [*parts, {"type": "text", "text": "What is it?"}]}]


def chat_body(model, messages, **more):
    return {"model": model, "messages": messages, "temperature": 0, "ignore_eos": True, "logprobs": True, **more}


def chat(d, model, messages, uid=None, groups=(), **more):
    """(status, what is the same to the last bit whenever it is asked, or the error's words)"""
    status, answer = d.post("/v1/chat/completions", chat_body(model, messages, **more), uid, groups)
    return status, json.dumps([c["logprobs"]["content"]
                               for c in answer["choices"]]) if status == 200 else answer["error"]["message"]


def messages_of(model, text):
    """The messages of a case as OpenAI has them."""
    messages = json.loads(text)
    for message in messages:
        for i, part in enumerate(message["content"]):
            if part["type"] == "image":
                with open(f"{FIXTURES}/{model}/{part['image']}", "rb") as f:
                    message["content"][i] = uri(f.read(), "image/jpeg" if part["image"].endswith("jpg") else "image/png")
    return messages


def cases_of(model):
    metadata, golden = read_tensors(f"{FIXTURES}/{model}/golden.safetensors")
    return [messages_of(model, metadata[f"case{i}.messages"]) for i in range(int(metadata["cases"]))], golden


def check_golden(d, model):
    cases, golden = cases_of(model)
    compared = 0
    for i, messages in enumerate(cases):
        ids, greedy, margin, last = (numbers(golden[f"case{i}.{name}"]) for name in ("ids", "greedy", "margin", "last"))
        got = d.tokens(model, messages, add_generation_prompt=True)
        check(got == list(ids), f"{model}: case {i}: the prompt: {str(got)[:60]}")
        status, answer = d.post("/v1/chat/completions", chat_body(model, messages, max_tokens=24))
        if not check(status == 200 and answer["usage"]["prompt_tokens"] == len(ids),
                     f"{model}: case {i}: {status} {answer}"):
            continue
        entries = answer["choices"][0]["logprobs"]["content"]
        limit = 6 * 1.5e-2 * math.sqrt(sum(x * x for x in last) / len(last))
        off = abs(entries[0]["logprob"] - log_probability(last, greedy[0]))
        check(off <= limit, f"{model}: case {i}: the first log probability is off by {off:.1e}; {limit:.1e} is allowed")
        sure = next((k for k in range(len(greedy)) if margin[k] < MARGIN), len(greedy))
        want = [d.post("/detokenize", {"model": model, "tokens": [token]})[1]["prompt"] for token in greedy[:sure]]
        check([e["token"] for e in entries[:sure]] == want, f"{model}: case {i}: not {want}: {entries[:sure]}")
        compared += sure
    check(compared >= len(cases), f"{model}: only {compared} greedy tokens of the cases were compared")


def check_company(d, model):
    """A request with an image gives the same bits alone, again (from the caches), and among others."""
    cases, golden = cases_of(model)
    parts = golden["case1.target_sizes"][1][0] if "case1.target_sizes" in golden else 1  # a picture and its slices
    ask = dict(max_tokens=16, top_logprobs=3)

    def encoded():
        return d.metric("images_encoded_total", model)
    alone = [chat(d, model, messages, **ask) for messages in cases]
    before = encoded()
    check([chat(d, model, messages, **ask) for messages in cases] == alone, f"{model}: other bits from the caches")
    check(encoded() == before, f"{model}: an image is encoded twice")
    if ROOT:
        check(chat(d, model, cases[1], NOBODY, **ask) == alone[1], f"{model}: another user gets other bits")
        check(encoded() == before + parts, f"{model}: users share embeddings")
    together = at_once([lambda m=m: chat(d, model, m, **ask) for m in cases * 2], 2 * len(cases))
    check(together == alone * 2, f"{model}: other bits among others")
    for n, tokens in ((3, 16), (6, 64)):
        several = json.loads(chat(d, model, cases[1], n=n, max_tokens=tokens, top_logprobs=3)[1])
        check(len({json.dumps(s) for s in several}) == 1, f"{model}: other bits with n = {n}")
        check(n == 6 or several[:1] == json.loads(alone[1][1]), f"{model}: other bits with several choices")
    alone.append(several)
    # Another picture of the same size is another prompt.
    one, two = (chat(d, model, show(uri(png(64, 48, pixel))), **ask)
                for pixel in (lambda x, y: (x * 4, y * 5, 90), lambda x, y: (90, x * 4, y * 5)))
    check(one != two, f"{model}: other pixels, the same bits")
    return alone


def check_sources(d, model, where):
    """Pictures as files below --image-dir, with the client's permissions."""
    inside = where + "/images"
    for path, data in ((inside + "/a b.png", GOOD), (inside + "/empty", b""), (inside + "/no.png", b"\x89PNG broken"),
                       (where + "/outside.png", GOOD)):
        with open(path, "wb") as f:
            f.write(data)
    os.makedirs(inside + "/deep/er")
    os.link(inside + "/a b.png", inside + "/deep/er/a.png")
    for target, name in (("../outside.png", "out"), ("a b.png", "near"), ("..", "up")):
        os.symlink(target, f"{inside}/{name}")
    os.mkfifo(inside + "/fifo")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(inside + "/socket")

    def ask(url, *who):
        return chat(d, model, show(at(url)), *who, max_tokens=4)
    want = ask(uri(GOOD)["image_url"]["url"])
    for url in (f"file://{inside}/a%20b.png", f"file://localhost{inside}/a%20b.png", f"file:{inside}/deep/./er//a.png",
                f"FILE://{inside}/a%20b.pn%67"):
        check(ask(url) == want, f"{url}: not the same bits as in a URI")
    for url, status, words in (
            (f"{inside}/none", 400, "No such file"), (f"{inside}/empty", 400, "empty"),
            (f"{inside}/no.png", 400, "picture 0"),
            (f"{inside}/fifo", 400, "regular"), (f"{inside}/socket", 400, "regular"), (f"{inside}/deep", 400, "regular"),
            (f"{inside}/out", 400, "symbolic"), (f"{inside}/near", 400, "symbolic"),
            (f"{inside}/up/outside.png", 400, "symbolic"),
            (f"{inside}/../outside.png", 403, "denied"), (f"{inside}/deep/%2e%2e/../../outside.png", 403, "denied"),
            (f"{where}/outside.png", 403, "--image-dir"), ("/dev/zero", 403, "--image-dir"),
            (f"{inside}x/a", 403, "--image-dir"),
            (inside, 403, "--image-dir"), (f"{inside}/a%00.png", 400, "file:///"), (f"{inside}/a%2", 400, "file:///"),
            (f"{inside}/" + "n" * 300, 400, "too long"), (f"{inside}/a%20b.png/x", 400, "directory"),
            ("elsewhere/a.png", 400, "file:///")):
        got, message = ask("file://" + url)
        check(got == status and words in message, f"{url[-40:]}: {got} {message[:120]}")
    if not ROOT:
        return
    os.makedirs(inside + "/closed")
    os.makedirs(inside + "/group")
    for name, mode, uid, gid in (("root", 0o600, 0, 0), ("own", 0o400, NOBODY, 0), ("group/own", 0o640, 0, NOBODY),
                                 ("not", 0o077, NOBODY, 0),
                                 ("closed/open", 0o644, 0, 0), ("barred", 0o604, 0, 4242), ("closed", 0o700, 0, 0),
                                 ("group", 0o710, 0, NOBODY)):
        if not os.path.isdir(f"{inside}/{name}"):
            with open(f"{inside}/{name}", "wb") as f:
                f.write(GOOD)
        os.chmod(f"{inside}/{name}", mode)
        os.chown(f"{inside}/{name}", uid, gid)
    # Who has more groups than the daemon looks at is not taken for one who is in none of them.
    for name, status, groups in (("a%20b.png", 200, ()), ("own", 200, ()), ("group/own", 200, ()), ("root", 403, ()),
                                 ("not", 403, ()),
                                 ("closed/open", 403, ()), ("barred", 200, ()), ("barred", 403, (4242,)),
                                 ("barred", 403, tuple(range(4200, 4270)))):
        got = ask(f"file://{inside}/{name}", NOBODY, groups)
        check(got == want if status == 200 else got[0] == status,
              f"{name} for another user of {len(groups)} groups: {got[0]} {got[1][:80]}")
    check(ask(f"file://{inside}/closed/open") == want, "what the other user may not see is not there")


def check_descriptors(d, model):
    """Pictures in memory that is passed; test_descriptors has what is no memory."""
    def memory(data):
        fd = os.memfd_create("picture")
        os.write(fd, data)
        return fd

    def send(fds, url):
        s, = connect(d.path)
        data = request_bytes("POST", "/v1/chat/completions", chat_body(model, show(at(url)), max_tokens=4))
        with s:
            s.sendall(data[socket.send_fds(s, [data], fds):])
            status, data = read_answer(s)
        answer = json.loads(data)
        return status, json.dumps([c["logprobs"]["content"]
                                   for c in answer["choices"]]) if status == 200 else answer["error"]["message"]
    # A file of a disk; /tmp may be memory.
    fds = [memory(OTHER), memory(GOOD), memory(b""), os.open(sys.executable, os.O_RDONLY),
           os.open("/dev/zero", os.O_RDONLY)]
    want = chat(d, model, show(uri(GOOD)), max_tokens=4)
    check(send(fds, "fd:1") == want, "a descriptor: not the same bits as in a URI")
    os.lseek(fds[1], 7, os.SEEK_SET)
    check(send(fds[1:2], "fd:0") == want, "a descriptor that was read before")
    for n, k, words in ((5, 2, "empty"), (5, 3, "memfd"), (5, 4, "memfd"), (5, 5, "5 descriptors"),
                        (5, 99999999999999999999, "descriptors"),
                        (5, "x", "fd:N"), (5, "-1", "fd:N"), (5, "", "fd:N"), (0, 0, "0 descriptors")):
        status, message = send(fds[:n], f"fd:{k}")
        check(status == 400 and words in message, f"descriptor {k}: {status} {message[:100]}")
    check(send(fds[:1] * 17, "fd:0")[0] == 400, "17 descriptors")

    def change():
        os.ftruncate(fds[0], 10)
        os.pwrite(fds[0], GOOD, 0)
    # Whatever is read is a picture or an error, and the daemon goes on.
    with beside(change):
        statuses = {send(fds[:1], "fd:0")[0] for _ in range(20)}
    check(statuses <= {200, 400}, f"one that changes: {statuses}")
    for fd in fds:
        os.close(fd)


def check_details(d, model):
    low, high, auto = (chat(d, model, show(uri(png(1200, 800), detail=detail)), max_tokens=4)
                       for detail in ("low", "high", "auto"))
    check(low != high == auto, "a large picture is not shrunk for low detail")
    check(len({chat(d, model, show(uri(GOOD, detail=detail)), max_tokens=4)
               for detail in ("low", "high", "auto")}) == 1, "details of a small one")


def check_embeddings(d, model):
    """Vectors of messages with pictures, as vLLM takes them."""
    def embed(**more):
        return d.post("/v1/embeddings", {"model": "vl-embedding", **more})
    hello = [{"role": "user", "content": "Once"}]
    vectors = []
    for messages in show(uri(GOOD)), show(uri(OTHER)), hello:
        status, answer = embed(messages=messages)
        n = len(d.tokens(model, messages, add_generation_prompt=False))
        if check(status == 200 and answer["usage"] == {"prompt_tokens": n, "total_tokens": n},
                 f"a vector: {status} {str(answer)[:100]}"):
            vectors.append(answer["data"])
    check(vectors[0] != vectors[1], "other pictures, the same vector")
    check(vectors[2] == embed(input=d.tokens(model, hello, add_generation_prompt=False))[1]["data"],
          "messages of text alone are not their text")
    check("exclude" in str(embed(messages=hello, input="a")), "input and messages")


def check_user_limits(d, model):
    """Of a request, and beside one that goes on: what others of the same user may have, and what is told of them."""
    picture, user = uri(GOOD), f'{{user="{os.getuid()}"}}'
    for parts, words in (([picture] * 4, "4 images; the limit is 3 (--max-user-images)"),
                         ([uri(png(100, 80))], "8000 pixels; the limit is 5000 (--max-user-pixels)")):
        status, message = chat(d, model, show(*parts), max_tokens=1)
        check(status == 400 and words in message, f"a user's images: {status} {message}")
    read = d.metric("user_images_total" + user)
    for parts, pixels, words in (([picture] * 3, 3600, "4 images; the limit is 3 (--max-user-images)"),
                                 ([uri(png(70, 60))], 4200, "5400 pixels; the limit is 5000 (--max-user-pixels)")):
        stream = raw_request(d.path, "/v1/chat/completions", chat_body(model, show(*parts), max_tokens=4000, stream=True))
        stream.recv(1)
        now = d.metric("user_images" + user), d.metric("user_image_pixels" + user)
        status, message = chat(d, model, show(picture), max_tokens=1)
        check(status == 429 and words in message, f"together too many: {status} {message}")
        check(now == (len(parts), pixels), f"what the user has: {now}")
        check(not ROOT or chat(d, model, show(picture), NOBODY, max_tokens=1)[0] == 200, "another user meanwhile")
        stream.close()
        read += len(parts)
        check(until(lambda: not d.metric("user_images" + user) and not d.metric("user_image_pixels" + user)),
              "they are not given back")
    check(until(lambda: d.metric("user_images_total" + user) >= read), "they are not counted")
    check(chat(d, model, show(*[picture] * 3), max_tokens=1)[0] == 200, "they are not there for the next")


def check_run(d, model):
    """txda-run shows a picture as any client does, also paths in a chat at a terminal, as terminals paste what is dropped on them."""
    command = [os.environ["TXDA_RUN"], "--socket", d.path, "--model", model]

    def run(*words):
        return subprocess.run([*command, "-n", "8", "--temperature", "0", *words], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
    images = f"{FIXTURES}/{model}/images/"
    with open(images + "a.png", "rb") as f:
        messages = show(*[uri(f.read())] * 2)
    _, answer = d.post("/v1/chat/completions", {"model": model, "messages": messages, "temperature": 0, "max_tokens": 8})
    said, done = answer["choices"][0]["message"]["content"], run("--image", images + "a.png", "--image",
                                                                 images + "a.png", "What is it?")
    check(done.returncode == 0 and done.stdout.strip() == said.strip(),
          f"txda-run: {done.stdout!r}, not {said!r}: {done.stderr}")
    for status, words in ((1, ["--image", images + "none", "Hello"]),
                          (2, ["--raw", "--image", images + "a.png", "Hello"]), (2, ["--image", images + "a.png"])):
        check(run(*words).returncode == status, f"txda-run {words}")
    with tempfile.TemporaryDirectory() as home:
        for name, source in (("plain.png", "a.png"), ("two words.png", "c.png"), ("it's.jpg", "b.jpg")):
            shutil.copyfile(images + source, f"{home}/{name}")
        with open(home + "/no.png", "w") as f:
            f.write("These are words, however it is called.")
        spaced = f"{home}/two words.png"
        lines = [(f"{home}/plain.png What is it?", ["plain.png"], "What is it?"),
                 (f"'{spaced}'  And this?", ["two words.png"], "And this?"),
                 (f'"{spaced}"', ["two words.png"], ""),
                 (spaced.replace(" ", "\\\\ ") + " ./plain.png Both?", ["two words.png", "plain.png"], "Both?"),
                 (spaced + " ", ["two words.png"], ""),
                 (f"'{home}/it'\\\\''s.jpg' 'quoted' words", ["it's.jpg"], "'quoted' words"),
                 ("plain.png is a name.", [], "plain.png is a name.")]
        script = "see > \n"
        for line, shown, _ in lines:
            script += f"type {line}\\r\n" + "see Shown: \n" * len(shown) + "see FTL \nsee > \n"
        for other in (f"{home}/no.png", f"{home}/none.png", home):
            script += f"type {other} What?\\r\nsee Unknown command\nsee > \n"
        script += "type /save said.json\\r\nsee Saved 14 messages.\nsee > \ntype /load said.json\\r\nsee Loaded 14 messages.\nsee > \n"
        with open(home + "/bad.json", "w") as f:
            f.write('[{"role":"user","content":[{"type":"text","text":"A"},{"type":"image_url","image_url":{"url":7}}]}]')
        script += "type /load bad.json\\r\nsee message 1 has no text\nsee > \ntype /exit\\r\nstatus 0\n"
        terminal = [sys.executable, os.path.dirname(os.path.abspath(__file__)) + "/terminal.py"]
        done = subprocess.run([*terminal, *command, "-n", "2", "--stats"], input=script, capture_output=True,
                              text=True, cwd=home,
                              env={**os.environ, "HOME": home, "XDG_STATE_HOME": home, "TERM": "xterm"})
        if not check(done.returncode == 0, f"paths in a chat: {done.stdout}{done.stderr}"):
            return
        with open(home + "/said.json") as f:
            said = [message["content"] for message in json.load(f) if message["role"] == "user"]
        for content, (line, shown, text) in zip(said, lines):
            want = []
            for name in shown:
                with open(f"{home}/{name}", "rb") as f:
                    want.append(uri(f.read(), "application/octet-stream"))
            want += [{"type": "text", "text": text}] if shown and text else []
            check(content == (want or text), f"{line}: {str(content)[-80:]}")


def check_hostile(d, model, messages, alone):
    """
    Clear errors, or what is in the picture, while another client is answered as ever, and nothing of
    it stays. TXDA_MUTATIONS=10000: so many broken ones of each kind.
    """
    with open(f"{FIXTURES}/{model}/images/b.jpg", "rb") as f:
        jpeg = f.read()
    answers, traps = set(), list(bombs(jpeg))

    def text(data):
        return at("data:image/png;base64," + data)
    with beside(lambda: answers.add(chat(d, model, [{"role": "user", "content": "Tell me more."}], max_tokens=24))):
        for again in (False, True):
            for what, parts, words in (
                    ("a truncated picture", [uri(GOOD[:len(GOOD) // 2])], "picture 0"),
                    ("no picture", [uri(b"\0" * 1000)], "picture 0"),
                    ("an empty one", [uri(b"")], "empty"),
                    ("the second of two broken", [uri(GOOD), uri(GOOD[:60])], "picture 1"),
                    ("no base64", [text("AA#A")], "not base64: byte 2 of 4 is 0x23"),
                    ("lines of base64", [text("AAAA\n")], "not base64: byte 4 of 5 is 0x0a"),
                    ("base64 that is cut", [text("AAAAB")], "byte 4 of 5 is 0x42"),
                    ("padding alone", [text("==")], "empty"),
                    ("another scheme", [at("http://localhost/a.png")], "data:"),
                    ("a file", [at("file:///etc/passwd")], "--image-dir"),
                    ("a detail of another kind", [at("data:,", detail="much")], "detail"),
                    ("too many", [uri(GOOD)] * 17, "--max-images"),
                    ("no URL", [{"type": "image_url", "image_url": {}}], "image_url"),
                    ("a placeholder in the text", [uri(GOOD), {"type": "text", "text": "<|image_pad|>"}], "places")):
                status, message = chat(d, model, show(*parts), max_tokens=1)
                check(status == 400 and words in message, f"{what}: {status} {message[:120]}")
            for what, data, want in traps:
                status, said = chat(d, model, show(uri(data)), max_tokens=2)
                if isinstance(want, bytes):
                    check(status == 200 and (status, said) == chat(d, model, show(uri(want)), max_tokens=2),
                          f"{what}: {status} {said[:120]}")
                else:
                    check(status == 400 and want in said and "picture 0" in said, f"{what}: {status} {said[:200]}")
            before = before if again else d.sample()["rss"]
        for kind, data in (("JPEG", jpeg), ("PNG", GOOD), ("GIF", gif(40, 30, gif_frame(40, 30))), ("WebP", webp(40, 30))):
            for seed in range(int(os.environ.get("TXDA_MUTATIONS", "12"))):
                status, said = chat(d, model, show(uri(mutated(data, seed))), max_tokens=2)
                check(status == 200 or status == 400 and "picture 0" in said, f"broken {kind} {seed}: {status} {said[:120]}")
        # Decoding it takes longer, on any machine.
        status, message = chat(d, model, show(uri(webp(8000, 8000))), max_tokens=1, timeout=0.05)
        check(status == 504 and "within 0.05 s" in message,
              f"a picture that takes longer than the request may: {status} {message}")
        check(chat(d, model, show(text("A" * (9 << 20))))[0] == 413, "a huge URI")
        status, message = chat(d, "demo", show(uri(GOOD)), max_tokens=1)
        check(status == 400 and "does not support images" in message, f"a model that does not see: {message}")
    margin = int(os.environ.get("RSS_MARGIN_KIB", "16384"))
    check(d.rss_below(before + margin) <= before + margin,
          f"the daemon had {before} KiB in memory, and now {d.sample()['rss']}")
    check(len(answers) == 1, f"another client's answers meanwhile: {answers}")
    check(chat(d, model, messages, max_tokens=16, top_logprobs=3) == alone, "other bits after all this")


def serve(models, *options):
    named = [word for name in models for word in ("--model", f"{os.path.basename(name)}={os.path.join(FIXTURES, name)}")]
    return Daemon("--socket-mode", "0666", "--cache-dir", os.environ["CACHE_DIRECTORY"], *options, *named, model=False)


def more_of_one_model(model):
    """Where pictures come from, in what detail, for vectors, how many."""
    with tempfile.TemporaryDirectory() as where:
        embedding = where + "/vl-embedding"
        shutil.copytree(f"{FIXTURES}/{model}", embedding)
        # As newer versions write it.
        with open(embedding + "/preprocessor_config.json") as f:
            processor = json.load(f)
        os.remove(embedding + "/preprocessor_config.json")
        os.mkdir(embedding + "/1_Pooling")
        os.mkdir(where + "/images")
        os.chmod(where, 0o755)
        for name, what in (("processor_config", {"image_processor": processor}),
                           ("1_Pooling/config", {"pooling_mode_lasttoken": True}),
                           ("modules", [{"idx": 0, "type": "sentence_transformers.models.Transformer", "path": ""},
                                        {"idx": 1, "type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}])):
            with open(f"{embedding}/{name}.json", "w") as f:
                json.dump(what, f)
        with serve([model, embedding], "--image-dir", where + "/images", "--kv-cache-memory", "2M") as d:
            check_sources(d, model, where)
            check_descriptors(d, model)
            check_details(d, model)
            check_embeddings(d, model)
    with serve([model], "--max-user-images", "3", "--max-user-pixels", "5000") as d:
        check_user_limits(d, model)


def main():
    options, first = sys.argv[1:], "qwen2_vl"
    models = [first, "qwen25_vl", "qwen3_vl", "glm4v", "llava_next", "minicpmv46", "qwen3_vl_moe", "qwen35"]
    alone = {}
    with serve([*models, MODEL], *options) as d:
        for name in models:
            check_golden(d, name)
        for name in (first, "qwen3_vl", "minicpmv46"):
            alone[name] = check_company(d, name)
        if not options:
            check_run(d, first)
            check_hostile(d, first, cases_of(first)[0][1], alone[first][1])
    if not options:
        more_of_one_model(first)
    # Prompts in pieces that end within images, and blocks for a few sequences only: the same bits.
    small = ["--max-num-batched-tokens", "7", "--max-num-seqs", "7", "--max-model-len", "128", "--kv-cache-memory"]
    for name, memory in ((first, "48K"), ("qwen3_vl", "96K")):
        with serve([name], *options, *small, memory) as d:
            check(check_company(d, name) == alone[name], f"{name}: other bits in pieces")
            check(d.metric("num_preemptions_total", name) > 0, f"{name}: no sequences were preempted")
    conclude()


main()
