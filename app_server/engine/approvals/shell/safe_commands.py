"""Commands that run without an approval under the policy that trusts nothing: those that are known to only read.

The module has an allow-list of programs, each with an allow-list of options. None of these writes a file, runs a
program, or follows a growing file, neither in its GNU nor its BSD meaning. Every option that is not listed is refused,
and every form that two implementations might parse differently: abbreviated long options, values that look like
options. A script is safe only if every byte of it is understood and every command in it is safe.

The kernel's files reveal processes and block on devices, and some files contain only secrets: reading those needs an
approval, as far as the text of a path shows it, without following links. The sandbox is the boundary; this module
decides only what runs without approval.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct

from app_server.engine.approvals.shell.quote import word_set
from app_server.engine.approvals.shell.shell_script import Commands, script_of, split_script

_NUMBER = re.compile(r"[+-]?\d+")
_DIGITS = re.compile(r"-\d+")


class Options(Struct, frozen=True):
    """Allowed options of a program: short ones by letter; long ones by name: `all`, `width=` with a value, `color?`
    with an optional value.
    """

    flags: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    numeric: bool = False
    """Whether `-5` is an option, as in `head -5`."""
    most: int | None = None
    """Maximum number of operands. None if there is no limit."""


def options(
    flags: str = "", valued: str = "", long: str = "", *, numeric: bool = False, most: int | None = None
) -> Options:
    return Options(flags, valued, frozenset(long.split()), numeric, most)


def operands_of(words: Sequence[str], allowed: Options) -> list[str] | None:
    """Return the arguments that are not options; None if an option is not allowed."""
    operands: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            operands.extend(rest)
        elif word == "-" or not word.startswith("-"):
            operands.append(word)
        elif not _is_allowed(word, rest, allowed):
            return None
    if allowed.most is not None and len(operands) > allowed.most:
        return None
    return operands


def _is_allowed(word: str, rest: Iterator[str], allowed: Options) -> bool:
    if word.startswith("--"):
        return _is_allowed_long(word[2:], rest, allowed.long)
    if allowed.numeric and _DIGITS.fullmatch(word):
        return True
    for at, letter in enumerate(word[1:], 1):
        if letter in allowed.valued:
            return at + 1 < len(word) or _is_value(next(rest, None))
        if letter not in allowed.flags:
            return False
    return True


def _is_allowed_long(option: str, rest: Iterator[str], allowed: frozenset[str]) -> bool:
    name, has_value, _ = option.partition("=")
    if has_value:
        return f"{name}=" in allowed or f"{name}?" in allowed
    if f"{name}=" in allowed:
        return _is_value(next(rest, None))
    return name in allowed or f"{name}?" in allowed


def _is_value(word: str | None) -> bool:
    return word is not None and (not word.startswith("-") or _NUMBER.fullmatch(word) is not None)


Reader = Callable[[Sequence[str]], "list[str] | None"]
"""Function from a program's arguments to the paths that it reads. None if the program is not known to only read."""

_LINE_RANGE = re.compile(r"\d+(,\d+)?p", re.ASCII)
_NUMERIC = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)

