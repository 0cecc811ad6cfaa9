# SPDX-License-Identifier: MIT
"""count.py EVENT... - counts events of the chip behind accel0, as perf does; for each line of its
input it prints their counts, in bytes and nanoseconds."""
import ctypes
import os
import struct
import sys

PMU = "/sys/bus/event_source/devices/txda_0/"
PERF_EVENT_OPEN = 298
PERF_FLAG_FD_CLOEXEC = 8
syscall = ctypes.CDLL(None, use_errno=True).syscall


def read(name):
    with open(PMU + name) as f:
        return f.read().strip()


def perf_event_open(config, pid=-1, cpu=0, period=0):
    """A descriptor, or an error number below 0."""
    attr = struct.pack("<IIQQ", int(read("type")), 64, config, period).ljust(64, b"\0")
    fd = syscall(PERF_EVENT_OPEN, ctypes.create_string_buffer(attr, 64), pid, cpu, -1, PERF_FLAG_FD_CLOEXEC)
    return fd if fd >= 0 else -ctypes.get_errno()


def main():
    assert read("format/event") == "config:0-7"
    cpu = int(read("cpumask"))
    fds = []
    for name in sys.argv[1:]:
        key, value = read("events/" + name).split("=")
        assert key == "event"
        fds.append(perf_event_open(int(value, 0), cpu=cpu))
        if fds[-1] < 0:
            sys.exit("perf_event_open: " + os.strerror(-fds[-1]))
    for _ in sys.stdin:
        print(*(struct.unpack("<Q", os.read(fd, 8))[0] for fd in fds), flush=True)


if __name__ == "__main__":
    main()
