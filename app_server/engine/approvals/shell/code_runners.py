"""Programs that run code of the directory in which they are started: build tools, package managers, test runners.

Whoever may write in that directory decides what they do, so a command that the user trusts word for word is not trusted
if it starts one of them. Pure.
"""

from __future__ import annotations

import re
from typing import Final

from app_server.engine.approvals.shell.quote import word_set
from app_server.engine.approvals.shell.reachable_commands import commands_of, is_open_name, program_name

CODE_RUNNERS: Final = word_set(
    "npm npx pnpm pnpx yarn bun bunx deno corepack node-gyp gulp grunt jest vitest mocha eslint prettier "
    "tsc tsx ts-node vite webpack make gmake cmake ninja meson bazel bazelisk buck buck2 just task mage "
    "scons ant mvn gradle gradlew sbt lein mill cargo rustc go dotnet msbuild swift xcodebuild zig stack "
    "cabal rebar3 mix dune pytest py.test tox nox pip pip3 pipx uv uvx poetry hatch pdm conda mamba "
    "invoke inv fab mypy ruff pylint flake8 black isort pre-commit rake bundle rspec rubocop composer "
    "phpunit artisan git gh hg docker docker-compose podman terraform ansible ansible-playbook direnv nix "
    "nix-shell nix-build devbox mise asdf vagrant packer helm jupyter ipython ctest prove gdb lldb vim "
    "nvim vi emacs less man"
)
"""Programs that read their instructions, plug-ins or settings from the working directory."""
_LANGUAGES: Final = re.compile(
    r"(python[\d.]*|pypy[\d.]*|node|ruby|perl|php|lua[\d.]*|Rscript|julia|raku|groovy|scala)$"
)
_RUNS_FOLDER: Final = re.compile(
    r"-(?!-)[a-zA-Z]*[cemr]|--(eval|print|require|import|loader|experimental-loader)\b"
)
"""Options of interpreters that find modules of the working directory, or run text that may."""
_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "ksh", "mksh", "fish", "source", "."})


def runs_code_of_folder(command: str) -> bool:
    """Return whether a command line may run code of its working directory. A command that cannot be inspected counts as
    one that may.
    """
    for found in commands_of(("sh", "-c", command)):
        if found is None:
            return True
        if not found.words:
            continue
        program, *words = found.words
        name = program_name(program)
        if is_open_name(program) or name in CODE_RUNNERS or name == "eval":
            return True
        if "/" in program and not program.startswith(("/", "~/")):
            return True
        if _LANGUAGES.match(name) and (not words or any(map(_RUNS_FOLDER.match, _options(words)))):
            return True
        if name in _SHELLS and found.words[:2] != ("sh", "-c") and _runs_unknown(words):
            return True
    return False


def _options(words: list[str]) -> list[str]:
    """Return the words before the script: those after it are the script's own."""
    before: list[str] = []
    for word in words:
        if not word.startswith("-"):
            break
        before.append(word)
    return before


def _runs_unknown(words: list[str]) -> bool:
    """Return whether a shell runs something else than text that the command line shows, or a file with a whole path."""
    options = _options(words)
    if any("c" in option and not option.startswith("--") for option in options):
        return False  # the script is searched as a command of its own
    rest = words[len(options) :]
    return not rest or not rest[0].startswith(("/", "~/"))
