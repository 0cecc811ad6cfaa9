# SPDX-License-Identifier: MIT
"""firmware.py IMAGE DIR - copies of a good firmware image with one field changed and a checksum that fits, into
DIR/FIELD-VALUE."""
import os
import struct
import sys

CHANGES = {
    "magic": (0, "I", 0x12345678),
    "header-9": (4, "H", 9),
    "family-7": (24, "I", 7),
    "map-1.9": (28, "I", 0x10009),
    "map-2.0": (28, "I", 0x20000),
    "interface-2.0": (32, "I", 0x20000),
    "carveout-256G": (40, "Q", 0x4000000000),
    "carveout-64M": (40, "Q", 0x4000000),
}


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


os.makedirs(sys.argv[2], exist_ok=True)
with open(sys.argv[1], "rb") as f:
    good = f.read()
for name, (at, form, value) in CHANGES.items():
    data = bytearray(good)
    struct.pack_into("<" + form, data, at, value)
    struct.pack_into("<I", data, 16, 0)
    struct.pack_into("<I", data, 16, crc32c(data))
    with open(os.path.join(sys.argv[2], name), "wb") as f:
        f.write(data)
