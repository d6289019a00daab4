"""Commands that need no approval in an untrusted folder, and those that do, git among them; and the possible folders of
a script.
"""

from functools import partial

import pytest

from app_server.engine.approvals.shell.git_commands import is_plain_config, is_plain_repository
from app_server.engine.approvals.shell.safe_commands import MAX_FOLDERS, Reach
from app_server.engine.approvals.shell.safe_commands import is_known_safe as judge_safe
from tests.engine.approvals.shell.tables import entries

is_known_safe = partial(judge_safe, trusts=lambda program: True)

READING = """
    ls | ls -la src | ls --color=never -1 | ls --sort time | ls -- -x | /bin/ls | /usr/bin/cat f | cat f g
    cat -n f | cat | cat - | head f | head -5 f | head -n 5 f g | head --lines=5 f | tail -n +5 f | tail -c 20 f
    wc -l f | wc | nl -ba f | nl -b a f | tac f | rev f | cut -d: -f1 f | cut -f 1,2 --output-delimiter=x f
    paste -s f g | uniq -c f | uniq | base64 f | base64 -d f | base64 -w0 f | base64 --decode f | stat f
    stat -c %s f | pwd | pwd -P | true | false | whoami | id | id -un | uname -a | uname | which -a ls | seq 5
    seq 1 -1 -5 | seq -w 3 | expr 1 + 1 | echo hi there | echo -n x | echo -rf --delete | tr -d a | tr a-z A-Z
    numfmt --to=iec 5 | grep foo f | grep -rn foo . | grep -3 -A 2 -e foo -- f
    grep -rnI --include=x --exclude-dir=y foo src | grep -m1 x f | rg foo | rg -n foo src | rg --files
    rg -g x -t py -A3 foo src | rg -uu --hidden --no-ignore foo | rg -l --sort path a | find . -name x
    find src test -type f -maxdepth 2 -print0 | find . ! -name x -o -size +10k -mtime -7 | find -L . -ls
    find -P -H src -type f
    sed -n 5p f | sed -n 1,20p f | sed -n 1,20p | cd src | cd | cd - | cd -- src
"""


@pytest.mark.parametrize("command", entries(READING))
def test_reading_runs_unasked(command: str) -> None:
    assert is_known_safe(["bash", "-lc", command])
    assert is_known_safe(command.split())


@pytest.mark.parametrize(
    "script",
    [
        "cat f | head -3 | wc -l",
        "cd src && rg -n foo | head -n 20; pwd",
        "ls || echo 'nothing; rm -rf here'",
        "find . -name '*.py' | grep -v \"test\" | wc -l",
        "sed -n '1,200p' src/a.py",
        "grep -rn 'a\\|b' --include='*.py' .",
        "cd /home/me/project && cat proc/x && rg foo",
        " && ".join(["true"] * 60),
    ],
)
def test_scripts_of_reading_commands_run_unasked(script: str) -> None:
    for shell in ("bash", "zsh", "sh", "/bin/bash"):
        assert is_known_safe([shell, "-lc", script])
        assert is_known_safe([shell, "-c", script])


