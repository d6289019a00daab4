"""The text of a file that a user wrote. Pure.

Editors and shells of Windows write a mark before it, which says how it is encoded: PowerShell's `>` makes UTF-16.
"""

from __future__ import annotations

import codecs

MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""A mark of UTF-16 begins one of UTF-32, so that comes first."""


def text_of_bytes(content: bytes, errors: str = "strict") -> str:
    """Return the text without its mark: UTF-8 where there is none. Raises UnicodeDecodeError, unless `errors` says what
    is done with bytes that are none of its encoding.
    """
    for mark, encoding in MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, errors)
    return content.decode("utf-8", errors)
