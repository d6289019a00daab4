"""How much of a server's output is believed. Every number here keeps one bad server from costing more than
itself."""

from __future__ import annotations

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""A message beyond this is not parsed; what can be read off its head is all that is left of it."""

KEPT_HEAD_BYTES = 256 * 1024
"""So much of an oversized message is kept, for its id and the beginning of its text."""

MAX_BATCH = 1000
"""Messages in one batch. There is an answer for each request under way, of which there are a few dozen."""

MAX_PAGES = 50
MAX_TOOLS_PER_SERVER = 200
MAX_TOOLS = 300
MAX_RESOURCES = 2000

MAX_DESCRIPTION_CHARS = 8 * 1024
MAX_SCHEMA_BYTES = 64 * 1024
MAX_DEFINITION_BYTES = 160_000
"""Of all tools together: they are sent with every request and fill the model's context."""

MAX_RESULT_CHARS = 1024 * 1024
"""Of the text of one result; what the model sees of it is cut once more where outputs are."""
MAX_RESULT_BLOCKS = 500
MAX_IMAGE_CHARS = 10 * 1024 * 1024
"""Of the base64 of all images of one result."""

MAX_ERROR_CHARS = 4 * 1024
"""Of an error text that a server made up."""

OUTGOING_QUEUE = 64
"""Messages that wait for a server to read. Answers to its own requests are dropped beyond it."""

MAX_OPEN_ELICITATIONS = 4
RESTARTS = 1
"""So often a server that died is started again, on the next call of one of its tools."""

STDERR_LINES = 100
"""So many lines of a server's stderr are logged, at debug level; the rest is read and dropped."""