NOT_KNOWN = """
    rm f | rm -rf d | mv a b | cp a b | touch f | mkdir d | chmod +x f | ln -s a b | dd if=f of=g | tee f
    truncate -s0 f | sort f | sort -o f f | tree | tree -o f | awk 1 f | jq . f | xxd f | strings f | od f
    du -sh . | df | dirname f | realpath f | basename f | test -f f | [ -f f ] | date | hostname | hostname x
    less f | more f | man ls | yes | printf x | python3 x.py | node -e 1 | perl -e 1 | make | npm test
    cargo check | cargo build | go vet | pytest | tsc | curl http://x | wget x | nc x 1 | ssh x | ping x | ps aux
    kill 1 | foo | apply_patch x | xargs rm | xargs cat | env | env ls | env FOO=1 ls | command ls | builtin cd d
    exec ls | time ls | nohup ls | sudo ls | timeout 5 ls | nice ls | watch ls | eval ls | source ./x | . ./x
    set -e | trap id EXIT | alias ls=rm | ./ls | ../ls | d/../ls | /tmp/ls | /nonexistent/ls | /usr/local/bin/ls
    /usr/bin/../../tmp/ls | /bin/sub/ls | ~/ls | find . -delete | find . -exec id ; | find . -execdir id +
    find . -ok id ; | find . -fls out | find . -fprint out | find . -fprint0 out | find . -fprintf out %p
    find . -files0-from x | find . -name -delete | find . -newerXY x | find -f x | find . -name | find . -name x y
    find -D help | find -O3 . | find . -P | find -name a -H | find . -size -delete
    find . -okdir id ; | rg --pre cat foo | rg --pre=cat foo
    rg --hostname-bin id foo | rg --hostname-bin=id foo | rg -z foo | rg -nz foo | rg --search-zip foo
    rg --pre-glob x foo | rg -f p foo | rg --file=p foo | rg --ignore-file x y | rg --fil x | sed -i s/a/b/ f
    sed s/a/b/ f | sed -n 1p --in-place | sed -n 1p -i | sed -n 1p -fevil.sed | sed -n w f | sed -n 1w f
    sed -n 1e f | sed -n /a/p f | sed -n 1p f g | sed -n 1,p f | sed -n 1p; f | sed -ne 1p f | sed -n -e 1p f
    sed --posix | sed -n 1p -- f | base64 -o out f | base64 -oout f | base64 -dout f | base64 --output out f
    base64 --output=out f | uniq f out | uniq -c f out | uniq +1 f out | uniq -- f out | wc --files0-from=f
    wc --files0-from f | tail -f f | tail -F f | tail --follow f | tail --retry f | tail -5f f | grep -f p f
    grep --fil=p f | grep -D read x f | ls --help-me | ls -@ | cat --unknown f | head -c | cut -f | id a b | pwd x
    true x | whoami x | which --read-alias | git status | git diff | git log | git -C d status | git branch -D x
    git show --output=out HEAD | cd a b | cd -x d | nl --unknown f | paste --x f | seq | seq 1 2 3 4 | seq -f %x 3
    uname x | tr a b c | stat -x=1 f | tac -x f | rev -x
"""


@pytest.mark.parametrize("command", entries(NOT_KNOWN))
def test_what_is_not_known_to_only_read_asks(command: str) -> None:
    assert not is_known_safe(command.split())
    assert not is_known_safe(["bash", "-lc", command])
    # The strictest part decides, at any position.
    for script in (f"ls && {command}", f"{command} | wc -l", f"{command} || pwd", f"ls; {command}"):
        assert not is_known_safe(["bash", "-lc", script])


@pytest.mark.parametrize(
    "script",
    [
        'find . -name zzz "-del"ete',
        "find . -name zzz -'delete'",
        "rg '--pre=cat' foo",
        "rg --pr'e'=cat foo",
        'sed -n "1p" "-fevil.sed"',
        "sed -n '1,$p' f",
        "git show '--output=out' HEAD",
        'base64 "-o" out f',
        "'rm' f",
        "cat f | sh",
        "ls | xargs cat",
        'echo "$(rm f)"',
        "true && " * 60 + "rm f",
        "uniq 'f' \"out\"",
    ],
)
def test_quotes_do_not_hide_words(script: str) -> None:
    assert not is_known_safe(["bash", "-lc", script])


@pytest.mark.parametrize(
    "argv",
    [
        [],
        [""],
        [" "],
        ["ls", ";", "rm", "x"],
        ["ls", "&&", "pwd"],
        ["ls", "|", "wc"],
        ["cat", "f", ">", "g"],
        ["ls", "2>", "g"],
        ["ls", "&"],
        ["ls", "\x1b[2J"],
        ["ls", "a\nb"],
        ["ls -la"],
        ["bash", "-lc", "ls", "extra"],
        ["bash", "-ic", "ls"],
        ["bash", "--login", "-c", "ls"],
        ["bash", "script.sh"],
        ["./bash", "-lc", "ls"],
        ["bash", "-lc", "bash -lc ls"],
        ["bash", "-lc", ""],
    ],
)
def test_argument_vectors_are_judged_as_what_they_execute(argv: list[str]) -> None:
    assert not is_known_safe(argv)


def test_words_of_an_argument_vector_are_literal() -> None:
    assert is_known_safe(["grep", "-n", "$HOME|*.py; `x`", "a b"])
    assert is_known_safe(["find", ".", "(", "-name", "*.py", "-o", "-name", "~", ")"])


