#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# flood.py PORT CONNECTIONS - so many TCP connections to the daemon without a valid key, all open at a time on this side: some say
# nothing, some begin a head, some promise a body, some try keys. Says "there" when all have been made, holds them until its standard
# input ends, and then says how many of them the daemon has not closed.
import os
import select
import socket
import sys

PER_PROCESS = 500
SAY = [
    b"",
    b"GET /health HTT",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\nExpect: 100-continue\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer no-key-of-this-daemon\r\n\r\n",
]


def hold(port, count, ready, begin):
    held = []
    for i in range(count):
        s = socket.create_connection(("127.0.0.1", port))
        try:
            s.sendall(SAY[i % len(SAY)])
        except OSError:
            pass  # closed for others already
        held.append(s)
    os.write(ready, b"x")
    select.select([begin], [], [])
    # What is closed, or answered and closed, can be read.
    is_open = 0
    for s in held:
        s.setblocking(False)
        try:
            while s.recv(65536):
                pass
        except BlockingIOError:
            is_open += 1
        except OSError:
            pass
    os.write(ready, is_open.to_bytes(4, "little"))


def main():
    port, connections = int(sys.argv[1]), int(sys.argv[2])
    ready_in, ready = os.pipe()
    begin, begin_out = os.pipe()
    children = 0
    while connections:
        count = min(connections, PER_PROCESS)
        connections -= count
        if not os.fork():
            os.close(begin_out)
            hold(port, count, ready, begin)
            os._exit(0)
        children += 1
    os.close(begin)
    for _ in range(children):
        os.read(ready_in, 1)
    print("there", flush=True)
    sys.stdin.read()
    os.close(begin_out)
    print(sum(int.from_bytes(os.read(ready_in, 4), "little") for _ in range(children)))
    status = 0
    for _ in range(children):
        status |= os.wait()[1]
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
