"""Limits for the output of servers, so that one faulty server affects nothing but itself."""

from __future__ import annotations

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""A larger message is not parsed; only its head is evaluated."""

KEPT_HEAD_BYTES = 256 * 1024
"""Kept bytes of an oversized message, for its id and the beginning of its text."""

MAX_BATCH = 1000
"""Messages in one batch: one reply for each pending request, of which there are a few dozen."""

MAX_PAGES = 50
MAX_TOOLS_PER_SERVER = 200
MAX_TOOLS = 300
MAX_RESOURCES = 2000

MAX_DESCRIPTION_CHARS = 8 * 1024
MAX_SCHEMA_BYTES = 64 * 1024
MAX_DEFINITION_BYTES = 160_000
"""For all tools together: every request to the model contains them, and they fill its context."""

MAX_RESULT_CHARS = 1024 * 1024
"""For the text of one result; the model's tool outputs are truncated further."""
MAX_RESULT_BLOCKS = 500
MAX_IMAGE_CHARS = 10 * 1024 * 1024
"""For the base64 of all images of one result."""

MAX_INTRODUCTION_BYTES = 16 * 1024
"""For each part of what a server says of itself."""

MAX_ERROR_CHARS = 4 * 1024
"""For an error text from a server."""

OUTGOING_QUEUE = 64
"""Messages that wait for a server to read. When the queue is full, replies to the server's requests are dropped."""

MAX_OPEN_ELICITATIONS = 4
RESTARTS = 1
"""Restarts of a server that died, on the next call of one of its tools."""

STDERR_LINES = 100
"""Lines of a server's stderr that are logged, at debug level; the rest is read and dropped."""
