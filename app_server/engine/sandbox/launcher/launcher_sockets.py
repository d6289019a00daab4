"""The calls that the socket broker performs for a confined command: it creates and connects unix sockets. Linux.

The kernel finds a unix socket by its path, in any network namespace, and neither mounts nor the Landlock rights of this
kernel prevent that. So commands do not connect by themselves. The broker resolves the path as the command would and
keeps the file open. It connects the command's own socket to the file under three conditions: the command may write
there, a confined command of the same network namespace listens, and no process outside does. Sockets of other families
are connected without a check.

The broker finds listening processes by sock_diag(7). A socket file belongs to the one socket that made it, and never to
another one. So a process that holds the file and finds it in the list of a network namespace knows the destination of a
connection.
"""

from __future__ import annotations

import _thread
import errno
import fcntl
import os
import stat
import struct
import time

from app_server.engine.sandbox.launcher import seccomp
from app_server.engine.sandbox.launcher.stdlib_min import closing, socket, suppress
from app_server.engine.sandbox.launcher.syscalls import MACHINE, X86_64, call
from app_server.engine.support.light_dataclasses import dataclass, field

RECEIVE, SEND, IS_VALID, ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
"""SECCOMP_IOCTL_NOTIF_*"""

CALL = struct.Struct("=QIIiIQ6Q")
"""struct seccomp_notif: id, pid, flags, then seccomp_data: number, arch, instruction pointer, six arguments"""
RESPONSE = struct.Struct("=QqiI")
DESCRIPTOR = struct.Struct("=QIIII")
AND_RESPOND = 2
"""SECCOMP_ADDFD_FLAG_SEND"""
RESOLVE_IN_ROOT = 0x10
ATTEMPTS = 3
"""Maximum number of attempts. openat2(2) with RESOLVE_IN_ROOT fails with EAGAIN after a concurrent rename; it is
repeated then.
"""


@dataclass(frozen=True, slots=True)
class Call:
    id: int
    thread: int
    number: int
    arguments: tuple[int, ...]


def receive_call(listener: int) -> Call:
    """Return the next call. Raises OSError if its process has ended."""
    buffer = bytearray(CALL.size)
    fcntl.ioctl(listener, RECEIVE, buffer, True)
    id, thread, _, number, _, _, *arguments = CALL.unpack(buffer)
    return Call(id, thread, number, tuple(arguments))


def is_waiting(listener: int, notified: Call) -> bool:
    """Return whether the thread still waits. Callers check it after opening the caller: it proves that the pid was not
    reused.
    """
    try:
        fcntl.ioctl(listener, IS_VALID, notified.id.to_bytes(8, "little"))
    except OSError:
        return False
    return True


def respond(listener: int, notified: Call, *, errno: int = 0) -> None:
    """End the call with 0, or with an error number."""
    fcntl.ioctl(listener, SEND, RESPONSE.pack(notified.id, 0, -errno, 0))


def respond_with_descriptor(listener: int, notified: Call, descriptor: int, *, close_on_exec: bool) -> None:
    """End the call with a new descriptor in the process, a duplicate of this one. One ioctl does both, so that the
    process never has a descriptor that it did not get as a result.
    """
    flags = os.O_CLOEXEC if close_on_exec else 0
    fcntl.ioctl(listener, ADD_DESCRIPTOR, DESCRIPTOR.pack(notified.id, AND_RESPOND, descriptor, 0, flags))


