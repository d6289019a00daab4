from pathlib import Path

import pytest

from app_server.cli.batch import scheduler
from tests.support.batches import BatchWorld


@pytest.fixture
def batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> BatchWorld:
    return BatchWorld(tmp_path, monkeypatch, capsys)


@pytest.fixture(autouse=True)
def another_attempt_comes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the delay before a retry in this process. Its real length is tested with a clock that is passed in."""
    monkeypatch.setattr(scheduler, "FIRST_DELAY", 0.01)
