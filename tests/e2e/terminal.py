#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Somebody at a terminal: terminal.py COMMAND [ARGUMENT...] <SCRIPT

Runs the command on a terminal of its own, 24 lines of 80 columns, and does what the script says, a line each:

  see TEXT      waits for TEXT on the screen, behind what was seen before
  type TEXT     types it; \\r, \\n, \\t, \\e, \\\\ and \\xNN as in C
  run COMMAND   runs it by sh, with the pid of what is at the terminal as $pid; it must succeed
  signal N      sends signal N
  resize N      makes the screen N columns wide
  hangup        closes the terminal
  status N      waits for the end, with exit status N, or 128 + the number of a signal

What the screen is told apart from text (escape sequences, carriage returns, bells) is left out. Nothing is timed; what takes 120
seconds is not going to happen, and the test fails with all that was on the screen.
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

SECONDS = 120


class Terminal:
    def __init__(self, command):
        self.raw, self.seen, self.master = b"", 0, -1
        self.pid, self.master = pty.fork()
        if not self.pid:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
            self.resize(80, 0)
            os.execvp(command[0], command)
        os.environ["pid"] = str(self.pid)

    def resize(self, columns, fd=None):
        fcntl.ioctl(self.master if fd is None else fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def screen(self):
        """Text alone: no CSI sequences, no other control characters but line breaks."""
        text = re.sub(rb"\x1b\[[^\x40-\x7e]*[\x40-\x7e]|\x1b[^\[]|[\x00-\x09\x0b-\x1a\x1c-\x1f]", b"", self.raw)
        return re.sub(rb"\x1b.*$", b"", text, flags=re.S)

    def fail(self, *words):
        print("FAIL:", *words, "\n--- the screen:\n" + self.screen().decode(errors="replace"))
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
        sys.exit(1)

    def read_more(self, end):
        """Reads what there is, or waits a little for more; False at the end of the terminal."""
        if time.monotonic() > end:
            self.fail("nothing more within the time that a test may take")
        if not select.select([self.master], [], [], 0.05)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:
            data = b""
        self.raw += data
        return bool(data)

    def see(self, text):
        end = time.monotonic() + SECONDS
        while (at := self.screen().find(text, self.seen)) < 0:
            if not self.read_more(end):
                self.fail("the terminal ended before", text)
        self.seen = at + len(text)

    def type(self, text):
        """The command may show something meanwhile: who waits for it to read must read, too."""
        text = re.sub(rb"\\(x..|.)", lambda m: bytes([int(m[1][1:], 16)]) if m[1][:1] == b"x" else
                      {b"r": b"\r", b"n": b"\n", b"t": b"\t", b"e": b"\x1b", b"\\": b"\\"}[m[1]], text)
        end = time.monotonic() + SECONDS
        while text:
            if select.select([], [self.master], [], 0)[1]:
                text = text[os.write(self.master, text[:256]):]
            if not self.read_more(end):
                self.fail("the terminal ended before all was typed:", text)

    def hangup(self):
        os.close(self.master)
        self.master = -1

    def status(self, wanted):
        end = time.monotonic() + SECONDS
        while self.master >= 0 and self.read_more(end):
            pass
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            if time.monotonic() > end:
                self.fail("it does not end")
            time.sleep(0.01)
        self.pid = 0
        code = os.waitstatus_to_exitcode(ended[1])
        if (code if code >= 0 else 128 - code) != wanted:
            self.fail(f"exit status {code}, not {wanted}")


def main():
    t = Terminal(sys.argv[1:])
    for line in sys.stdin.buffer:
        verb, _, rest = line.rstrip(b"\n").partition(b" ")
        if verb == b"see":
            t.see(rest)
        elif verb == b"type":
            t.type(rest)
        elif verb == b"run":
            if subprocess.run(["sh", "-c", rest]).returncode:
                t.fail("failed:", rest)
        elif verb == b"signal":
            os.kill(t.pid, int(rest))
        elif verb == b"resize":
            t.resize(int(rest))
        elif verb == b"hangup":
            t.hangup()
        elif verb == b"status":
            t.status(int(rest))
        elif verb:
            t.fail("unknown:", line)
    if t.pid:
        t.fail("it still runs at the end of the script")


main()
