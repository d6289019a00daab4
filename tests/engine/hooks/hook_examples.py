"""The hooks of docs/hooks.md: the numbered ones with their scripts, and the blocks that show a form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.markdown_blocks import ROOT, Block, blocks

PAGE = ROOT / "docs/hooks.md"


@dataclass(frozen=True, slots=True)
class HookExample:
    title: str
    hooks: str
    """Content of `hooks.json`."""
    scripts: Mapping[str, str]
    """Scripts by their names in the folder `hooks`."""

    def install(self, home: Path) -> None:
        """Write the example into a home."""
        (home / "hooks").mkdir(parents=True, exist_ok=True)
        (home / "hooks.json").write_text(self.hooks, encoding="utf-8")
        for name, text in self.scripts.items():
            (home / "hooks" / name).write_text(text, encoding="utf-8")


def hook_examples() -> Mapping[int, HookExample]:
    """Return the numbered hooks of the page."""
    lines, found = PAGE.read_text(encoding="utf-8").splitlines(), list(blocks(PAGE))
    heads = [(at, match) for at, line in enumerate(lines) if (match := re.match(r"### (\d+)\. (.+)", line))]
    ends = [*(at for at, _ in heads[1:]), len(lines)]
    examples: dict[int, HookExample] = {}
    for (at, head), end in zip(heads, ends, strict=True):
        mine = [block for block in found if at < block.line <= end]
        named = re.findall(r"^Saved as `([\w.]+)`", "\n".join(lines[at:end]), re.MULTILINE)
        scripts = [block for block in mine if block.language != "json"]
        hooks = [block.text for block in mine if block.language == "json"]
        assert len(hooks) == 1
        scripts_by_name = dict(zip(named, (block.text for block in scripts), strict=True))
        examples[int(head[1])] = HookExample(head[2], hooks[0], scripts_by_name)
    return examples


def shown_forms() -> list[Block]:
    """Return the blocks before the numbered hooks."""
    first = next(
        at
        for at, line in enumerate(PAGE.read_text(encoding="utf-8").splitlines())
        if line.startswith("### 1.")
    )
    return [block for block in blocks(PAGE) if block.line < first]
