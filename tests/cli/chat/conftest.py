from pathlib import Path

import pytest

from tests.support.chat_worlds import PlayChat, chats_in


@pytest.fixture
def chat(short_folder: Path) -> PlayChat:
    return chats_in(short_folder)
