"""Decodes the text of a file that a user wrote. Pure.

Editors and shells of Windows write a byte order mark before the text, which names its encoding: PowerShell's `>` writes
UTF-16.
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
"""Byte order marks with their encodings. The mark of UTF-32 begins with that of UTF-16, so UTF-32 comes first."""


def text_of_bytes(content: bytes, errors: str = "strict") -> str:
    """Return the text without its byte order mark; without a mark, it is UTF-8. Raises UnicodeDecodeError, unless
    `errors` says how invalid bytes are handled.
    """
    for mark, encoding in MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, errors)
    return content.decode("utf-8", errors)
