"""Checks whether bytes are a complete picture of a kind that models accept. Pure.

A provider refuses a request with a broken picture, and with it every later request of that conversation, because the
picture stays in its history. So structure and lengths are checked for every kind, and for PNG also the checksums and
whether the pixels can be inflated. Pixels are not decoded: a decoder would be a large target for hostile files.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib
from collections.abc import Iterator
from struct import unpack_from

MAX_IMAGE_BYTES = 20 * 1024 * 1024
"""Maximum size of one image, in bytes; providers accept no larger ones."""

MOST_PIXEL_BYTES = 512 * 1024 * 1024
"""Maximum size of the inflated pixels of a PNG, in bytes; no provider accepts as much."""

INFLATED_AT_ONCE = 1024 * 1024
ZLIB_HEAD = 2
"""Size of the header before compressed data, in bytes; a checksum follows the data."""

NOT_A_PICTURE = "not a PNG, JPEG, GIF or WebP image"
BROKEN = "the picture could not be processed: it is damaged or not complete"

_DATA_URL = r"(?i)data:([^,;]*)(?:;[^,;]*)*?;base64,"
_PNG = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
"""Allowed bit depths of a PNG by its colour type."""
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Passes of an interlaced PNG: the first column and row, and the steps to the next ones."""
_JPEG_MARKER = rb"\xff+[^\x00\xff\xd0-\xd7]"
"""Pattern of a marker after data without segments; it matches neither a stuffed byte nor a restart."""
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


class ImageUnreadable(Exception):
    """The bytes are no picture that a model can be sent; the text is the reason."""


def picture_type(data: bytes, *, checksums: bool = True) -> str:
    """Return the MIME type of a complete picture. `checksums` False: a PNG may have wrong checksums. Slow for large
    pictures: use a thread. Raises ImageUnreadable.
    """
    try:
        if data.startswith(_PNG):
            mime, whole = "image/png", _is_png(data, checksums=checksums)
        elif data.startswith(b"\xff\xd8\xff"):
            mime, whole = "image/jpeg", _is_jpeg(data)
        elif data.startswith((b"GIF87a", b"GIF89a")):
            mime, whole = "image/gif", _is_gif(data)
        elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            mime, whole = "image/webp", _is_webp(data)
        else:
            raise ImageUnreadable(NOT_A_PICTURE)
    except (struct.error, IndexError, zlib.error):
        raise ImageUnreadable(BROKEN) from None
    if not whole:
        raise ImageUnreadable(BROKEN)
    return mime


def data_url(data: bytes, *, checksums: bool = True) -> str:
    """Encode a picture as the data URL that providers accept. For the rest, see `picture_type`."""
    mime = picture_type(data, checksums=checksums)
    return f"data:{mime};base64,{base64.b64encode(data).decode('ascii')}"


def checked_url(url: str) -> str:
    """Return the address of a picture. A data URL gets the type of its data; the provider checks other addresses. Slow
    for large pictures: use a thread. Raises ImageUnreadable.
    """
    if url[:5].lower() != "data:":
        return url
    head = re.match(_DATA_URL, url)
    if head is None:
        raise ImageUnreadable("its address is no data URL in base64")
    try:
        data = base64.b64decode(url[head.end() :], validate=True)
    except (binascii.Error, ValueError):
        raise ImageUnreadable(BROKEN) from None
    return url if head[1] == picture_type(data) else data_url(data)


# --- PNG
def _is_png(data: bytes, *, checksums: bool) -> bool:
    chunks = _png_chunks(data, checksums=checksums)
    kind, header = next(chunks, (b"", b""))
    width, height, depth, colour, compression, filtering, interlace = unpack_from(">IIBBBBB", header)
    if kind != b"IHDR" or len(header) != 13 or not (width and height):
        return False
    if depth not in _DEPTHS.get(colour, ()) or compression or filtering or interlace > 1:
        return False
    size = _pixel_bytes(width, height, depth * _CHANNELS[colour], interlaced=interlace == 1)
    if size > MOST_PIXEL_BYTES:
        raise ImageUnreadable(f"its pixels take more than {MOST_PIXEL_BYTES} bytes")
    pixels: list[bytes] = []
    palette = colour != 3
    for kind, content in chunks:
        palette = palette or (kind == b"PLTE" and not pixels)
        if kind == b"IDAT":
            pixels.append(content)
        elif kind == b"IEND":
            return palette and _inflated(b"".join(pixels), size, checksum=checksums) >= size
    return False


