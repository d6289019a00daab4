"""Search for the descendants of a process. Without /proc, a process finds those that became its own children."""

import os
import subprocess
import sys

import pytest

from app_server.engine.sandbox.launcher import descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="subreapers")

ORPHANS = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from app_server.engine.sandbox.launcher import descendants
from app_server.engine.sandbox.launcher import enforce
enforce.become_reaper()
reader, writer = os.pipe()
if os.fork() == 0:
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            os.write(writer, b'%d ' % os.getpid())
            signal.pause()
    os._exit(0)
os.wait()
told = b''
while told.count(b' ') < 3:
    told += os.read(reader, 100)
expected = sorted(int(word) for word in told.split())
print(descendants.own_children() == expected)
for pid in descendants.own_children():
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
print(descendants.own_children())
"""


def test_orphans_are_found_without_a_table_of_processes() -> None:
    root = descendants.__file__.rsplit(os.sep, 5)[0]
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ORPHANS, root], capture_output=True, check=False
    )
    assert found.stdout == b"True\n[]\n", found.stderr


def test_what_has_ended_is_no_child_that_lives() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child.pid not in descendants.own_children()
    child.wait()


ENDING = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from app_server.engine.sandbox.launcher import descendants, supervisor
from app_server.engine.sandbox.launcher import enforce
enforce.become_reaper()
searches = 0
def counted(find=descendants.listed):
    global searches
    searches += 1
    return find()
descendants.listed = counted
for lasting in (False, True):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if lasting and os.fork() == 0:
            os.setsid()
            os.write(writer, b'.')
            signal.pause()
        os._exit(os.read(reader, 1) != b'.' if lasting else 0)
    os.waitpid(child, 0)
    searches = 0
    supervisor.end_tree(child, False)
    print(searches > 0, descendants.has_children())
"""


def test_the_table_of_processes_is_read_only_where_something_is_left() -> None:
    root = descendants.__file__.rsplit(os.sep, 5)[0]
    found = subprocess.run([sys.executable, "-I", "-S", "-c", ENDING, root], capture_output=True, check=False)
    assert found.stdout == b"False False\nTrue False\n", found.stderr
