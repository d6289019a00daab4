"""Small replacements for standard modules that take long to import, for the launcher and its children.

`typing`, `collections.abc`, `contextlib` and `enum`, which `socket` and `signal` import, and `dataclasses` took two
thirds of the launcher's start, for which the first command waits. They also took much of the memory whose page tables
are copied for each command. Type checkers see the standard modules; this module has the part of them that is used. A
socket of this module is no context manager.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes as long as the rest of this module

if TYPE_CHECKING:
    import signal as signal
    import socket as socket
    from collections.abc import Callable as Callable
    from collections.abc import Iterable as Iterable
    from collections.abc import Sequence as Sequence
    from contextlib import closing as closing
    from contextlib import suppress as suppress
    from typing import Any as Any
else:
    import _signal as signal  # noqa: F401
    import _socket as socket  # noqa: F401

    Any = Callable = Iterable = Sequence = object  # for annotations, which are not evaluated

    class suppress:  # noqa: N801
        def __init__(self, *kinds):
            self._kinds = kinds

        def __enter__(self):
            pass

        def __exit__(self, kind, error, trace):
            return kind is not None and issubclass(kind, self._kinds)

    class closing:  # noqa: N801
        def __init__(self, thing):
            self._thing = thing

        def __enter__(self):
            return self._thing

        def __exit__(self, *exception):
            self._thing.close()
