from pathlib import Path

import pytest

from tests.support.batches import BatchWorld


@pytest.fixture
def batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> BatchWorld:
    return BatchWorld(tmp_path, monkeypatch, capsys)
