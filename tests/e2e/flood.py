#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# flood.py - TCP connections by the thousand, all open at a time on this side and without a valid key:
# some say nothing, some begin a head, some promise a body, some try keys. Who has a key is answered
# meanwhile, and the daemon's descriptors and memory are bounded. Then clients that leave while they
# are answered. FLOOD_CONNECTIONS is how many there are (10000).
import contextlib
import http.client
import json
import os
import re
import socket

from daemon import MODEL, PATIENCE, Daemon, check, conclude, directory, request_bytes, until

KEY = "sk-alice-0123456789abcdef"
CONNECTIONS = int(os.environ.get("FLOOD_CONNECTIONS", "10000"))
PER_PROCESS = 500
# An eighth of 1024 connections is for those whom nobody knows; and those who are answered.
UNKNOWN, DESCRIPTORS = 128, 160
MARGIN = int(os.environ.get("RSS_MARGIN_KIB", "32768"))
SAY = [
    b"",
    b"GET /health HTT",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\nExpect: 100-continue\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer no-key-of-this-daemon\r\n\r\n",
]
BODY = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 12, "seed": 7}
FOREVER = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True}


def hold(port, count, told, over):
    """Tells when all are there; at the end, how many the daemon has not closed."""
    held = []
    for i in range(count):
        held.append(socket.create_connection(("127.0.0.1", port)))
        with contextlib.suppress(OSError):  # closed for others already
            held[-1].sendall(SAY[i % len(SAY)])
    os.write(told, b"\0\0\0\0")
    os.read(over, 1)
    still_open = 0
    for s in held:
        s.setblocking(False)
        try:
            while s.recv(65536):
                pass
        except BlockingIOError:
            still_open += 1
        except OSError:
            pass
    os.write(told, still_open.to_bytes(4, "little"))


@contextlib.contextmanager
def flooding(port, left):
    """Yields how to ask whether all connections are there; @left gets how many of each process's are open at the end."""
    told_in, told = os.pipe()
    over, over_out = os.pipe()
    os.set_blocking(told_in, False)
    crew, there = [], []
    for at in range(0, CONNECTIONS, PER_PROCESS):
        crew.append(os.fork())
        if not crew[-1]:
            status = 1
            try:
                os.close(over_out)
                hold(port, min(PER_PROCESS, CONNECTIONS - at), told, over)
                status = 0
            finally:
                os._exit(status)
    os.close(over)

    def have_told(into):
        with contextlib.suppress(BlockingIOError):
            while len(into) < len(crew):
                into.append(int.from_bytes(os.read(told_in, 4), "little"))
        return len(into) == len(crew)
    yield lambda: have_told(there)
    os.close(over_out)
    check(until(lambda: have_told(left), PATIENCE), "a process of the flood does not end")
    for pid in crew:
        check(not os.waitpid(pid, 0)[1], "a process of the flood failed")


def choices(port):
    """Over TCP. On a starved machine a client may take too long over its head and is closed for others: it tries again."""
    for _ in range(20):
        with contextlib.suppress(OSError, http.client.HTTPException):
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as c:
                c.request("POST", "/v1/completions", json.dumps(BODY), {"Authorization": "Bearer " + KEY})
                return json.loads(c.getresponse().read()).get("choices")


def flood(d, port):
    before, left = d.sample_at_rest(), []
    with flooding(port, left) as all_there:
        more = True
        while more:  # while they come, and once after
            more = not all_there()
            want = d.post("/v1/completions", BODY)[1]["choices"]
            got = choices(port)
            fds = d.sample()["fds"]
            if not (check(got == want, f"in the flood TCP answers {got}, not {want}") and
                    check(fds <= before["fds"] + DESCRIPTORS, f"{fds} descriptors, {before['fds']} before")):
                break
        unknown, rss = d.metric("http_unauthenticated_connections"), d.sample()["rss"]
        check(unknown <= UNKNOWN, f"{unknown:.0f} connections of those whom nobody knows")
        check(rss <= before["rss"] + MARGIN, f"{rss} KiB of memory, {before['rss']} before")
        check(d.metric("http_evicted_connections_total") > 0, "nobody made room")
    check(sum(left) <= UNKNOWN, f"{sum(left)} connections of the flood were still open")
    check(until(lambda: d.sample()["fds"] <= before["fds"] + 1), f"it is over: {d.sample()['fds']} descriptors")
    check(d.metric("http_unauthenticated_connections") == 0, "connections are left")
    print(f"{CONNECTIONS} connections: {d.metric('http_evicted_connections_total'):.0f} made room, {sum(left)} were open at the end; "
          f"memory {before['rss']}, then {rss} KiB")


def leave(d, port):
    """As a client that is killed: with a stream of which not all is read, and while it waits."""
    for stream in (True, False):
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(request_bytes("POST", "/v1/completions", {**FOREVER, "stream": stream}, f"Authorization: Bearer {KEY}\r\n"))
            check(until(lambda: d.metric("num_requests_running") == 1), "a request over TCP does not run")
            if stream:
                s.recv(1)
        check(until(d.idle), f"a request whose client left goes on (stream: {stream})")


def main():
    with directory() as where:
        with open(where + "/keys", "w") as f:
            f.write(f"alice:{KEY}\n")
        os.chmod(where + "/keys", 0o600)
        options = ["--model", "demo=" + MODEL, "--port", "0", "--api-key-file", where + "/keys", "--no-access-log"]
        with Daemon(*options, model=False, env={"FAKE_TOKEN_US": "5000"}) as d:
            port = int(re.search(r"listening on http://127\.0\.0\.1:(\d+)", d.log())[1])
            leave(d, port)
            flood(d, port)
    conclude()


main()
