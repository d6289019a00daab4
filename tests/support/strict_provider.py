"""Common parts of all strict providers: a script of answers, which each provider writes in its own form."""

import json
from dataclasses import dataclass, field
from typing import Protocol

from app_server_protocol.encoding import Json
from tests.support.scripted_model import ModelRequest, Reply


class Refused(Exception):
    """Refusal of a request, with the rule that it broke and the provider's error text."""

    def __init__(self, rule: str, words: str) -> None:
        super().__init__(words)
        self.rule = rule


@dataclass(frozen=True)
class Answer:
    """One answer: thoughts, text and calls."""

    text: str = ""
    calls: tuple[tuple[str, str, Json], ...] = ()
    """Id, name and arguments of each call."""
    thought: str = ""


def written(arguments: Json) -> str:
    """Return arguments as JSON; a string is returned unchanged."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def shell(id: str, command: str) -> tuple[str, str, Json]:
    return id, "shell", {"command": ["sh", "-c", command]}


class Strict(Protocol):
    """Provider of one wire format."""

    @property
    def wire(self) -> str: ...

    @property
    def model(self) -> str: ...

    def check(self, body: Json) -> None:
        """Raise Refused for a request that the provider does not accept."""
        ...

    def refusal(self, words: str) -> Reply: ...

    def too_long(self) -> Reply:
        """Return the refusal of a request that is too long."""
        ...

    def write(self, answer: Answer, n: int, body: Json) -> Reply:
        """Return answer number `n`, to a request with this body."""
        ...


@dataclass
class Author:
    """Author that answers a model's requests by a script if the provider accepts them."""

    provider: Strict
    answers: list[Answer]
    refusals: list[str] = field(default_factory=list)
    answered: int = 0

    def __call__(self, request: ModelRequest) -> Reply:
        try:
            self.provider.check(request.body)
        except Refused as refused:
            self.refusals.append(f"{refused.rule}: {refused}")
            return self.provider.refusal(str(refused))
        self.answered += 1
        return self.provider.write(self.answers.pop(0), self.answered, request.body)
