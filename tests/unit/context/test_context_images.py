"""Image files that the user attaches, as data URLs."""

import os
from pathlib import Path

import pytest

from app_server.core.context.images import MAX_IMAGE_BYTES, image_data_url
from app_server.core.pictures import ImageUnreadable
from tests.support.pictures import PICTURES, PNG, picture_url


@pytest.mark.parametrize("mime", PICTURES)
def test_the_kind_is_known_by_what_is_in_the_file(tmp_path: Path, mime: str) -> None:
    (tmp_path / "image").write_bytes(PICTURES[mime])
    assert image_data_url(tmp_path / "image") == picture_url(PICTURES[mime], mime)


def test_a_file_that_is_too_large_is_refused_by_what_it_holds(tmp_path: Path) -> None:
    with (tmp_path / "a.png").open("wb") as file:
        file.write(PNG)
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
