"""Lines of the log on stderr, which may be a terminal."""

import logging

from app_server.logs import NonBlockingHandler


def test_what_others_say_in_the_log_drives_no_terminal() -> None:
    written: list[bytes] = []

    def write(data: bytes) -> int:
        written.append(data)
        return len(data)

    record = logging.makeLogRecord({"msg": "said: %s", "args": ("grün\x1b[2J\x9b2J\u202e\ud800 one\ntwo",)})
    NonBlockingHandler(write).emit(record)
    assert written == ["said: grün\\x1b[2J\\x9b2J\\u202e\\ud800 one\n".encode(), b"two\n"]
