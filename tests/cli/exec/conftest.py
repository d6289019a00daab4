from pathlib import Path

import pytest

from tests.support.world import make_folders


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_folders(tmp_path)
    return tmp_path