def _png_chunks(data: bytes, *, checksums: bool) -> Iterator[tuple[bytes, bytes]]:
    """Yield kinds and contents of chunks. Raises zlib.error if the checksum of a critical chunk is wrong. Decoders
    ignore ancillary chunks, whose kinds begin with a small letter.
    """
    place = len(_PNG)
    while place < len(data):
        length, kind = unpack_from(">I4s", data, place)
        end = place + 8 + length
        content = data[place + 8 : end]
        critical = checksums and kind[:1].isupper()
        if unpack_from(">I", data, end)[0] != zlib.crc32(content, zlib.crc32(kind)) and critical:
            raise zlib.error
        yield kind, content
        place = end + 4


def _pixel_bytes(width: int, height: int, bits: int, *, interlaced: bool) -> int:
    """Return the size of all rows, in bytes; each row begins with a byte that names its filter."""
    passes = _PASSES if interlaced else ((0, 0, 1, 1),)
    size = 0
    for left, top, across, down in passes:
        columns, rows = -((left - width) // across), -((top - height) // down)
        size += rows * (1 + -(-columns * bits // 8)) if columns > 0 and rows > 0 else 0
    return size


def _inflated(data: bytes, most: int, *, checksum: bool) -> int:
    """Return the inflated size of the data, in bytes; counting stops soon after `most`. Raises zlib.error."""
    inflater = zlib.decompressobj(zlib.MAX_WBITS if checksum else -zlib.MAX_WBITS)
    rest, size = data if checksum else data[ZLIB_HEAD:], 0
    while rest and size < most:
        size += len(inflater.decompress(rest, INFLATED_AT_ONCE))
        rest = inflater.unconsumed_tail
    return size


# --- the others
def _is_jpeg(data: bytes) -> bool:
    pattern = re.compile(_JPEG_MARKER)
    place, has_frame, has_scan = 2, False, False
    while True:
        marker = pattern.search(data, place) if has_scan else pattern.match(data, place)
        if marker is None:
            return False
        kind, place = marker[0][-1], marker.end()
        if kind == 0xD9:
            return has_scan
        (length,) = unpack_from(">H", data, place)
        if kind in _JPEG_FRAMES:
            height, width, components = unpack_from(">HHB", data, place + 3)
            has_frame = width > 0 and height > 0 and components > 0
        elif kind == 0xDA:
            has_scan = has_frame
        if length < 2 or (kind == 0xDA and not has_frame):
            return False
        place += length


def _is_gif(data: bytes) -> bool:
    """Return whether the GIF has at least one complete frame."""
    width, height, flags = unpack_from("<HHB", data, 6)
    place = 13 + _colours(flags)
    while width and height:
        kind = data[place]
        if kind == 0x21:
            place = _behind_blocks(data, place + 2)
        elif kind == 0x2C:
            columns, rows, flags = unpack_from("<HHB", data, place + 5)
            pixels = place + 10 + _colours(flags)
            has_pixels = _behind_blocks(data, pixels + 1) > pixels + 2
            return columns > 0 and rows > 0 and data[pixels] <= 11 and has_pixels
        else:
            return False
    return False


def _colours(flags: int) -> int:
    """Return the size of the colour table that the flags announce, in bytes."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _behind_blocks(data: bytes, place: int) -> int:
    """Return the position after a sequence of blocks. Raises IndexError."""
    while length := data[place]:
        place += length + 1
    return place + 1


def _is_webp(data: bytes) -> bool:
    (length,) = unpack_from("<I", data, 4)
    place, end = 12, 8 + length
    if end > len(data):
        return False
    while place < end:
        kind, size = unpack_from("<4sI", data, place)
        start, place = place + 8, place + 8 + size + size % 2
        if start + size > end:
            return False
        if kind in (b"ANMF", b"VP8 ", b"VP8L"):
            return _is_webp_frame(data, kind, start, size)
    return False


def _is_webp_frame(data: bytes, kind: bytes, start: int, size: int) -> bool:
    if kind == b"ANMF":
        return size > 24
    if kind == b"VP8L":
        return size > 5 and data[start] == 0x2F and data[start + 4] >> 5 == 0
    tag = int.from_bytes(data[start : start + 3], "little")
    columns, rows = unpack_from("<HH", data, start + 6)
    is_key_frame = not tag & 1 and data[start + 3 : start + 6] == b"\x9d\x01\x2a"
    return is_key_frame and tag >> 5 < size and (columns & 0x3FFF) > 0 and (rows & 0x3FFF) > 0
