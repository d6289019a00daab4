"""Threads as Markdown: no text of a model is active in a viewer, and its code stays unchanged."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from app_server.cli.admin.thread_markdown import inert

pytestmark = pytest.mark.scenario

VIEWER = MarkdownIt("gfm-like", {"html": True, "linkify": False}).disable("linkify")
vars(VIEWER)["validateLink"] = lambda url: True  # like a viewer that follows any link


def active(markdown: str) -> list[str]:
    """Return the parts that a viewer which trusts the text would execute or load: HTML, pictures, and links with other
    schemes.
    """
    found: list[str] = []
    for block in VIEWER.parse(markdown):
        for token in (block, *(block.children or ())):
            if token.type in ("html_block", "html_inline", "image"):
                found.append(token.content or token.type)
            elif token.type == "link_open" and re.match(r"(?!https?:|mailto:)\w+:", str(token.attrs["href"])):
                found.append(str(token.attrs["href"]))
    return found


ATTACKS = [
    "<script>alert(1)</script>",
    "[a](javascript:alert(1))",
    "[a](<javascript:alert(1)>)",
    "[a](java&#115;cript:alert(1))",
    "[a](\njavascript:alert(1))",
    "[a\\](javascript:alert(1))",
    "[a]\n\n[a]: javascript:alert(1)",
    "> [a]:\n> javascript:alert(1)\n\n[a]",
    "![](https://example.org/seen.png)",
    "<javascript:alert(1)>",
    "`a\nb` <b> `c`",
    "# `a\nb` <b> `c`",
    "\\``a` <b> `b`",
    "<https://x`> <b> `y`",
    "  ~~~\n```\n  ~~~\n<b>",
    "```\n  ```\n<b>",
    "``` a`b\n<b>",
    "- ```\n<b>",
    "- a\n\n  ```\n<b>",
    "````\n```\n````\n<b>",
    "```\n``` ```\n```\n<b>",
    "```\r\n```\r\n<b>",
    "    ```\n<b>",
]


@pytest.mark.parametrize("text", ATTACKS)
def test_nothing_that_a_model_writes_is_active(text: str) -> None:
    assert active(f"before\n\n{inert(text)}\n\nafter\n\n{inert('~~~')}\n\n{inert('<b>')}") == []


PIECES = [
    "<b>",
    "`",
    "``",
    "```",
    "~~~",
    "\n",
    "\n\n",
    " ",
    "  ",
    "    ",
    "- ",
    "> ",
    "\\",
    "a",
    "](x:y)",
    "[",
    "[a]: x:y",
    "!",
]


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), max_size=3))
def test_no_combination_is_active(texts: list[str]) -> None:
    assert active("\n\n".join(map(inert, texts))) == []


@pytest.mark.parametrize(
    "text",
    [
        "Plain *text*, `Vec<T>`, and ``a ` <b>``.",
        "```html\n<script>\n[a](javascript:1)\n```",
        "~~~\n`<b>`\n~~~\nand `x < y`",
        "- `one<T>`\n- `two<T>`\n\n[docs](https://example.org/a) [file](src/app.py) [this](#part) [read](README.md)",
    ],
)
def test_code_and_links_stay_as_they_are(text: str) -> None:
    assert inert(text) == text


def test_an_open_fence_ends_with_its_text() -> None:
    assert inert("```\nopen") == "```\nopen\n```"
