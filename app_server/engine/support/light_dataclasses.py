"""`dataclass` for programs without site-packages (the launcher, its children, `apply_patch`), made without `inspect`.

Type checkers see the standard one. At run time classes stay as they are written and get `__init__` and, if frozen,
equality and hash; `frozen` and `slots` are kept by the type checker.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes as long as the rest of this module

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
else:
    _MISSING = object()

    class _Field:
        def __init__(self, default, default_factory, init):
            self.default, self.default_factory, self.init = default, default_factory, init

        def value(self, name):
            if self.default_factory is not None:
                return self.default_factory()
            if self.default is _MISSING:
                raise TypeError(f"missing argument: {name}")
            return self.default

    def field(*, default=_MISSING, default_factory=None, init=True):
        return _Field(default, default_factory, init)

    def dataclass(cls=None, /, *, frozen=False, slots=False):
        def decorate(cls):
            fields = {name: _field_of(cls, name) for name in vars(cls).get("__annotations__", {})}
            cls.__init__ = _init_of(fields)
            cls.__match_args__ = tuple(name for name, each in fields.items() if each.init)
            if frozen:
                cls.__eq__ = lambda self, other: type(other) is type(self) and vars(other) == vars(self)
                cls.__hash__ = lambda self: hash(tuple(vars(self).values()))
            return cls

        return decorate if cls is None else decorate(cls)

    def replace(of, /, **changes):
        return type(of)(**{**vars(of), **changes})

    def _field_of(cls, name):
        default = vars(cls).get(name, _MISSING)
        return default if isinstance(default, _Field) else _Field(default, None, init=True)

    def _init_of(fields):
        parameters = [name for name, each in fields.items() if each.init]
        # A field without a default that is not in `__init__` is set by `__post_init__`.
        unset = {name for name, each in fields.items() if not each.init and each.default is _MISSING}

        def __init__(self, *values, **named):  # noqa: N807
            given = dict(zip(parameters, values, strict=False))
            if len(values) > len(parameters) or given.keys() & named or named.keys() - set(parameters):
                raise TypeError(f"{type(self).__name__} takes {', '.join(parameters)}")
            given.update(named)
            for name, each in fields.items():
                if name in given:
                    setattr(self, name, given[name])
                elif name not in unset or each.default_factory is not None:
                    setattr(self, name, each.value(name))
            if hasattr(self, "__post_init__"):
                self.__post_init__()

        return __init__
