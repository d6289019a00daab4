"""Completes typed text: commands after a slash, fuzzily, and their arguments; files of the folder after an `@`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, FuzzyWordCompleter
from prompt_toolkit.document import Document

from app_server.cli.chat.chat_conversation import ChatConversation
from app_server.cli.chat.named_commands import NamedCommands
from app_server.cli.chat.slash_commands import COMMANDS
from app_server.client.command_line import printable
from app_server.client.failures import AppServerError


class ChatCompleter(Completer):
    def __init__(self, chat: ChatConversation, named: NamedCommands) -> None:
        self._chat, self._named = chat, named

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Return no completions: prompt_toolkit calls the asynchronous method instead."""
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        text = document.text_before_cursor
        word = text.rsplit(maxsplit=1)[-1] if text and not text[-1].isspace() else ""
        try:
            if word.startswith("@"):
                async for completion in self._files(word):
                    yield completion
            elif text.startswith("/"):
                for completion in _words(await self._meanings(text, word), document, complete_event):
                    yield completion
        except AppServerError:
            return

    async def _meanings(self, text: str, word: str) -> Mapping[str, str]:
        """Return the possible words at the end of a slash command, each with its meaning."""
        cwd = self._chat.thread.opened.cwd
        if text == word:
            named = await (self._named.known(cwd) if len(text) > 1 else self._named.read(cwd))
            own = {f"/{name}": command.help for name, command in COMMANDS.items()}
            return own | {f"/{name}": f"{each.help} {each.hint}".rstrip() for name, each in named.items()}
        name, *before = text[1 : len(text) - len(word)].split()
        if name == "model":
            return await self._models(before)
        if name in COMMANDS:
            return {} if before else dict.fromkeys(COMMANDS[name].words, "")
        found = (await self._named.known(cwd)).get(name)
        return {} if found is None else dict.fromkeys(found.arguments, found.hint)

    async def _models(self, before: list[str]) -> Mapping[str, str]:
        models = await self._named.models(self._chat.thread.opened.model_provider)
        if not before:
            return {each.model: each.description for each in models}
        efforts = [
            option for each in models if [each.model] == before for option in each.supported_reasoning_efforts
        ]
        return {each.reasoning_effort: each.description for each in efforts}

    async def _files(self, word: str) -> AsyncGenerator[Completion, None]:
        params = {"query": word[1:], "roots": [str(self._chat.cwd)], "cancellationToken": "chat"}
        for file in (await self._chat.server.request_raw("fuzzyFileSearch", params))["files"]:
            yield Completion(file["path"], -len(word), display=printable(file["path"]))


def _words(
    meanings: Mapping[str, str], document: Document, complete_event: CompleteEvent
) -> Iterable[Completion]:
    """Return completions of the last word. Their descriptions, and some of the words, come from other sources."""
    shown = {
        word: " ".join(printable(meaning).split())
        for word, meaning in meanings.items()
        if word == printable(word)
    }
    return FuzzyWordCompleter([*shown], shown, WORD=True).get_completions(document, complete_event)
