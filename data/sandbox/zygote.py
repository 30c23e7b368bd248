"""The clean process that every row's child is forked from.

Started by a fresh exec with a fixed environment and one descriptor, it loads the packages that tools use once, locks
itself, and then only forks and kills. It never sees a row: sources and arguments go straight to the child.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import sysconfig
from typing import Any

from . import lockdown, worker
from .policy import ALLOWED_MODULES
from .protocol import CONTROL, FLAG_OK, KILL, NO_ID, REPLY_HEAD, SPAWN

_CONTROL, _CHANNEL = 3, 3  # the zygote's only descriptor, and a child's
_SUBMODULES = (
    "_strptime babel.dates babel.numbers collections.abc dateutil.easter dateutil.parser dateutil.relativedelta "
    "dateutil.rrule dateutil.tz encodings.idna importlib.metadata numpy.random xml.dom.minidom xml.etree.ElementTree "
    "xml.sax xml.sax.saxutils zoneinfo"
)
# Top-level packages outside the standard library whose files a tool may make Python read later.
_PACKAGES = "babel dateutil dicttoxml holidays mpmath numpy pytz roman six sympy tzdata convertdate hijridate lunardate"
_NOT_STANDARD = ("site-packages", "dist-packages", "test", "idlelib", "turtledemo")
_SYSTEM_DATA = ("/usr/share/zoneinfo", "/etc/localtime", "/usr/lib/locale")


def main(control: int, paths: list[str]) -> None:
    """Run until the control channel is closed. `paths`: where the parent finds the third-party packages."""
    if control != _CONTROL:
        os.dup2(control, _CONTROL)
        os.close(control)
    os.closerange(_CONTROL + 1, 4096)
    channel = socket.socket(fileno=_CONTROL)
    parent = os.getppid()
    try:
        sys.path.extend(path for path in paths if path not in sys.path)
        absent = _preload()
        hide, readable = _paths_to_hide(), _readable()
        _clean()
        state = lockdown.prepare_zygote(readable)
        zygote = Zygote(channel, state, hide, parent)
        report = zygote.verified_report()
        report["absent_packages"] = absent
    except BaseException as error:
        _send_json(channel, {"error": f"{type(error).__name__}: {error}"})
        os._exit(1)
    _send_json(channel, report)
    os.dup2(0, 2)  # the parent listens to our errors only until here
    zygote.loop()


def _send_json(channel: socket.socket, value: dict[str, Any]) -> None:
    data = json.dumps(value).encode()
    channel.sendall(len(data).to_bytes(4, "little") + data)


def _preload() -> list[str]:
    """Import everything on the list, so that a child imports nothing; returns what is not installed."""
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    absent = []
    for name in (*sorted(ALLOWED_MODULES), *_SUBMODULES.split()):
        try:
            importlib.import_module(name)
        except ImportError:
            absent.append(name)
    for name in _PACKAGES.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # One call of its own: what Python sets up on first use, children then need not set up each for themselves.
    warm_up = {"tool": "f", "index": 0, "cap": 99, "arguments": {"x": 1}}
    worker.Row("", ["N = {1: 2}\ndef f(x):\n    return N[x]\n"], ()).run(json.dumps(warm_up).encode())
    return absent


def _readable() -> dict[str, int]:
    """The standard library without the site-packages inside it, the listed packages, zone and locale data."""
    both = lockdown.READ_FILE | lockdown.READ_DIR
    paths = dict.fromkeys(_SYSTEM_DATA, both)
    for folder in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}:
        if folder and os.path.isdir(folder):
            paths[folder] = lockdown.READ_DIR  # for the import system, which lists before it reads
            for entry in os.listdir(folder):
                if entry not in _NOT_STANDARD:
                    paths[os.path.join(folder, entry)] = both
    for name in _PACKAGES.split():
        spec = importlib.util.find_spec(name)
        if spec is not None:
            for path in spec.submodule_search_locations or ([spec.origin] if spec.origin else []):
                paths[path] = both
    return paths


def _paths_to_hide() -> tuple[tuple[str, str], ...]:
    """Directories of this machine that error texts must not show, longest first."""
    folders = {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.dirname(__file__))}
    folders |= {path for path in sys.path if os.path.isabs(path)}
    folders |= {os.path.realpath(path) for path in folders}
    return tuple((path, "<python>") for path in sorted(folders - {"/", "/usr"}, key=len, reverse=True))


def _clean() -> None:
    import time

    os.environ.clear()
    os.environ["TZ"] = "UTC"  # local time must not depend on the machine
    if hasattr(time, "tzset"):
        time.tzset()
    # Other installed packages are out of reach; a library that tries one must find it absent, not unreadable.
    sys.path[:] = [path for path in sys.path if os.path.basename(path) not in ("site-packages", "dist-packages")]
    sys.argv[:] = ["tool"]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = ["tool"]
    os.chdir("/")
    gc.collect()
    gc.freeze()


class Zygote:
    """Forks a child per spawn record, kills by serial number, reaps what ends."""

    def __init__(self, channel: socket.socket, state: lockdown.Walls, hide: Any, parent: int) -> None:
        self._channel = channel
        self._walls = state
        self._hide = hide
        self._parent = parent
        self._pid = os.getpid()
        # serial -> (process id, our copy of its channel). Nothing is reaped behind this table's back, and the copy is
        # closed after the child is reaped: where the parent reads the channel's end, no process is left.
        self._children: dict[int, tuple[int, int]] = {}
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def loop(self) -> None:
        """Serve until the parent is gone: its end closed, or (the end copied into another process) its id changed."""
        poll = select.poll()
        poll.register(_CONTROL, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while os.getppid() == self._parent:
            for descriptor, _ in poll.poll(1000):
                if descriptor == self._wake_read:
                    self._drain()
                elif not self._serve_record():
                    self._end()
        self._end()

    def _drain(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            pass
        for serial, (pid, channel) in list(self._children.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del self._children[serial]
                os.close(channel)

    def _serve_record(self) -> bool:
        record, descriptors = b"", array.array("i")
        while len(record) < CONTROL.size:
            try:
                part, ancillary, _, _ = self._channel.recvmsg(CONTROL.size - len(record), socket.CMSG_SPACE(4))
            except OSError:
                return False
            if not part:
                return False
            record += part
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    descriptors.frombytes(data[: len(data) - len(data) % 4])
        operation, serial, cpu_seconds, _ = CONTROL.unpack(record)
        if operation == SPAWN and descriptors:
            try:
                self._children[serial] = self._fork(descriptors[0], cpu_seconds), descriptors[0]
            except OSError:
                os.close(descriptors[0])  # the parent reads the end of the channel
        elif operation == KILL:
            self._kill(serial)
        return True

    def _fork(self, channel: int, cpu_seconds: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            self._become_child(channel, cpu_seconds)
            worker.serve(_CHANNEL, self._hide)
            status = 0
        except BaseException:
            pass
        finally:
            os._exit(status)

    def _become_child(self, channel: int, cpu_seconds: int) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(channel, _CHANNEL)
        os.closerange(_CHANNEL + 1, lockdown.ZYGOTE_FILES)
        try:
            lockdown.lock_child(self._walls, self._pid, cpu_seconds)
        except BaseException as error:
            text = f"{type(error).__name__}: {error}".encode()
            os.write(_CHANNEL, NO_ID + REPLY_HEAD.pack(NO_ID, 0, 0.0, len(text), len(text)) + text)
            raise

    def _kill(self, serial: int) -> None:
        if serial not in self._children:
            return
        pid, channel = self._children.pop(serial)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(channel)

    def _end(self) -> None:
        for serial in list(self._children):
            try:
                self._kill(serial)
            except OSError:
                continue
        os._exit(0)

    def verified_report(self) -> dict[str, Any]:
        """The walls as a locked child meets them: a layer that does not hold there is reported as missing."""
        read, write = socket.socketpair()
        pid = os.fork()
        if not pid:
            try:
                self._become_child(write.fileno(), 30)
                result = json.dumps(lockdown.self_test()).encode()
                os.write(_CHANNEL, NO_ID + REPLY_HEAD.pack(NO_ID, FLAG_OK, 0.0, 0, len(result)) + result)
            finally:
                os._exit(0)
        write.close()
        data = b""
        while part := read.recv(4096):
            data += part
        read.close()
        os.waitpid(pid, 0)
        data = data[len(NO_ID) :]
        if len(data) < REPLY_HEAD.size:
            raise OSError("a child ended while its walls went up")
        _, flags, _, _, length = REPLY_HEAD.unpack(data[: REPLY_HEAD.size])
        body = data[REPLY_HEAD.size :][:length]
        if not flags & FLAG_OK:
            if self._walls.filter is not None and b"seccomp" in body:
                self._walls.filter = None
                self._walls.missing.append(f"seccomp ({body.decode('utf-8', 'replace')})")
                return self.verified_report()
            raise OSError(body.decode("utf-8", "replace"))
        held = json.loads(body)
        self._walls.seccomp = bool(held["seccomp"])
        for name, announced in (("landlock", self._walls.landlock), ("seccomp", self._walls.filter)):
            if announced and not held[name]:
                self._walls.missing.append(f"{name} (is on, but does not hold)")
        return self._walls.report()
