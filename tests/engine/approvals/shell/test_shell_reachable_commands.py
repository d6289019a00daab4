"""Ways in which a command line runs a command that its words do not show directly."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.engine.approvals.shell.dangerous_commands import is_dangerous
from app_server.engine.approvals.shell.reachable_commands import commands_of, is_open_name
from app_server.engine.approvals.shell.word_expansion import (
    MAX_APPENDED,
    MAX_BRACES,
    MAX_WORDS,
    TooManyWords,
    decode_escapes,
    expand_braces,
    printed,
)
from tests.engine.approvals.shell.shims import Shims
from tests.engine.approvals.shell.tables import scripts

BASH = shutil.which("bash")

DESTRUCTIVE = {
    "a shell removes a backslash and the newline behind it before it reads words": r"""
        r\⏎m -rf d // rm -\⏎rf d // "r\⏎m" -rf d // echo "$\⏎(rm -rf d)" // ba\⏎sh -c 'rm -rf d'
        bash -c 'r\⏎m -rf d' // bash <<EOF⏎r\⏎m -rf d⏎EOF // env r\⏎m -rf d // echo a\⏎#b; r\⏎m -rf d
        echo ' # \⏎'; r\⏎m -rf d // cat <<E⏎don't⏎E⏎r\⏎m -rf d
    """,
    "it does not in comments, where the next line is a command": r"""
        # c \⏎rm -rf d // # c \⏎r\⏎m -rf d // cat <<'E'⏎don't \⏎E⏎r\⏎m -rf d
    """,
    "braces are expanded before anything else": r"""
        r{m,} -rf d // {r,}m -rf d // r{m..m} -rf d // {"rm",-rf,d} // {r\m,-rf,d} // {{rm,-rf},d} // rm -{r,f}{,} d
        {rm,rm} $'\x2drf' d // case a in a) {rm,ls} -''rf d;; esac // x=m; r{$x,} -rf d
    """,
    "escapes are decoded": r"""
        $'r\x{6d}' -rf d // $'\u72m' -rf d // $'rm\0zz' -rf d // $'\c\x'; rm -rf d // echo -e 'r\x6d -rf d' | bash
        printf 'r\155 -rf d' | bash // printf '%s %s d' rm -rf | bash
    """,
    "any value that a variable has may be the one": r"""
        x=rm; $x -rf d; x=ls // x=r; x+=m; $x -rf d // for x in -rf; do rm $x d; done
        for x in 'rm -rf d'; do $x; done // IFS=,; x=rm,-rf,d; $x // a=(-r -f); rm "${a[@]}" d
        declare -A a=([k]=rm); "${a[k]}" -rf d // : ${x=rm -rf}; $x d // ${x:-rm} -rf d // x=1; ${x:+rm} -r d
        ${x}rm ${x}-rf d // x=rxm; ${x/x} -rf d // r$(echo m) -rf d // rm $(echo -rf) d // $(type -P rm) -r d
    """,
    "parameters of scripts and functions are values, too": r"""
        set -- -rf d; rm "$@" // set -- rm -r; $1 $2 d // f() { rm "$@"; }; f -rf d // f() { rm $1 d; }; f -rf
        bash -c 'rm "$@"' _ -rf d // bash -c '$0 -r d' rm
    """,
    "what runs a text that is not shown may run any text of the script": r"""
        for c in 'rm -rf d'; do eval "$c"; done // while read c; do $c; done <<< 'rm -rf d'
        while read c; do eval $c; done <<EOF⏎rm -rf d⏎EOF // echo 'rm -rf d' | while read l; do bash -c "$l"; done
        echo 'rm -rf d' | { bash; } // (bash) <<< 'rm -rf d' // if true; then bash; fi <<< 'rm -rf d'
        f() { bash; }; f <<< 'rm -rf d' // a=(rm -rf d); "${a[@]}" // f() { "$@"; }; f rm -rf d
        bash -c "$(echo rm -rf d)" // $(echo rm -rf d) // bash -c "$(cat <<'E'⏎{ rm $(echo -rf) d⏎} 2>/dev/null⏎E⏎)"
        exec 3<<< 'rm -rf d'; bash <&3 // x='$(rm -rf d)'; echo "${x@P}" // BASH_ENV=<(echo rm -rf d) bash -c true
        env x='rm -rf d' bash -c '$x' // echo 'rm -rf d' | xargs -I{} bash -c '{}' // echo rm -rf d | xargs -n3 env
        xargs -I{} bash -c {} <<< "'rm -rf d'"
    """,
    "a script may be written first": r"""
        echo rm -rf d > s; bash s // cat > s <<EOF⏎rm -rf d⏎EOF⏎. ./s // echo 'rm -rf d' > s && chmod +x s && ./s
        echo 'rm -rf d' | tee s; bash s
    """,
    "a shell reads its input although it has arguments": r"""
        bash -s x <<< 'rm -rf d' // bash -o errexit <<< 'rm -rf d' // bash --rcfile x <<< 'rm -rf d'
        bash /dev/stdin <<< 'rm -rf d' // bash 0<<< 'rm -rf d' // . /dev/stdin <<< 'rm -rf d'
        source <(printf 'rm -rf d') // bash <(echo rm -rf d)
    """,
    "options of wrappers hold commands": r"""
        env -S'rm -rf d' // env --split='rm -rf d' // env -S'rm\_-rf\_d' // eval -- rm -rf d
        trap -- 'rm -rf d' EXIT // ! ! rm -rf d // script -q -c'rm -rf d' x // setpriv rm -rf d
        find . -exec env rm {} \; // fd x --exec=rm
    """,
    "git runs aliases and scripts, and takes shortened options": r"""
        git -c alias.x='!rm -rf d' x // git -c alias.x=reset x --hard // git -c core.pager='rm -rf d' log
        git submodule foreach --recursive 'rm -rf d' // git bisect run rm -rf d // git rebase -x 'rm -rf d' main
        git rebase --exec='rm -rf d' main // git push --forc // git push --delet origin x
    """,
    "bash evaluates subscripts, prompts and substitutions in text": r"""
        let 'a[$(rm -rf d)]' // [[ -v 'a[$(rm -rf d)]' ]] // printf -v 'a[$(rm -rf d)]' x
        x='a[`rm -rf d`]'; ((x)) // PS4='$(rm -rf d)'; set -x; true // cat <<EOF⏎`rm -rf d`⏎EOF
        echo "${x:-`rm -rf d`}" // echo `\\rm -rf d` // `printf rm` `echo -rf` d // ! bash <<'EOF'⏎\rm -''rf d⏎EOF
    """,
    "variables and options name commands that programs run": r"""
        GIT_SSH_COMMAND='rm -rf d' git fetch // export GIT_PAGER='rm -rf d'; git log
        env LESSOPEN='|rm -rf d' less f // ssh -o 'ProxyCommand=rm -rf d' host // ssh -oProxyCommand='rm -rf d' host
        tar cf x d --checkpoint=1 --checkpoint-action=exec='rm -rf d' // tar xf x --to-command='rm -rf d'
        rsync -a --rsh='rm -rf d' x y:
    """,
    "other shells": r"""
        csh -c 'rm -rf d' // pwsh -Command 'Remove-Item d -Recurse' // pwsh -c 'ri -fo d'
        powershell -NoProfile -EncodedCommand cgBt // pwsh -e cgBt
    """,
    "words of the grammar are no commands": r"""
        ! { rm -rf d; } // ! ! { rm -rf d; } // true && ! { rm -rf d; } // if ! { rm -rf d; }; then :; fi
        ! while rm -rf d; do break; done // ! if rm -rf d; then :; fi // ! function f { rm -rf d; }; f
        time { rm -rf d; } // coproc x { rm -rf d; }
    """,
    "names are found by other means": r"""
        /bin/r? -rf d // /bin/[r]m -rf d // shopt -s expand_aliases; alias x='rm -rf'⏎x d // rm 3>&- -rf d
        awk 'BEGIN { system("rm -rf d") }' // perl -e 'exec "rm -rf d"' // sed -n '1e rm -rf d' f
        sed '1s/.*/rm -rf d/e' f
    """,
}

HARMLESS = [
    *scripts(r"""
        cd src && npm install && npm run build 2>&1 | tail -20
        find . -name x -prune -o -print | xargs -I{} sh -c 'wc -l {}' // find . -type f -exec grep -l rm {} +
        awk -F: '{print $1 | "sort"}' f // python -c 'import subprocess; subprocess.run(["ls", "rm"])'
        sed -i 's/rm -rf/trash/g' f // sed -e 's/a/b/e2' f
        source .venv/bin/activate && pip install -r requirements.txt // bash scripts/setup.sh --force
        eval "$(pyenv init -)"; python --version // "$VIRTUAL_ENV/bin/python" -m x -rf // $SUDO apt-get update
        git commit -m "$(cat <<'EOF'⏎Do not rm -rf anything.⏎EOF⏎)" // git -c user.name=x -c core.pager=cat log
        git submodule foreach 'git status' // git push --follow-tags
        cat > clean.sh <<'EOF'⏎rm -rf build⏎EOF⏎chmod +x clean.sh // echo 'echo hi' > s.sh; bash s.sh
        cat <<EOF | bash⏎echo hello⏎EOF // tmux new-session -d -s x 'npm start'
        mkdir -p src/{a,b,c}/{d,e} && touch file_{1..5000}.txt && mv {old,new}.txt
        run() { echo "+ $*"; "$@"; }; run make test // files=(*.py); wc -l "${files[@]}"
        for i in 1 2 3 4 5 6 7 8; do for j in a b c d e f g; do echo $i $j; done; done
        ls | while read f; do mv "$f" "${f%.txt}.md"; done
        curl -X POST \⏎  -H 'A: b' \⏎  -d '{"a": {"b": [1, {"c": 2}]}}' \⏎  http://localhost
        pwsh -File x.ps1 -Recurse // pwsh -c 'Get-ChildItem -Recurse' // tar --exclude='a b' -czf x.tgz src
        rsync -a --exclude='rm x' a b // GIT_EDITOR='code --wait' git rebase -i main
        ssh -o 'StrictHostKeyChecking=no' host 'ls -la' // grep '[$(]' f; grep 'a[`]' f
        grep -rn 'sudo' docs | sort // alias ll='ls -la' // export PS1='$(pwd) $ ' // echo '# \⏎rm -rf d'
        cat <<'E'⏎`rm -rf d` $(rm -rf d)⏎E // r\\⏎m x
        awk '{print $1}' f; awk {print} f; f() { g; }; { h; }; x=${y:-{}}; echo {} {a} a{b {c
        cat <<'E'⏎{rm,-rf,d}⏎E
    """),
    "cat > Makefile <<EOF\nclean:\n\trm -rf build\nEOF\nmake",
]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        *((script, reason) for reason, table in DESTRUCTIVE.items() for script in scripts(table)),
        ("cat <<-EOF\n\t$(rm -rf d)\n\tEOF", "such a here-document may be indented"),
    ],
)
def test_what_runs_a_destructive_command_asks(script: str, reason: str) -> None:
    assert is_dangerous(["bash", "-lc", script]), reason


@pytest.mark.parametrize("script", HARMLESS)
def test_ordinary_scripts_do_not(script: str) -> None:
    assert not is_dangerous(["bash", "-lc", script])


_SPELLINGS = st.sampled_from(
    [
        lambda word: word,
        lambda word: f"'{word}'",
        lambda word: f'"{word[0]}"{word[1:]}',
        lambda word: "\\" + word,
        lambda word: f"{word[0]}\\\n{word[1:]}",
        lambda word: f'"{word[0]}\\\n{word[1:]}"',
        lambda word: "$'" + "".join(f"\\x{ord(c):02x}" for c in word) + "'",
        lambda word: "$'" + "".join(f"\\{ord(c):03o}" for c in word) + "'",
        lambda word: f"{word[0]}{{{word[1:]},{word[1:]}}}",
        lambda word: f'${{none:-"{word}"}}',
        lambda word: f"$(printf -- {word})",
    ]
)
_AROUND = st.sampled_from(
    [
        "{}",
        "true && {}",
        "! {}",
        "if {}; then :; fi",
        "f() {{ {}; }}; f",
        "x=1 {}",
        "> out {}",
        "eval {}",
        "command {}",
        "( {} ) < /dev/null",
        "case a in a) {};; esac",
    ]
)


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_what_bash_runs_is_found(tmp_path: Path) -> None:
    shims = Shims(tmp_path, ["rm"])

    @given(_SPELLINGS, _SPELLINGS, _AROUND)
    @settings(max_examples=25, deadline=None)
    def differential(name: object, option: object, around: str) -> None:
        assert callable(name)
        assert callable(option)
        script = around.format(f"{name('rm')} {option('-rf')} d")
        ran = {call for call in shims.calls(BASH or "bash", script) if call[:1] == ("rm",)}
        if any(is_dangerous(call) for call in ran):
            assert is_dangerous(["bash", "-c", script]), script

    differential()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a", ["a"]),
        ("{}", ["{}"]),
        ("{a}", ["{a}"]),
        ("{a,b", ["{a,b"]),
        ("x{a,b}y", ["xay", "xby"]),
        ("{a,{b,c}d}", ["a", "bd", "cd"]),
        ("{a,b}{1,2}", ["a1", "a2", "b1", "b2"]),
        ("{c..a}", ["a", "b", "c"]),
        ("{1..900..3}", ["1", "900"]),
        ("{{a,b}", ["{a", "{b"]),
        ("{,a}", ["", "a"]),
    ],
)
def test_braces_are_expanded(text: str, words: list[str]) -> None:
    assert sorted(expand_braces(text)) == words


def test_more_words_than_are_looked_at_are_asked_about() -> None:
    for text in ("{" * (MAX_BRACES + 1), "{a,b}" * 11, "{" + "a," * MAX_WORDS + "}"):
        with pytest.raises(TooManyWords):
            expand_braces(text)
    assert is_dangerous(["bash", "-c", "echo " + "{a,b}" * 11])
    assert is_dangerous(["bash", "-c", "x+=a;" * (MAX_APPENDED + 1)])
    assert not is_dangerous(["bash", "-c", "x+=a;" * MAX_APPENDED])


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("\\x72\\162\\u72\\U00000072\\x{72}", "rrrrr"),
        ("\\n\\t\\\\\\'", "\n\t\\'"),
        ("\\cA\\ca", "\x01\x01"),
        ("\\q\\", "\\q\\"),
        ("\\ud800\\U99999999\\x{fffffffff}", "��\0"),
    ],
)
def test_escapes_are_decoded(text: str, decoded: str) -> None:
    assert decode_escapes(text) == decoded


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["echo", "-ne", "a\\x20b", "c"], "a b c"),
        (["printf", "--", "%s-%5d\\n", "a", "1", "b", "2"], "a-1\nb-2\n"),
        (["printf", "100%%"], "100%"),
        (["printf", "%b", "\\x41"], "A"),
        (["printf"], ""),
        (["cat", "f"], None),
    ],
)
def test_what_printers_print(words: list[str], text: str | None) -> None:
    assert printed(words) == text


def test_names_that_are_known_only_when_they_run() -> None:
    assert all(map(is_open_name, ["$x", "r$x", "${x/y}", "a/$x", "$(a b)", "`a`$x", "$" + "x" * 1_000]))
    assert not any(map(is_open_name, ["rm", "$x/rm", "${x}/rm", "$(a/b)/rm"]))


@given(st.text(alphabet="{},.a1$\"'\\\n`()[]<>=;|& x", max_size=60))
def test_any_script_gets_an_answer(script: str) -> None:
    for found in commands_of(["bash", "-c", script]):
        assert found is None or all(isinstance(word, str) for word in found.words)
