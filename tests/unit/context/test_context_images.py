"""Image files that the user attaches, as data URLs."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from app_server.core.context.images import MAX_IMAGE_BYTES, ImageUnreadable, data_url, image_data_url

KINDS = [
    (b"\x89PNG\r\n\x1a\n....", "image/png"),
    (b"\xff\xd8\xff\xe0....", "image/jpeg"),
    (b"GIF89a....", "image/gif"),
    (b"BM....", "image/bmp"),
    (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
]


@pytest.mark.parametrize(("data", "mime"), KINDS)
def test_the_kind_is_known_by_the_first_bytes(tmp_path: Path, data: bytes, mime: str) -> None:
    (tmp_path / "image").write_bytes(data)
    url = image_data_url(tmp_path / "image")
    assert url == f"data:{mime};base64,{base64.b64encode(data).decode()}" == data_url(data)


@pytest.mark.parametrize("data", [b"", b"\x89PNG", b"RIFF\x00\x00\x00\x00WAVE", b"<svg/>"])
def test_other_files_are_no_images(data: bytes) -> None:
    with pytest.raises(ImageUnreadable, match="not a PNG"):
        data_url(data)


def test_a_file_that_is_too_large_is_refused_by_what_it_holds(tmp_path: Path) -> None:
    with (tmp_path / "a.png").open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        file.truncate(MAX_IMAGE_BYTES)
    image_data_url(tmp_path / "a.png")
    os.truncate(tmp_path / "a.png", MAX_IMAGE_BYTES + 1)
    with pytest.raises(ImageUnreadable, match="larger than"):
        image_data_url(tmp_path / "a.png")


def test_only_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ImageUnreadable, match="not a file"):
            image_data_url(path)
    with pytest.raises(FileNotFoundError):
        image_data_url(tmp_path / "missing")