_FILE_READERS: Mapping[str, Options] = {
    "cat": options(
        "AbeEnstTuv",
        long="show-all number number-nonblank show-ends show-tabs show-nonprinting squeeze-blank",
    ),
    "head": options("qvz", "cn", "bytes= lines= quiet silent verbose zero-terminated", numeric=True),
    "tail": options("qvz", "cn", "bytes= lines= quiet silent verbose zero-terminated", numeric=True),
    "wc": options("clmwL", long="bytes chars lines words max-line-length"),
    "nl": options("p", "bdfhilnsvw"),
    "tac": options("br", "s", "before regex separator="),
    "rev": options(),
    "cut": options(
        "nsz",
        "bcdf",
        "bytes= characters= delimiter= fields= complement only-delimited output-delimiter= zero-terminated",
    ),
    "paste": options("sz", "d", "delimiters= serial zero-terminated"),
    "uniq": options(
        "cdDiuz",
        "fsw",
        "count repeated unique ignore-case skip-fields= skip-chars= check-chars= zero-terminated",
        most=1,  # the second operand would be written
    ),
    "base64": options("dDi", "w", "decode ignore-garbage wrap="),
    "stat": options("fLtx", "c", "dereference file-system format= printf= terse"),
    "ls": options(
        "aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1",
        "ITw",
        "all almost-all author block-size= classify? color? colour? context dereference directory escape "
        "file-type format= full-time group-directories-first hide= human-readable hyperlink? ignore= "
        "ignore-backups indicator-style= inode kibibytes literal no-group numeric-uid-gid quote-name quoting-style= "
        "recursive reverse show-control-chars si size sort= time= time-style= width= zero",
    ),
    "grep": options(
        "abcEFGHhiIlLnoPqrRsUvVwxyT",
        "ABCem",
        "after-context= basic-regexp before-context= binary-files= byte-offset color? colour? context= count "
        "dereference-recursive exclude= exclude-dir= extended-regexp files-with-matches files-without-match "
        "fixed-strings ignore-case include= initial-tab invert-match label= line-buffered line-number line-regexp "
        "max-count= no-filename no-ignore-case no-messages null only-matching perl-regexp quiet recursive regexp= "
        "silent text version with-filename word-regexp",
        numeric=True,
    ),
    "rg": options(
        "abcFhHiIlLnNopPqsSuUvVwx0.",
        "ABCegjmMrtTEd",
        "after-context= auto-hybrid-regex before-context= block-buffered byte-offset case-sensitive color= column "
        "context= context-separator= count count-matches crlf encoding= engine= field-context-separator= "
        "field-match-separator= files files-with-matches files-without-match fixed-strings follow glob= "
        "glob-case-insensitive heading hidden iglob= ignore-case include-zero invert-match json line-buffered "
        "line-number line-regexp max-columns= max-columns-preview max-count= max-depth= max-filesize= mmap multiline "
        "multiline-dotall no-config no-filename no-heading no-hidden no-ignore no-ignore-dot no-ignore-exclude "
        "no-ignore-files no-ignore-global no-ignore-messages no-ignore-parent no-ignore-vcs no-line-number "
        "no-messages no-mmap no-require-git no-unicode null null-data one-file-system only-matching passthru "
        "path-separator= pcre2 pretty quiet regexp= replace= smart-case sort= sortr= stats text threads= trim type= "
        "type-list type-not= unrestricted version vimgrep with-filename word-regexp",
    ),
}

_OTHERS: Mapping[str, Options] = {
    "pwd": options("LP", most=0),
    "true": options(most=0),
    "false": options(most=0),
    "whoami": options(most=0),
    "uname": options(
        "ampnrsvio",
        long="all kernel-name nodename kernel-release kernel-version machine processor hardware-platform "
        "operating-system",
        most=0,
    ),
    "id": options("aGgnruzZ", long="user group groups name real zero context", most=1),
    "which": options("as", long="all"),
    "tr": options("cCdstu", long="complement delete squeeze-repeats truncate-set1", most=2),
    "numfmt": options(
        "z",
        "d",
        "delimiter= field= format= from= from-unit= grouping header? invalid= padding= round= suffix= to= to-unit= "
        "zero-terminated",
    ),
}


def _without_paths(words: Sequence[str], allowed: Options) -> list[str] | None:
    return None if operands_of(words, allowed) is None else []


def _seq(words: Sequence[str]) -> list[str] | None:
    """Read the operands, which may be negative numbers and look like options."""
    numbers = [word for word in words if _NUMERIC.fullmatch(word)]
    others = [word for word in words if not _NUMERIC.fullmatch(word)]
    return [] if others in ([], ["-w"]) and 1 <= len(numbers) <= 3 else None


