#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# torture.py SOCKET COUNT [SEED] - sends random and broken requests to a txdad. Each is one of a few
# sound requests, changed in some bytes, cut short, sent in pieces, or left without reading the
# answer. Each answer that is read must be HTTP with a known status, and one with an error must be
# JSON in OpenAI's shape. At the end /health must say 200.
import random
import re
import socket
import sys

SEEDS = [
    b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\nGET /version HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 123\r\n\r\n"
    b'{"model":"demo","messages":[{"role":"user","content":"Hello \\u00fc fox"}],"max_tokens":2,"seed":7,"logprobs":true,   "x":1}',
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 97\r\n\r\n"
    b'{"messages":[{"role":"user","content":"Hi"}],"max_tokens":3,"stream":true,"stop":["a","bcd"]    }',
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'20\r\n{"prompt":[[1,2,3],[4,5]],"n":2,\r\n1d\r\n"max_tokens":2,"echo":true } \r\n0\r\n\r\n',
    b"POST /v1/completions HTTP/1.0\r\nContent-Length: 42\r\nExpect: 100-continue\r\n\r\n"
    b'{"prompt":["a","b"],"max_tokens":1,"n":1 }',
]
SPICE = b"{}[]\":,\\\r\n 0123456789e-%\xff\x00\x80;"
KNOWN = {100, 200, 400, 404, 405, 408, 413, 414, 415, 417, 429, 431, 501, 503, 505}


def changed(data, r):
    data = bytearray(data)
    for _ in range(r.randrange(6)):
        if not data:
            break
        at, n, how = r.randrange(len(data)), r.randrange(1, 9), r.randrange(6)
        if how == 0:
            data[at] ^= 1 << r.randrange(8)
        elif how == 1:
            data[at] = r.randrange(256)
        elif how == 2:
            data[at] = r.choice(SPICE)
        elif how == 3:
            del data[at:at + n]
        elif how == 4:
            data[at:at] = data[at:at + n]
        else:
            del data[at:]
    return bytes(data)


def large(r):
    """So that a leak shows: a long header, a long body, or noise."""
    n = r.randrange(1000, 64000)
    return r.choice([b"GET / HTTP/1.1\r\nX: " + b"a" * n, r.randbytes(n), b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                     b'Content-Length: %d\r\n\r\n{"prompt":"' % n + b"a" * n])


def torture(path, r):
    """What was wrong with the answer to a request."""
    data = changed(r.choice(SEEDS), r) if r.randrange(10) else large(r)
    how = r.randrange(8)
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        s.settimeout(60)
        answer = b""
        try:
            at = 0
            while at < len(data):
                n = len(data) if r.randrange(4) else r.randrange(1, len(data) - at + 1)
                at += s.send(data[at:at + n])
            if how == 5:
                s.setblocking(False)
                s.recv(1)
            elif how < 5:
                # The end of what comes makes the server answer at once, whole request or not.
                s.shutdown(socket.SHUT_WR)
                while part := s.recv(65536):
                    answer += part
        except TimeoutError:
            return f"no end of the answer to {data!r}"
        except OSError:
            pass  # closed, or nothing there yet
    status = re.match(rb"HTTP/1.1 (\d{3}) ", answer)
    if answer and (not status or int(status[1]) not in KNOWN):
        return f"{answer[:200]!r}, asked {data!r}"
    if answer and int(status[1]) >= 400 and not data.startswith(b"HEAD") and b'{"error":{"message":"' not in answer:
        return f"an error of another shape: {answer[:200]!r}, asked {data!r}"


def main():
    path, count, r = sys.argv[1], int(sys.argv[2]), random.Random(sys.argv[3] if len(sys.argv) > 3 else 0)
    for i in range(count):
        if wrong := torture(path, r):
            sys.exit(f"request {i}: {wrong}")
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        if not s.recv(65536).startswith(b"HTTP/1.1 200 "):
            sys.exit("it is not healthy")
    print(f"{count} requests, and it is healthy")


main()
