"""What runs unasked where nothing is trusted, and what must not."""

from functools import partial

import pytest

from app_server.core.shell.safe_commands import is_known_safe as judge_safe
from tests.unit.shell.tables import entries

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
    # The strictest part decides, wherever it stands.
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
