"""Complete pictures, and pictures that a provider would refuse."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.support.images import MOST_PIXEL_BYTES, ImageUnreadable, checked_url, picture_type
from tests.support.pictures import GIF, JPEG, PICTURES, PNG, WEBP, picture_url, png, png_chunk

KINDS = pytest.mark.parametrize("mime", PICTURES)


def is_whole(data: bytes) -> bool:
    try:
        picture_type(data)
    except ImageUnreadable:
        return False
    return True


@KINDS
def test_a_whole_picture_has_its_type(mime: str) -> None:
    assert picture_type(PICTURES[mime]) == mime
    assert picture_type(PICTURES[mime] + b"trailing") == mime


@KINDS
def test_a_picture_that_is_cut_off_anywhere_is_none(mime: str) -> None:
    data = PICTURES[mime]
    needed = len(data) - (1 if mime == "image/gif" else 0)  # a GIF works without its last byte
    assert [n for n in range(needed) if is_whole(data[:n])] == []


@KINDS
@given(rubbish=st.binary(max_size=300), keeps=st.integers(4, 12))
def test_a_head_with_rubbish_behind_it_never_raises_anything_else(
    mime: str, rubbish: bytes, keeps: int
) -> None:
    is_whole(PICTURES[mime][:keeps] + rubbish)
    is_whole(PICTURES[mime][:-keeps] + rubbish)


@KINDS
def test_a_head_with_rubbish_behind_it_is_no_picture(mime: str) -> None:
    assert not is_whole(PICTURES[mime][:12] + b"rubbish" * 100)


@pytest.mark.parametrize(
    "data", [b"", b"\x89PNG", b"RIFF\x00\x00\x00\x00WAVE", b"<svg/>", b"BM" + bytes(60), b"II*\0"]
)
def test_other_kinds_are_refused(data: bytes) -> None:
    with pytest.raises(ImageUnreadable, match="not a PNG"):
        picture_type(data)


@given(st.integers(8, len(PNG) - 1), st.integers(1, 255))
def test_every_byte_of_a_png_counts(place: int, change: int) -> None:
    data = bytearray(PNG)
    data[place] ^= change
    assert not is_whole(bytes(data))


@pytest.mark.parametrize(("depth", "colour"), [(1, 0), (16, 2), (4, 3), (8, 4), (16, 6)])
def test_pixels_of_each_kind_of_png(depth: int, colour: int) -> None:
    assert is_whole(png(7, 5, depth=depth, colour=colour))
    assert not is_whole(png(7, 5, depth=depth, colour=colour, pixels=b"\0" * 9)), "too few"


def test_an_interlaced_png() -> None:
    assert is_whole(png(3, 3, colour=0, interlace=1, pixels=bytes(3 + 2 + 4 + 2 + 4)))
    assert not is_whole(png(3, 3, colour=0, interlace=1, pixels=bytes(14)))
    assert not is_whole(png(3, 3, interlace=2))


@pytest.mark.parametrize("data", [png(0, 1), png(1, 0), png(depth=3), png(colour=5), png(depth=1, colour=2)])
def test_a_png_that_cannot_be(data: bytes) -> None:
    assert not is_whole(data)


def test_a_png_without_a_palette_that_it_needs() -> None:
    data = png(colour=3)
    palette = png_chunk(b"PLTE", bytes(3))
    assert is_whole(data)
    assert not is_whole(data.replace(palette, b""))


def test_a_bomb_is_refused_before_it_is_inflated() -> None:
    side = int((MOST_PIXEL_BYTES / 4) ** 0.5) + 1
    with pytest.raises(ImageUnreadable, match="pixels"):
        picture_type(png(side, side, pixels=b""))
    # The data has more pixels than the header says. Only the needed ones are inflated.
    assert is_whole(png(pixels=bytes(64 * 1024 * 1024)))


@pytest.mark.parametrize(
    "data",
    [
        JPEG.replace(b"\xff\xda", b"\xff\xd9"),
        JPEG.replace(b"\x08\0\1\0\1", b"\x08\0\0\0\0"),
        JPEG[:2] + JPEG[JPEG.index(b"\xff\xda") :],
        GIF.replace(b"\1\0\1\0\x80", b"\0\0\0\0\x80"),
        GIF[: GIF.index(b",")] + b";",
        WEBP.replace(b"\x9d\x01\x2a", b"\0\0\0"),
        WEBP.replace(b"VP8 ", b"VP9 "),
        WEBP[:4] + struct.pack("<I", 5000) + WEBP[8:],
    ],
)
def test_what_has_no_picture_in_it(data: bytes) -> None:
    assert not is_whole(data)


def test_a_data_url_gets_the_type_of_its_data() -> None:
    assert checked_url(picture_url(JPEG, "image/jpeg")) == picture_url(JPEG, "image/jpeg")
    assert checked_url(picture_url(JPEG, "image/png")) == picture_url(JPEG, "image/jpeg")
    assert checked_url("https://host/a.png") == "https://host/a.png"


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64,!!!",
        "data:image/png,abc",
        "data:;base64,",
        "data:",
        "data:text/plain;base64,aGk=",
    ],
)
def test_a_data_url_without_a_picture_is_refused(url: str) -> None:
    with pytest.raises(ImageUnreadable):
        checked_url(url)


@pytest.mark.parametrize(
    "checksum", [struct.pack(">I", zlib.crc32(b"IEND")), struct.pack(">I", zlib.adler32(bytes(5)))]
)
def test_where_checksums_do_not_count_all_else_does(checksum: bytes) -> None:
    broken = PNG.replace(checksum, b"\xff\xff\xff\xff")
    assert not is_whole(broken)
    assert picture_type(broken, checksums=False) == "image/png"
    for data in (broken[:-30], PNG[:40] + b"rubbish" * 20, png(2, 2, pixels=bytes(5))):
        with pytest.raises(ImageUnreadable):
            picture_type(data, checksums=False)


def test_a_wrong_checksum_of_what_is_not_needed_to_show_a_picture_does_not_count() -> None:
    """Decoders behave like this: pictures with a broken colour profile are common."""
    profile = struct.pack(">I4s", 3, b"iCCP") + b"abc" + b"\0\0\0\0"
    behind_header = 8 + 12 + 13
    assert picture_type(PNG[:behind_header] + profile + PNG[behind_header:]) == "image/png"
