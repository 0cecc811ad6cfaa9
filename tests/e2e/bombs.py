# SPDX-License-Identifier: MIT
#
# Pictures that want to be more than they are: small files of huge pictures, files without an end, and
# tables that lead back to themselves.
import struct
import zlib


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def plain(x, y):
    return x, y, x + y


def png(width, height, pixel=plain, rows=None, before=b"", behind=b""):
    """A PNG of those sizes; rows: so many of them only, and black; chunks before and behind those of the pixels."""
    lines = b"".join(b"\0" + bytes(v & 255 for x in range(width) for v in pixel(x, y))
                     for y in range(height)) if rows is None else bytes((3 * width + 1) * rows)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + before +
            chunk(b"IDAT", zlib.compress(lines, 1)) + behind + chunk(b"IEND", b""))


def gif_frame(width, height):
    """All pixels are the first colour: codes of 3 bits, "forget" before every two pixels."""
    codes = [code for _ in range((width * height + 1) // 2) for code in (4, 0, 0)][:width * height * 3 // 2 + 1] + [5]
    bits = sum(code << 3 * i for i, code in enumerate(codes))
    data = bits.to_bytes((3 * len(codes) + 7) // 8, "little")
    blocks = b"".join(bytes([len(data[i:i + 255])]) + data[i:i + 255] for i in range(0, len(data), 255))
    return b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\2" + blocks + b"\0"


def gif(width, height, *parts):
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes((9, 9, 9, 200, 90, 30)) + b"".join(parts)


def webp_chunk(kind, data):
    return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def webp(width, height):
    """One colour, in a few bytes, however large it is."""
    bits, at = 0, 0
    # Signature, sizes, no alpha, version; no transform, colour cache, further codes; five codes of one symbol.
    for value, n in ((0x2f, 8), (width - 1, 14), (height - 1, 14), (0, 4), (0, 3), *([(1, 4)] * 5), (0, 32)):
        bits |= value << at
        at += n
    data = webp_chunk(b"VP8L", bits.to_bytes((at + 7) // 8, "little"))
    return b"RIFF" + struct.pack("<I", 4 + len(data)) + b"WEBP" + data


def animated_webp(frames):
    one = webp(40, 30)[12:]
    frame = webp_chunk(b"ANMF", struct.pack("<IIII", 0, 39 << 16, 29 << 8, 0) + one)
    data = (webp_chunk(b"VP8X", struct.pack("<I", 2) + b"\x27\0\0\x1d\0\0") + webp_chunk(b"ANIM", bytes(6)) + frame * frames)
    return b"RIFF" + struct.pack("<I", 4 + len(data)) + b"WEBP" + data


def jpeg_with(jpeg, *segments):
    """Segments behind the start of a JPEG."""
    return jpeg[:2] + b"".join(bytes((0xff, kind)) + struct.pack(">H", len(data) + 2) + data for kind, data in segments) + jpeg[2:]


def jpeg_sized(jpeg, width, height):
    at = jpeg.index(b"\xff\xc0")
    return jpeg[:at + 5] + struct.pack(">HH", height, width) + jpeg[at + 9:]


def exif(*entries, to):
    """A table of directory entries (tag, value), whose next table, and every pointer, is at @to."""
    table = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(entries)) + table + struct.pack("<I", to)


def bombs(jpeg):
    """
    (what, file, words): words of the error, or, as a file, the picture that it must look like.
    """
    good = png(40, 30)
    zeros = zlib.compress(bytes(64 << 20), 9)  # 64 KiB
    loops = exif((0x8769, 8), (0x8825, 8), (0xa005, 8), to=8)
    many = exif(*[(0x8769, 8)] * 5000, to=8)
    frame = gif_frame(40, 30)
    control = chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 40, 30, 0, 0, 1, 10, 0, 0))
    yield "a PNG of 50,000 x 50,000", png(50000, 50000, rows=10), "50000 x 50000 pixels; the limit is "
    yield "a JPEG of 60,000 x 50,000", jpeg_sized(jpeg, 60000, 50000), "60000 x 50000 pixels; the limit is "
    yield "a GIF of 65,535 x 65,535", gif(65535, 65535, frame, b";"), "65535 x 65535 pixels; the limit is "
    yield "a GIF with a frame of 60,000 x 60,000", gif(40, 30, b"," + struct.pack("<HHHHB", 0, 0, 60000, 60000, 0) +
                                                       frame[10:], b";"), "60000 x 60000 pixels; the limit is "
    yield "a WebP of 16,384 x 16,384", webp(16384, 16384), "16384 x 16384 pixels; the limit is "
    yield "an animated WebP", animated_webp(20000), webp(40, 30)
    yield "a GIF of comments without an end", gif(40, 30, b"!\xfe\1a\0" * 300000), "no frame"
    yield "a GIF of one comment without an end", gif(40, 30, b"!\xfe" + b"\1a" * 800000), "no frame"
    yield "a GIF without codes", gif(40, 30, frame[:11]), "broken GIF"
    yield "a GIF of frames without an end", gif(40, 30, frame * 2000), gif(40, 30, frame, b";")
    yield "a PNG with more rows than it has", png(40, 30, rows=200000), png(40, 30, rows=30)
    yield "an APNG", png(40, 30, before=chunk(b"acTL", struct.pack(">II", 0x7fffffff, 0)) + control,
                         behind=(control + chunk(b"fdAT", bytes(40))) * 10000), good
    yield "a PNG with a profile of 64 MiB", png(40, 30, before=chunk(b"iCCP", b"a\0\0" + zeros)), good
    yield "a PNG with 40 texts of 64 MiB", png(40, 30, before=chunk(b"zTXt", b"a\0\0" + zeros) * 40), good
    yield "a PNG whose EXIF leads to itself", png(40, 30, before=chunk(b"eXIf", loops)), good
    yield "a JPEG whose EXIF leads to itself", jpeg_with(jpeg, (0xe1, b"Exif\0\0" + loops)), jpeg
    yield "a JPEG with an EXIF of many entries", jpeg_with(jpeg, (0xe1, b"Exif\0\0" + many)), jpeg
    yield "a JPEG with a profile of 4 MB", jpeg_with(jpeg, *[(0xe2, b"ICC_PROFILE\0" + bytes((i + 1, 64)) + bytes(65000))
                                                             for i in range(64)]), jpeg
    yield "a WebP of 4,000 x 4,000", webp(4000, 4000), webp(2000, 2000)


def mutated(data, seed):
    """A few bytes are others."""
    data = bytearray(data)
    for _ in range(1 + seed % 4):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        data[(seed >> 40) % len(data)] = seed >> 32 & 255
    return bytes(data)
