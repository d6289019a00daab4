"""Ids of the operations of a conversation: they count from "0", anew after each resume, whatever API asks."""

from __future__ import annotations

import itertools
from collections.abc import Callable


def operation_numbers() -> Callable[[], str]:
    return map(str, itertools.count()).__next__
