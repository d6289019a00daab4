"""The folders of a test of `app-server exec`."""

from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("home", "workspace", "user"):
        (tmp_path / folder).mkdir()
    return tmp_path