@pytest.mark.parametrize(
    "script",
    [
        "cat /proc/self/environ",
        "cat //proc/self/environ",
        "cat /tmp/../proc/self/environ",
        "cat ../../../proc/1/environ",
        "head -c 1 /dev/tty",
        "cat < /dev/tty",
        "ls /sys/kernel",
        "rg foo /",
        "grep -r foo /../",
        "grep -r foo ../..",
        "cd / && cat proc/self/environ",
        "cd / && rg foo",
        "cd /; cd tmp; cat ../proc/self/environ",
        "cd / || cd tmp; cat proc/self/environ",
        "cd .. && cat proc/self/environ",
        "cat /home/me/.ssh/id_rsa",
        "cat ../.aws/credentials",
        "cd .ssh && cat id_rsa",
        "cat .env",
        "cat /etc/shadow",
        "find /proc -name environ",
        "cat -- /dev/stdin",
    ],
)
def test_files_of_the_kernel_and_secrets_ask(script: str) -> None:
    assert not is_known_safe(["bash", "-lc", script])


@pytest.mark.parametrize(
    "script", ["cat dev/x src/proc/y", "cd dev && cat sys/x", "ls /", "cat ../README.md", "ls .."]
)
def test_folders_of_the_same_names_do_not(script: str) -> None:
    assert is_known_safe(["bash", "-lc", script])


def test_many_folder_changes_are_not_followed() -> None:
    assert is_known_safe(["bash", "-lc", "cd a && cd b && ls"])
    assert not is_known_safe(["bash", "-lc", " && ".join(f"cd d{n}" for n in range(20))])


READING_GIT = """
    git status | git status -sb | git status --porcelain=v2 | git diff | git diff --stat HEAD
    git diff --cached -- f | git show HEAD | git show HEAD:f | git log --oneline -5 | git log -n 3 -p f
    git branch | git branch -a | git branch --show-current | /usr/bin/git status
"""

NOT_READING = """
    git | git -C d status | git -c core.pager=x log | git --config-env=core.pager=X log | git --git-dir=d/.git log
    git --work-tree=/ status | git --exec-path=/x status | git -p log | git --paginate log | git --no-pager log
    git log --output=out | git log --output out | git log --outp=out | git show --output=out HEAD
    git diff --ext-diff | git diff --ext-dif | git log -p --textconv | git diff --no-index f g
    git log --show-signature | git log --format=%G? | git branch -d x | git branch -D x | git branch -m a b
    git branch x | git branch --edit-description | git branch -u origin/x | git checkout status | git reset --hard
    git clean -fdx | git fetch | git pull | git push | git stash | git remote -v | git config -l
    git rev-parse HEAD | git ls-files | git blame f | git grep -O foo | git help -a | git commit -m x | git add .
    git tag | ./git status | d/git status | git status ; rm x | cd d && git status | cd d; git log | git difftool
    git log -S | git submodule status | git archive HEAD
"""


@pytest.mark.parametrize("command", entries(READING_GIT))
def test_reading_runs_unasked_in_a_plain_repository(command: str) -> None:
    for argv in (command.split(), ["bash", "-lc", f"{command} | head -5"]):
        assert is_known_safe(argv, git_is_plain=lambda: True)
        assert not is_known_safe(argv, git_is_plain=lambda: False)
        assert not is_known_safe(argv)


@pytest.mark.parametrize("command", entries(NOT_READING))
def test_everything_else_asks_in_any_repository(command: str) -> None:
    assert not is_known_safe(["bash", "-lc", command], git_is_plain=lambda: True)
    assert not is_known_safe(command.split(), git_is_plain=lambda: True)


def test_the_repository_is_looked_at_only_for_git() -> None:
    def asked() -> bool:
        raise AssertionError("nothing here is git")

    assert is_known_safe(["bash", "-lc", "ls && rg git"], git_is_plain=asked)
    assert not is_known_safe(["git", "push"], git_is_plain=asked)


PLAIN = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
[remote "origin"]
\turl = https://example.com/a.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
\tremote = origin
\tmerge = refs/heads/main
# a comment
[user]
  name = A B