@dataclass(slots=True)
class WaitingProcess:
    """The process that waits for the call. A context manager; it raises OSError if the process has ended or cannot be
    inspected.
    """

    thread: int
    folder: int = field(init=False, default=-1)
    """Descriptor of /proc/THREAD. It refers to the same process even if the pid is reused."""

    def __enter__(self) -> WaitingProcess:
        self.folder = os.open(f"/proc/{self.thread}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self.folder)

    def read(self, address: int, size: int) -> bytes:
        """Read the memory of the process."""
        memory = os.open("mem", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder)
        try:
            return os.pread(memory, size, address)
        finally:
            os.close(memory)

    def descriptor(self, number: int) -> int:
        """Return a duplicate of one of the process's descriptors."""
        process = os.pidfd_open(self._process())
        try:
            return call("pidfd_getfd", process, number, 0)
        finally:
            os.close(process)

    def find(self, path: bytes) -> int:
        """Resolve `path` in the caller's root and working directory, following links. Return an O_PATH descriptor."""
        if not path.startswith(b"/"):
            path = os.path.join(os.readlink(b"cwd", dir_fd=self.folder), path)
        root = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.folder)
        how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_IN_ROOT)
        try:
            for _ in range(ATTEMPTS - 1):
                try:
                    return call("openat2", root, path, how, len(how))
                except BlockingIOError:
                    pass
            return call("openat2", root, path, how, len(how))
        finally:
            os.close(root)

    def filesystem_of(self, descriptor: int) -> int | None:
        """Return the device number of the mount that the descriptor is on, from the caller's mount table. None if the
        table does not have the mount.

        fstat(2) does not give it on all file systems: on btrfs and overlayfs st_dev differs from the mount's device.
        """
        with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:
            fields = dict(line.split(b":", 1) for line in file if b":" in line)
        wanted = fields[b"mnt_id"].strip()
        mounts = os.open("mountinfo", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder)
        with open(mounts, "rb") as file:
            for line in file:
                mount, _, device, _ = line.split(b" ", 3)
                if mount == wanted:
                    major, minor = device.split(b":")
                    return int(major) << 20 | int(minor)
        return None

    def _process(self) -> int:
        status = os.open("status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder)
        with open(status, "rb") as file:
            for line in file:
                if line.startswith(b"Tgid:"):
                    return int(line.split()[1])
        raise ProcessLookupError(3, os.strerror(3))


AF_NETLINK, NETLINK_SOCK_DIAG = 16, 4
SOCK_DIAG_BY_FAMILY, DONE, ERROR = 20, 3, 2
REQUEST_ALL = 0x301
LISTENING = 1 << 10
SHOW_FILE = 2
FILE_ATTRIBUTE = 1

HEADER = struct.Struct("=IHHII")
WANTED = struct.Struct("=BBHIIIII")
SOCKET_SIZE = 16
PAIR = struct.Struct("=II")
SHORT = struct.Struct("=HH")
READ_SIZE = 1 << 16
INODE_BITS = 0xFFFFFFFF
"""Mask of the bits of an inode number that the kernel reports."""

File = tuple[int, int]
"""Identity of a file: the reported bits of its inode number, and its file system's number as the kernel writes it."""


def open_list() -> socket.socket:
    """Return a socket that can query, from now on, the network namespace that this process is in now. Raises OSError if
    the kernel does not report sockets.
    """
    return socket.socket(AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG)


def listening(asked: socket.socket) -> set[File]:
    """Return the files of all listening sockets. Raises OSError if the kernel does not report them."""
    wanted = WANTED.pack(socket.AF_UNIX, 0, 0, LISTENING, 0, SHOW_FILE, INODE_BITS, INODE_BITS)
    asked.send(HEADER.pack(HEADER.size + len(wanted), SOCK_DIAG_BY_FAMILY, REQUEST_ALL, 0, 0) + wanted)
    found: set[File] = set()
    while _take_in(asked.recv(READ_SIZE), found):
        pass
    return found


def _take_in(data: bytes, found: set[File]) -> bool:
    """Add the files that one datagram reports. Return False if it was the last datagram."""
    at = 0
    while at < len(data):
        size, kind, _, _, _ = HEADER.unpack_from(data, at)
        if kind == DONE:
            return False
        if kind == ERROR:
            (code,) = struct.unpack_from("=i", data, at + HEADER.size)
            raise OSError(-code, os.strerror(-code))
        attribute, end = at + HEADER.size + SOCKET_SIZE, at + size
        while attribute + SHORT.size <= end:
            length, name = SHORT.unpack_from(data, attribute)
            if name == FILE_ATTRIBUTE:
                found.add(PAIR.unpack_from(data, attribute + SHORT.size))
            attribute += _aligned(max(length, SHORT.size))
        at += _aligned(size)
    return True


def file_of(status: os.stat_result) -> File:
    device = os.major(status.st_dev) << 20 | os.minor(status.st_dev)
    return status.st_ino & INODE_BITS, device


def _aligned(size: int) -> int:
    return (size + 3) & ~3


SO_DOMAIN, SO_COOKIE = 39, 57
MAX_CONNECTING = 1000
REPEATED_WITHIN = 5.0
"""Time within which the kernel repeats a call that a signal interrupted, in seconds, even on a busy machine."""
FAMILY = struct.Struct("=H")
ADDRESS_LIMIT, UNIX_ADDRESS_LIMIT = 128, 110

COLUMN = 0 if MACHINE == X86_64 else 1
CONNECT, SOCKET = seccomp.CONNECT[COLUMN], seccomp.SOCKET[COLUMN]


@dataclass(slots=True)
class NetworkNamespaces:
    """The socket lists of two network namespaces: `inside` is that of commands' sockets, `outside` that of the
    server.
    """

    inside: socket.socket | None
    outside: socket.socket | None
    """Socket list of the server's namespace. None if the kernel does not list listening sockets; then nothing can be
    connected.
    """
    connecting: dict[bytes, tuple[int, float]] = field(default_factory=dict)
    """Last call and its time, by the cookie of each socket that is or was just being connected: the kernel repeats a
    call that a signal interrupted before its response arrived.
    """
    _noting: _thread.LockType = field(default_factory=_thread.allocate_lock)
    _listing: _thread.LockType = field(default_factory=_thread.allocate_lock)

    def note(self, cookie: bytes, call_id: int) -> bool:
        """Record that this call connects the socket. Return whether another call did so just before."""
        now = time.monotonic()
        with self._noting:
            _, before = self.connecting.pop(cookie, (0, -REPEATED_WITHIN))
            self.connecting[cookie] = call_id, now
            if len(self.connecting) > MAX_CONNECTING:
                del self.connecting[next(iter(self.connecting))]
        return before + REPEATED_WITHIN > now

    def forget(self, cookie: bytes, call_id: int) -> bool:
        """Remove the record of this call. Return whether it was the last call."""
        with self._noting:
            if self.connecting.get(cookie, (call_id,))[0] != call_id:
                return False
            self.connecting.pop(cookie, None)
            return True

    def leads_inside(self, caller: WaitingProcess, found: int) -> bool:
        """Return whether a command listens at this file. Raises PermissionError if a process outside does."""
        if self.inside is None or self.outside is None:
            raise PermissionError(errno.EACCES, "the kernel does not say where the socket leads")
        with self._listing:
            inside, outside = listening(self.inside), listening(self.outside)
        file = file_of(os.fstat(found))
        names = {file}
        if file not in inside | outside:  # some file systems report another device number in fstat
            device = caller.filesystem_of(found)
            names |= {(file[0], device)} if device is not None else set()
        if names & outside:
            raise PermissionError(errno.EACCES, "the socket belongs to a process outside of the sandbox")
        return bool(names & inside)


def serve(listener: int, notified: Call, networks: NetworkNamespaces) -> None:
    """Perform the call and respond."""
    with suppress(OSError):  # the calling process has ended
        try:
            if notified.number == SOCKET:
                _make(listener, notified, networks)
            else:
                _connect(listener, notified, networks)
        except OSError as error:
            respond(listener, notified, errno=error.errno or errno.EACCES)


def _make(listener: int, notified: Call, networks: NetworkNamespaces) -> None:
    """Create a socket in the broker's network namespace, if it has its own."""
    if networks.inside is None:
        raise PermissionError(errno.EACCES, "unix sockets cannot be kept apart from those outside")
    kind, protocol = (value & 0xFFFFFFFF for value in notified.arguments[1:3])
    with closing(socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC, protocol)) as made:
        close_on_exec = bool(kind & socket.SOCK_CLOEXEC)
        respond_with_descriptor(listener, notified, made.fileno(), close_on_exec=close_on_exec)


