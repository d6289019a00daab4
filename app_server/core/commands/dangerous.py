"""TEMPORARY"""
from collections.abc import Sequence


def is_dangerous(argv: Sequence[str]) -> bool:
    return "rm" in argv
