"""Commands after a slash in addition to the chat's own: the user's prompt files, and the skills of the folder, each
with arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from app_server.client.app_server import AppServer
from app_server.client.failures import AppServerError
from app_server.engine.context.custom_prompts import FOLDER, discover_prompts
from app_server.engine.support.prompt_text import argument_hint, argument_names, filled_in
from app_server.engine.support.worker_threads import run_in_thread
from app_server_protocol.encoding import Json
from app_server_protocol.engine.notices import CustomPrompt
from app_server_protocol.v2.item_parts import SkillUserInput, UserInput
from app_server_protocol.v2.models import ListedModel

NAME: Final = re.compile(r"[\w.:-]+")
PROMPTS, SKILLS = "prompts:", "skills:"
"""Prefixes of a name that another command has already."""


class NamedCommand(Struct, frozen=True):
    """A prompt or a skill, by the name that the user types."""

    help: str
    hint: str
    source: CustomPrompt | SkillUserInput

    @property
    def arguments(self) -> Sequence[str]:
        """The prefixes of the arguments that have names."""
        names = argument_names(self.source.content) if isinstance(self.source, CustomPrompt) else ()
        return [f"{name}=" for name in names]

    def words(self, rest: str) -> list[str | UserInput]:
        """Return the message of the command with these arguments."""
        if isinstance(self.source, CustomPrompt):
            return [filled_in(self.source.content, rest)]
        return [rest or f"Use the skill {self.source.name}.", self.source]


class NamedCommands:
    """The named commands of a folder. They are read again whenever the user types a slash, because files may change."""

    def __init__(self, server: AppServer, home: Path | None, taken: Sequence[str]) -> None:
        """Prompts are read from the home, if there is one. Names in `taken` are those of other commands."""
        self._server, self._home, self._taken = server, home, taken
        self._models: dict[str, Sequence[ListedModel]] = {}
        self._known: Mapping[str, NamedCommand] | None = None

    async def known(self, cwd: str) -> Mapping[str, NamedCommand]:
        """Return the commands as they were read last."""
        return await self.read(cwd) if self._known is None else self._known

    async def read(self, cwd: str) -> Mapping[str, NamedCommand]:
        """Read all commands again, and return them."""
        found: dict[str, NamedCommand] = {}
        prompts = () if self._home is None else await run_in_thread(discover_prompts, self._home / FOLDER)
        for prompt in prompts:
            hint = prompt.argument_hint or argument_hint(prompt.content) or ""
            self._add(
                found, PROMPTS, prompt.name, NamedCommand(prompt.description or "a prompt", hint, prompt)
            )
        for skill in await self.skills(cwd):
            source = SkillUserInput(name=skill["name"], path=skill["path"])
            self._add(found, SKILLS, source.name, NamedCommand(skill["description"], "what to do", source))
        self._known = found
        return found

    def _add(self, found: dict[str, NamedCommand], prefix: str, name: str, command: NamedCommand) -> None:
        if NAME.fullmatch(name):
            found[f"{prefix}{name}" if name in self._taken or name in found else name] = command

    async def skills(self, cwd: str) -> list[Json]:
        """Return the enabled skills of a folder."""
        try:
            listed = await self._server.request_raw("skills/list", {"cwds": [cwd]})
        except AppServerError:
            return []
        return [each for entry in listed["data"] for each in entry["skills"] if each["enabled"]]

    async def models(self, provider: str) -> Sequence[ListedModel]:
        """Return the models that a provider serves, and those that are known otherwise. A successful answer is
        cached.
        """
        if provider not in self._models:
            models = await self._server.models(provider=provider)
            # The known models are those of OpenAI, with their efforts; other models are served by the provider.
            self._models[provider] = sorted(
                models, key=lambda each: provider != "openai" and bool(each.supported_reasoning_efforts)
            )
        return self._models[provider]
