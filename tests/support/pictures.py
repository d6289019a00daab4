"""The smallest picture of each kind that models are sent, and a larger PNG."""

import base64
import struct
import zlib


def png(
    width: int = 1,
    height: int = 1,
    *,
    depth: int = 8,
    colour: int = 6,
    interlace: int = 0,
    pixels: bytes | None = None,
) -> bytes:
    """Return a PNG. `pixels` replaces the black ones: rows, each with its filter byte."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(colour, 1)
    rows = bytes(height * (1 + -(-width * depth * channels // 8))) if pixels is None else pixels
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
    palette = png_chunk(b"PLTE", b"\0\0\0") if colour == 3 else b""
    content = png_chunk(b"IHDR", head) + palette + png_chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + content + png_chunk(b"IEND", b"")


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _segment(kind: int, content: bytes) -> bytes:
    return bytes((0xFF, kind)) + struct.pack(">H", len(content) + 2) + content


PNG = png()
JPEG = b"".join(
    (
        b"\xff\xd8",
        _segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0"),
        _segment(0xDB, bytes(65)),
        _segment(0xC0, b"\x08\0\1\0\1\1\1\x11\0"),
        _segment(0xC4, bytes(17)),
        _segment(0xDA, b"\1\1\0\0\x3f\0") + b"\x12\xff\0\xff\xd0\x34",
        b"\xff\xd9",
    )
)
GIF = b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
WEBP = base64.b64decode("UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA")

PICTURES = {"image/png": PNG, "image/jpeg": JPEG, "image/gif": GIF, "image/webp": WEBP}


def picture_url(data: bytes, mime: str = "image/png") -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"