def _sed(words: Sequence[str]) -> list[str] | None:
    """Accept only a script that prints a range of lines of one file: other scripts write files and run commands."""
    match words:
        case ["-n", script] if _LINE_RANGE.fullmatch(script):
            return []
        case ["-n", script, path] if _LINE_RANGE.fullmatch(script) and not path.startswith("-"):
            return [path]
        case _:
            return None


_NEGATIVE = re.compile(r"-\d\w*", re.ASCII)
_FIND_TESTS = word_set(
    "-daystart -depth -empty -executable -false -follow -ls -mount -noleaf -not -nogroup -nouser -o -or -a "
    "-and -print -print0 -prune -quit -readable -true -warn -nowarn -writable -xdev ! ( ) ,"
)
_FIND_VALUED = word_set(
    "-amin -anewer -atime -cmin -cnewer -ctime -gid -group -ilname -iname -inum -ipath -iregex -iwholename "
    "-links -lname -maxdepth -mindepth -mmin -mtime -name -newer -newermt -path -perm -printf -regex "
    "-regextype -samefile -size -type -uid -used -user -wholename -xtype"
)


def _find(words: Sequence[str]) -> list[str] | None:
    """Accept starting points, then an expression of tests and of actions that print."""
    rest = iter(words)
    paths: list[str] = []
    in_expression = False
    for word in rest:
        if word in _FIND_VALUED:
            in_expression = True
            value = next(rest, None)
            # Another `find` may take no value here, so the word must not be an action of its own.
            if value is None or (value.startswith("-") and not _NEGATIVE.fullmatch(value)):
                return None
        elif word in _FIND_TESTS:
            in_expression = True
        elif word in ("-H", "-L", "-P") and not (paths or in_expression):
            continue
        elif word.startswith("-") or in_expression:
            return None
        else:
            paths.append(word)
    return paths


READERS: Mapping[str, Reader] = {
    **{name: partial(operands_of, allowed=allowed) for name, allowed in _FILE_READERS.items()},
    **{name: partial(_without_paths, allowed=allowed) for name, allowed in _OTHERS.items()},
    **dict.fromkeys(("echo", "expr"), lambda words: []),
    "seq": _seq,
    "sed": _sed,
    "find": _find,
}


_GIT_DIFF = (
    "abbrev-commit all author= cached color? compact-summary decorate? exit-code find-renames? first-parent follow "
    "graph grep= ignore-all-space ignore-blank-lines ignore-space-change max-count= merge-base merges minimal "
    "name-only name-status no-color no-decorate no-ext-diff no-merges no-patch no-renames no-textconv numstat oneline "
    "patch quiet raw relative? reverse shortstat since= staged stat? summary unified= until= word-diff?"
)
_GIT_READING = {
    "status": options(
        "sbuvz",
        long="ahead-behind branch long no-renames porcelain? short show-stash untracked-files? verbose",
    ),
    "diff": options("bpRwz", "U", _GIT_DIFF),
    "show": options("bpswz", "U", _GIT_DIFF),
    "log": options("bpswz", "nU", _GIT_DIFF, numeric=True),
    "branch": options("arv", long="all color? list no-color remotes show-current verbose", most=0),
}


def git_reads(words: Sequence[str]) -> bool:
    """Return whether `git` with these arguments only reads. Options before the command select other repositories, so
    they are refused.
    """
    if not words or words[0] not in _GIT_READING:
        return False
    return operands_of(words[1:], _GIT_READING[words[0]]) is not None


_KERNEL_FOLDERS = frozenset({"proc", "dev", "sys"})
_PRIVATE_NAMES = frozenset(
    {".ssh", ".gnupg", ".aws", ".azure", ".kube", ".netrc", ".pgpass", ".git-credentials", ".codex", ".env"}
)
_PRIVATE_FILES = frozenset({"/etc/shadow", "/etc/gshadow", "/etc/sudoers"})
_SEARCHERS = frozenset({"grep", "rg"})
MAX_FOLDERS = 8


