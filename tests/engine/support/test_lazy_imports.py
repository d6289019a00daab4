"""Lazy imports, each in a process of its own: when a module runs, and from which file."""

import subprocess
import sys
from pathlib import Path

import pytest

from app_server.engine.support import lazy_imports

BEGINS = """
import sys
sys.path.insert(0, sys.argv[1])
from app_server.engine.support import lazy_imports
lazy_imports.PACKAGES = ("example.",)
lazy_imports.install()
"""

SAYS = "print('runs', __name__)\ndef answer(): return {}\n"


def run(folder: Path, code: str, *options: str) -> str:
    command = (sys.executable, *options, "-c", BEGINS + code, str(folder))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def package(folder: Path, **modules: str) -> Path:
    """Write a package `example` with these modules, by their names."""
    (folder / "example" / "inner").mkdir(parents=True)
    for name in ("example", "example/inner"):
        (folder / name / "__init__.py").write_text("")
    for name, text in modules.items():
        (folder / "example" / "inner" / f"{name}.py").write_text(text)
    return folder / "example" / "inner"


def test_a_module_runs_when_an_attribute_is_read_and_at_once_if_a_name_is_imported(tmp_path: Path) -> None:
    package(tmp_path, one=SAYS.format(1), two=SAYS.format(2))
    code = """
from example.inner import one
print(type(one).__name__)
from example.inner.two import answer
print("later", one.answer(), answer(), type(one).__name__, one.__spec__.loader is one.__loader__)
"""
    said = "LazyModule\nruns example.inner.two\nruns example.inner.one\nlater 1 2 module True\n"
    assert run(tmp_path, code) == said
    assert run(tmp_path, code) == said  # from the compiled files that the first process has written
    assert run(tmp_path, code, "-O") == said  # which have other names without assertions


def test_who_looks_for_the_files_of_all_modules_loads_none(tmp_path: Path) -> None:
    folder = package(tmp_path, one="raise ImportError('an extra is missing')")
    code = """
import inspect
from example.inner import one
inspect.getmodule(inspect.currentframe())  # looks at all modules
print(type(one).__name__, one.__file__, inspect.getsourcefile(one), len(one.__cached__) > 0)
"""
    assert run(tmp_path, code) == f"LazyModule {folder}/one.py {folder}/one.py True\n"


def test_a_changed_source_is_compiled_anew(tmp_path: Path) -> None:
    place = package(tmp_path, one="def answer(): return 1\n")
    code = "from example.inner import one; print(one.answer(), len(one.__cached__) > 0)"
    assert run(tmp_path, code) == "1 True\n"
    (place / "one.py").write_text("def answer(): return 1234\n")
    assert run(tmp_path, code) == "1234 True\n"


def test_a_compiled_file_that_is_cut_or_garbage_is_left_to_the_standard_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    place = package(tmp_path, one="def answer(): return 1\n")
    code = "from example.inner import one; print(one.answer())"
    run(tmp_path, code)
    (compiled,) = (place / "__pycache__").glob("one.*.pyc")
    whole = compiled.read_bytes()
    for content in (
        b"",
        whole[:7],
        whole[:16],
        whole[:-9],
        whole[:16] + b"i\x01\0\0\0",
        whole[:16] + b"\xff",
    ):
        ends = []
        for begin in (BEGINS, "import sys\nsys.path.insert(0, sys.argv[1])\n"):
            compiled.write_bytes(content)
            command = (sys.executable, "-c", begin + code, str(tmp_path))
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            ends.append((done.returncode, done.stdout))
        assert ends[0] == ends[1], content


def test_an_installation_that_was_moved_names_its_files_where_they_are(tmp_path: Path) -> None:
    package(tmp_path / "before", one="def answer(): return answer.__code__.co_filename\n")
    code = "from example.inner import one; print(one.answer() == one.__file__, one.__file__)"
    run(tmp_path / "before", code)
    (tmp_path / "before").rename(tmp_path / "after")
    assert run(tmp_path / "after", code) == f"True {tmp_path / 'after/example/inner/one.py'}\n"


def test_a_module_that_fails_is_tried_anew(tmp_path: Path) -> None:
    package(
        tmp_path, one="import sys\nif not hasattr(sys, 'ready'): raise RuntimeError('early')\nvalue = 5\n"
    )
    code = """
from example.inner import one
try:
    one.value
except RuntimeError as error:
    print(error)
sys.ready = True
print(one.value)
"""
    assert run(tmp_path, code) == "early\n5\n"


def test_other_threads_wait_until_a_module_is_complete(tmp_path: Path) -> None:
    slow = "import time\nfirst = 1\ntime.sleep(0.05)\nlast = 2\n"
    package(tmp_path, one=slow)
    code = """
import threading
from example.inner import one
seen = []
threads = [threading.Thread(target=lambda: seen.append((one.first, vars(one).get("last")))) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
print(set(seen))
"""
    assert run(tmp_path, code) == "{(1, 2)}\n"


def test_a_module_that_does_not_exist_is_no_module(tmp_path: Path) -> None:
    package(tmp_path)
    code = """
try:
    from example.inner import absent
except ImportError as error:
    print(type(error).__name__)
try:
    import example.inner.absent
except ModuleNotFoundError as error:
    print(error)
"""
    assert run(tmp_path, code) == "ImportError\nNo module named 'example.inner.absent'\n"


def test_modules_of_other_finders_are_lazy_too(tmp_path: Path) -> None:
    package(tmp_path)
    code = """
import importlib.machinery
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "example.inner.made":
            return importlib.machinery.ModuleSpec(name, Finder)
    @staticmethod
    def create_module(spec): return None
    @staticmethod
    def exec_module(module): vars(module)["value"] = 7; print("made")
sys.meta_path.append(Finder)
from example.inner import made
print("imported")
print(made.value)
"""
    assert run(tmp_path, code) == "imported\nmade\n7\n"


def test_a_finder_ahead_of_the_usual_one_is_asked_first(tmp_path: Path) -> None:
    package(tmp_path, one="value = 'of the file'")
    code = """
from importlib.machinery import ModuleSpec
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return ModuleSpec(name, Finder) if name == "example.inner.one" else None
    @staticmethod
    def create_module(spec): return None
    @staticmethod
    def exec_module(module): vars(module)["value"] = "of the finder"
sys.meta_path.insert(1, Finder)
from example.inner import one
print(one.value)
"""
    assert run(tmp_path, code) == "of the finder\n"


def test_the_packages_are_those_of_the_program() -> None:
    assert lazy_imports.PACKAGES == ("app_server.", "app_server_protocol.")
