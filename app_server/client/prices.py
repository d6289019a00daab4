"""Prices of tokens, from a file of the user: this program knows no prices.

The file is JSON. It has prices by the names of models, for a million tokens each and in any currency of the user:
`{"gpt-5": {"input": 1.25, "cachedInput": 0.125, "output": 10}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Protocol

import msgspec
from msgspec import Meta, Struct

PRICES_FILE: Final = "prices.json"
"""Name of the file in the home."""

Amount = Annotated[float, Meta(ge=0)]


class SpentTokens(Protocol):
    """Counts of tokens. Cached input tokens are included in the input tokens."""

    @property
    def input_tokens(self) -> int: ...
    @property
    def cached_input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...


class ModelPrice(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Price of a million tokens of a model."""

    input: Amount
    output: Amount
    cached_input: Amount | None = None
    """Price of cached input. None if it is that of other input."""

    def cost(self, usage: SpentTokens) -> float:
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = usage.input_tokens - usage.cached_input_tokens
        spent = fresh * self.input + usage.cached_input_tokens * cached + usage.output_tokens * self.output
        return spent / 1e6


def parse_prices(data: bytes) -> Mapping[str, ModelPrice]:
    """Parse a file of prices. Raises ValueError, which says what was expected and where."""
    try:
        return msgspec.json.decode(data, type=dict[str, ModelPrice])
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
