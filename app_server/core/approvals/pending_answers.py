"""Questions that wait for an answer, by a key that both sides know. The first answer counts; a question that its asker
gave up is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import field
from typing import Generic, TypeVar

import anyio

from protocol.records import dataclass

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


@dataclass(slots=True)
class _OpenQuestion(Generic[Answer]):
    answered: anyio.Event = field(default_factory=anyio.Event)
    answers: list[Answer] = field(default_factory=list)


class PendingAnswers(Generic[Key, Answer]):
    def __init__(self) -> None:
        self._open: dict[Key, _OpenQuestion[Answer]] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def ask(self, key: Key, emit: Callable[[], None]) -> Answer:
        """Emit the question and wait for its answer. No two questions are open under one key."""
        assert key not in self._open
        waiting = self._open[key] = _OpenQuestion[Answer]()
        try:
            emit()
            await waiting.answered.wait()
            return waiting.answers[0]
        finally:
            del self._open[key]

    def resolve(self, key: Key, answer: Answer) -> bool:
        """False if nobody waits for it any more."""
        waiting = self._open.get(key)
        if waiting is None or waiting.answered.is_set():
            return False
        waiting.answers.append(answer)
        waiting.answered.set()
        return True
