"""Every command line of `app-server` in the documentation is valid, also where it is not run: in a marked block, in a
sentence, in a table.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from app_server.cli.command_table import COMMANDS
from app_server.cli.parse_command import all_parsers, parse
from tests.docs.markdown_blocks import ROOT, blocks, pages, prose

OF_THEIR_TIME = ("CHANGELOG.md", "docs/adr/")
PAGES = [page for page in pages() if not str(page.relative_to(ROOT)).startswith(OF_THEIR_TIME)]
INLINE = re.compile(r"`(app-server\b[^`\n]*)`")
ENDS = ("|", "||", "&", "&&", ";", "(", ")", "<", ">", ">>", "<<", ";;")
NAMES = {*COMMANDS, *(command.name for command in all_parsers())}
"""Names of commands. A name alone refers to the command and is not checked as a command line, because some need more
arguments.
"""


def words_of(line: str) -> Iterator[list[str]]:
    """Yield the arguments of each `app-server` that a line of a shell starts; that of codex is another program's."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    before = ""
    words: list[str] | None = None
    for word in lexer:
        if word in ENDS:
            if words is not None:
                yield words
            words = None
        elif words is not None:
            words.append(word)
        elif word.rpartition("/")[2] == "app-server" and before != "codex":
            words = []
        before = word
    if words is not None:
        yield words


def command_lines(page: Path) -> Iterator[tuple[str, list[str]]]:
    texts = [re.sub(r"\\\n\s*", " ", block.text) for block in blocks(page) if block.language == "sh"]
    lines = [line for text in texts for line in text.splitlines() if "app-server" in line]
    for line in (*lines, *INLINE.findall(prose(page))):
        for words in words_of(line):
            if " ".join(words) not in NAMES:
                yield line, ["exec" if word == "COMMAND" else word for word in words]


def refused(words: list[str]) -> bool:
    try:
        parse(words)
    except SystemExit as end:  # help and versions exit with status 0
        return end.code != 0
    return False


def test_there_are_many() -> None:
    assert sum(1 for page in PAGES for _ in command_lines(page)) > 80


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_command_lines_can_be_given(page: Path) -> None:
    assert [line for line, words in command_lines(page) if refused(words)] == []


def test_a_wrong_one_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Say `app-server exec --jsno` or `app-server chat`.\n\n"
        '<!-- not run: why -->\n```sh\nX=1 app-server exex "a" | codex app-server no\n```\n'
    )
    assert [line for line, words in command_lines(page) if refused(words)] == [
        'X=1 app-server exex "a" | codex app-server no',
        "app-server exec --jsno",
    ]
