"""Names in writable roots that must not come into being: empty directories hold them meanwhile.

A name that is not there cannot be mounted over. The launcher therefore makes it an empty directory, which
every command sees read-only, and removes it when the last command that needs it has ended. Only the
launcher knows which of these directories are its own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class ReservedNames:
    holders: dict[bytes, int] = field(default_factory=dict)

    def take(self, names: Iterable[bytes]) -> tuple[bytes, ...]:
        """Holds these names; gives those that exist now, so that they can be fenced."""
        taken: list[bytes] = []
        for name in names:
            if name not in self.holders:
                try:
                    os.mkdir(name, 0o755)
                except FileExistsError:
                    taken.append(name)  # somebody made it meanwhile: fenced, not ours to remove
                    continue
                except OSError:
                    continue  # where the server can make nothing, its commands cannot either
                self.holders[name] = 0
            self.holders[name] += 1
            taken.append(name)
        return tuple(taken)

    def give_back(self, names: Iterable[bytes]) -> None:
        for name in names:
            if name in self.holders:
                self.holders[name] -= 1
                if self.holders[name] == 0:
                    self._remove(name)

    def give_back_all(self) -> None:
        for name in list(self.holders):
            self._remove(name)

    def _remove(self, name: bytes) -> None:
        del self.holders[name]
        with contextlib.suppress(OSError):  # no longer empty, or gone: not ours any more
            os.rmdir(name)