def _connect(listener: int, notified: Call, networks: NetworkNamespaces) -> None:
    number, address, length = notified.arguments[:3]
    length &= 0xFFFFFFFF
    if length > ADDRESS_LIMIT:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    with WaitingProcess(notified.thread) as caller:
        if not is_waiting(listener, notified):
            return
        with closing(socket.socket(fileno=caller.descriptor(number & 0xFFFFFFFF))) as sock:
            name = caller.read(address, length) if length else b""
            if len(name) < length:
                raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
            cookie = sock.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8)
            # The call is recorded before the socket is connected: the repeated call may arrive while this one is being
            # answered.
            repeated = networks.note(cookie, notified.id)
            try:
                _connect_to(sock, name, caller, networks)
            except OSError as error:
                if not is_waiting(listener, notified):
                    return  # a signal interrupted the call: the repeated call may need the record
                if error.errno != errno.EISCONN or not repeated:
                    alone = networks.forget(cookie, notified.id)
                    if alone or error.errno != errno.EISCONN:
                        raise
                    # A signal interrupted an earlier call, which this call repeats. The earlier one has overtaken it.
            with suppress(OSError):
                respond(listener, notified)


def _connect_to(
    sock: socket.socket, name: bytes, caller: WaitingProcess, networks: NetworkNamespaces
) -> None:
    if sock.getsockopt(socket.SOL_SOCKET, SO_DOMAIN) != socket.AF_UNIX:
        call("connect", sock.fileno(), name, len(name))
        return
    found = caller.find(_path(name))
    try:
        _connect_inside(sock, caller, found, networks)
    finally:
        os.close(found)


def _path(name: bytes) -> bytes:
    """Return the path of an address. Raises OSError for an abstract name, which could belong to another command."""
    if not FAMILY.size < len(name) <= UNIX_ADDRESS_LIMIT or FAMILY.unpack_from(name)[0] != socket.AF_UNIX:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    path = name[FAMILY.size :].partition(b"\0")[0]
    if not path:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    return path


def _connect_inside(
    sock: socket.socket, caller: WaitingProcess, found: int, networks: NetworkNamespaces
) -> None:
    if not stat.S_ISSOCK(os.fstat(found).st_mode):
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    if (
        os.fstatvfs(found).f_flag & os.ST_RDONLY
    ):  # it is read-only for this command; another one, with other roots, may listen there
        raise PermissionError(errno.EACCES, "the socket lies outside of the writable roots")
    if not networks.leads_inside(caller, found):
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    held = FAMILY.pack(socket.AF_UNIX) + b"/proc/self/fd/%d\0" % found
    call("connect", sock.fileno(), held, len(held))