"""


def test_a_clone_is_plain() -> None:
    assert is_plain_config(PLAIN)
    assert is_plain_config("")


@pytest.mark.parametrize(
    "lines",
    [
        "[core]\nfsmonitor = ./evil",
        "[core]\n  FSMonitor=true",
        "[core]\nfsmonitor",
        "[core] fsmonitor = ./evil",
        "[core]\nhooksPath = .",
        "[core]\npager = evil",
        "[core]\nsshCommand = evil",
        "[core]\nworktree = /",
        "[core]\nattributesFile = x",
        '[filter "x"]\nclean = evil',
        "[filter.x]\nclean = evil",
        '[diff "x"]\ntextconv = evil',
        "[diff]\nexternal = evil",
        "[include]\npath = other",
        '[includeIf "gitdir:/"]\npath = other',
        "[extensions]\nworktreeConfig = true",
        '[remote "x"]\npromisor = true',
        '[remote "x"]\nuploadpack = evil',
        "[gpg]\nprogram = evil",
        "[log]\nshowSignature = true",
        "[status]\nsubmoduleSummary = true",
        "[alias]\nstatus = !evil",
        '[submodule "x"]\nurl = y',
        # lines that git may read differently
        "[user]\nname = a\\\n[core]\nfsmonitor = evil",
        '[user]\nname = "a\n[core]\nfsmonitor = evil"',
        "[user]\nname = a\r[core]\rfsmonitor = evil",
        "fsmonitor = evil",
        "[core\nfsmonitor = evil",
        '[branch "a\\"b"]\nremote = x',
    ],
)
def test_what_names_something_to_run_is_not_plain(lines: str) -> None:
    assert not is_plain_config(PLAIN + lines + "\n")


FILES = {"config": PLAIN.encode(), "index": b"DIRC\0\0\0\2", "HEAD": b"ref: refs/heads/main\n"}


@pytest.mark.parametrize(
    "more",
    [
        {"commondir": b"../x"},
        {"config.worktree": b"[core]\n"},
        {"hooks/post-index-change": b""},
        {"index": b"DIRC\0\0\0\2" + b"\0\0\xe0\0" + b"sub\0"},
        {"index": b"DIRC\0\0\0\2link"},
        {"config": b"[core]\nfsmonitor = x\n"},
        {"config": None},
    ],
)
def test_other_files_of_a_repository_count(more: dict[str, bytes | None]) -> None:
    assert is_plain_repository(FILES.get)
    assert not is_plain_repository({**FILES, **more}.get)


@pytest.mark.parametrize("words", [[], ["-"], ["a"], ["-L", "a"], ["-P", "a"], ["--", "a"]])
def test_a_change_of_folder_is_understood(words: list[str]) -> None:
    reach = Reach()
    assert not reach.has_moved
    assert reach.moves(words)
    assert reach.has_moved


@pytest.mark.parametrize("words", [["a", "b"], ["-x", "a"], ["-p", "a"]])
def test_a_change_that_is_not_understood_is_none(words: list[str]) -> None:
    assert not Reach().moves(words)


def test_each_change_may_have_failed_and_only_so_many_folders_are_tracked() -> None:
    reach = Reach()
    for name in ("a", "b", "c"):  # 2, 4, 8 folders
        assert reach.moves([name])
    assert MAX_FOLDERS == 8
    assert not reach.moves(["d"])


@pytest.mark.parametrize(
    ("moves", "program", "paths", "allowed"),
    [
        ([], "cat", ["f", "src/proc/x", "../README"], True),
        ([], "cat", [], True),
        ([], "cat", ["f", "/proc/1/environ"], False),
        ([], "ls", ["/"], True),
        ([], "grep", ["/"], False),
        ([], "rg", ["/usr", ".."], False),
        ([], "rg", ["/usr"], True),
        ([], "rg", [], True),
        (["/"], "rg", [], False),
        (["/"], "cat", ["proc/1/environ"], False),
        (["/usr"], "cat", ["proc/1/environ"], True),
        (["/usr"], "cat", ["../proc/1/environ"], False),
        (["/usr", ".."], "cat", ["dev/tty"], False),
        (["a"], "cat", ["../f"], True),
        (["a"], "cat", ["../../dev/tty"], False),
        (["-"], "cat", ["f"], True),
        ([], "cat", ["/home/me/.ssh/id"], False),
        ([], "cat", ["a/.env"], False),
        ([], "cat", [".env.sample"], True),
        (["/etc"], "cat", ["shadow"], False),
        (["/etc"], "cat", ["passwd"], True),
        ([], "cat", ["etc/shadow"], True),
    ],
)
def test_paths_are_judged_from_every_folder_that_the_script_may_be_in(
    moves: list[str], program: str, paths: list[str], allowed: bool
) -> None:
    reach = Reach()
    for target in moves:
        assert reach.moves([target])
    assert reach.allows(program, paths) is allowed