class Reach:
    """The working directories that a script may have: each `cd` may have succeeded or not."""

    def __init__(self) -> None:
        self._folders = {""}
        self.has_moved = False

    def moves(self, words: Sequence[str]) -> bool:
        """Apply a `cd` with these arguments. Return False if they are not understood."""
        operands = [word for word in words if word not in ("-L", "-P", "--")]
        if len(operands) > 1 or any(word.startswith("-") and word != "-" for word in operands):
            return False
        self.has_moved = True
        # The home directory and the previous one are unknown, like the initial one.
        target = operands[0] if operands and operands[0] != "-" else ""
        self._folders |= {posixpath.normpath(posixpath.join(folder, target)) for folder in self._folders}
        return len(self._folders) <= MAX_FOLDERS

    def allows(self, program: str, paths: Sequence[str]) -> bool:
        searches = program in _SEARCHERS
        return not any(
            _is_off_limits(posixpath.normpath(posixpath.join(folder, path)), everything=searches)
            for folder in self._folders
            for path in (*paths, *([""] if searches else []))
        )


def _is_off_limits(path: str, *, everything: bool) -> bool:
    """Return whether reading a path needs an approval. `everything` says that the command reads all files below, and
    the kernel's folders are below the root.
    """
    parts = [part for part in path.split("/") if part]
    outside = [part for part in parts if part != ".."]
    is_rooted = path.startswith("/") or ".." in parts
    if is_rooted and (outside[0] in _KERNEL_FOLDERS if outside else everything):
        return True
    return path in _PRIVATE_FILES or not _PRIVATE_NAMES.isdisjoint(parts)


_PROGRAM_FOLDERS = ("/usr/bin/", "/bin/")
_OPERATOR_WORD = re.compile(r"\d*[;&|<>]+")


def is_known_safe(
    argv: Sequence[str],
    *,
    trusts: Callable[[str], bool],
    git_is_plain: Callable[[], bool] | None = None,
    allowed: Callable[[Sequence[str]], bool] = lambda words: False,
) -> bool:
    """Return whether the command is known to only read. Commands that `allowed` accepts are excepted: the user has
    agreed to them.

    `trusts` receives the name of each program, including the shell, and returns whether the name resolves to the
    program of the system and not to a file of the workspace. `git_is_plain` is called for git commands, and returns
    whether the repository of the working directory configures nothing that git would run
    (`git_commands.is_plain_repository`). Without it, no git command is safe.
    """
    script = script_of(argv)
    commands = _single(argv) if script is None else split_script(script)
    if commands is None:
        return False
    agreed = frozenset(words for words in commands if allowed(words))
    reach = Reach()
    # A command to which the user agreed may write, so it is not known what git would find afterwards.
    plain = None if agreed else git_is_plain
    if not all(words in agreed or _only_reads(words, reach, git_is_plain=plain) for words in commands):
        return False
    if script is None:
        return trusts(argv[0])
    # `cd` is built into every shell.
    return all(map(trusts, dict.fromkeys([argv[0], *(words[0] for words in commands if words[0] != "cd")])))


def _single(argv: Sequence[str]) -> Commands | None:
    """Return the one command; None if an operator is an argument: the model forgot the shell, so the command would not
    do what the model intended.
    """
    if not argv or not all(word.isprintable() and not _OPERATOR_WORD.fullmatch(word) for word in argv):
        return None
    return (tuple(argv),)


def _only_reads(words: Sequence[str], reach: Reach, *, git_is_plain: Callable[[], bool] | None) -> bool:
    name, rest = _program(words[0]), words[1:]
    if name == "cd":
        return reach.moves(rest)
    if name == "git":
        return git_is_plain is not None and not reach.has_moved and git_reads(rest) and git_is_plain()
    if (reader := READERS.get(name)) is None:
        return False
    paths = reader(rest)
    return paths is not None and reach.allows(name, paths)


def _program(word: str) -> str:
    """Return the name of a program on the PATH or in a system folder. Any other path is returned unchanged."""
    for folder in _PROGRAM_FOLDERS:
        if word.startswith(folder):
            return word.removeprefix(folder)
    return word
