"""Keeping head and tail; building requests; the launcher's small parts."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from app_server.core.exec import descendants, wire
from app_server.core.exec.output import HeadTail
from app_server.core.exec.reserved import MARK_NS, ReservedNames


@given(st.lists(st.binary(max_size=40)), st.integers(2, 60))
def test_head_and_tail_are_kept(chunks: list[bytes], cap: int) -> None:
    kept = HeadTail(cap)
    for chunk in chunks:
        kept.add(chunk)
    whole, value, half = b"".join(chunks), kept.value(), cap // 2
    if len(whole) <= 2 * half:
        assert value == whole
    else:
        assert value.startswith(whole[:half])
        assert value.endswith(whole[-half:])
        assert b"[... %d bytes omitted ...]" % (len(whole) - 2 * half) in value


@given(st.dictionaries(st.binary(), st.lists(st.integers() | st.binary() | st.none())))
def test_a_message_arrives_as_it_was_sent(value: dict[bytes, list[int | bytes | None]]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(ours, value, [])
        assert wire.receive(theirs) == (value, [])
        ours.close()
        assert wire.receive(theirs) is None


def test_descriptors_travel_and_are_not_inherited() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket() as sent:
        wire.send(ours, "x" * 10, [sent.fileno()])
        message = wire.receive(theirs)
        assert message is not None
        with socket.socket(fileno=message[1][0]) as got:
            assert not got.get_inheritable()


def test_below_finds_every_descendant() -> None:
    assert descendants.below(1, {2: 1, 3: 2, 4: 2, 5: 9, 6: 4, 1: 0}) == [2, 3, 4, 6]


def test_names_are_held_until_nobody_needs_them(tmp_path: Path) -> None:
    name = bytes(tmp_path / ".git")
    reserved = ReservedNames()
    assert reserved.take([name]) == reserved.take([name]) == (name,)
    reserved.give_back([name])
    assert (tmp_path / ".git").is_dir()
    reserved.give_back([name])
    assert not (tmp_path / ".git").exists()


def test_a_name_of_somebody_else_is_fenced_and_never_removed(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    reserved = ReservedNames()
    taken = reserved.take([bytes(tmp_path / ".git"), bytes(tmp_path / "no" / "such")])
    assert taken == (bytes(tmp_path / ".git"),)
    reserved.give_back(taken)
    reserved.give_back_all()
    assert (tmp_path / ".git").is_dir()


def test_two_servers_do_not_take_a_reserved_name_from_one_another(tmp_path: Path) -> None:
    name = bytes(tmp_path / ".codex")
    one, other = ReservedNames(), ReservedNames()
    assert one.take([name]) == other.take([name]) == (name,)
    one.give_back([name])
    assert os.path.isdir(name)
    assert one.take([name]) == (name,)
    other.give_back_all()
    assert os.path.isdir(name)
    one.give_back([name])
    assert not os.path.exists(name)


def test_what_a_killed_launcher_left_is_removed_by_the_next_and_nothing_else(tmp_path: Path) -> None:
    left, theirs = bytes(tmp_path / ".codex"), bytes(tmp_path / ".agents")
    os.mkdir(left)
    os.utime(left, ns=(MARK_NS, MARK_NS))
    os.mkdir(theirs)
    reserved = ReservedNames()
    assert reserved.take([left, theirs]) == (left, theirs)
    reserved.give_back_all()
    assert os.listdir(tmp_path) == [".agents"]


def test_a_name_that_somebody_used_meanwhile_stays(tmp_path: Path) -> None:
    name = tmp_path / ".git"
    reserved = ReservedNames()
    reserved.take([bytes(name)])
    (name / "HEAD").write_text("ref")
    reserved.give_back_all()
    assert (name / "HEAD").exists()
    link = tmp_path / ".agents"
    link.symlink_to(tmp_path / "nowhere")
    assert reserved.take([bytes(link)]) == (bytes(link),)
    reserved.give_back_all()
    assert link.is_symlink()


def test_a_child_that_was_forked_meanwhile_does_not_keep_a_name(tmp_path: Path) -> None:
    name = bytes(tmp_path / ".git")
    one, other = ReservedNames(), ReservedNames()
    one.take([name])
    other.take([name])
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # it has the descriptors, as children of the launcher do
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    one.give_back_all()
    other.give_back_all()
    os.close(writer)
    os.close(reader)
    os.waitpid(child, 0)
    assert not os.path.exists(name)
