"""The parent's side of the processes: the zygote's handle and one row's child."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from metrics.errors import InfrastructureError

from .protocol import (
    CONTROL,
    EXTRA_CPU_SECONDS,
    FLAG_OK,
    FLAG_RETIRE,
    ID_BYTES,
    KILL,
    MAX_TEXT_CHARS,
    NO_ID,
    REPLY_HEAD,
    REQUEST_LENGTH,
    SPAWN,
)

logger = logging.getLogger(__name__)

_START_SECONDS = 60.0  # the zygote imports numpy and sympy, perhaps from a cold disk
_ROW_START_SECONDS = 30.0
_RECEIPT_SECONDS = 1.0  # for an idle child to take a call, on a machine that may be busy
_THIRD_PARTY = ("numpy", "sympy", "mpmath", "babel", "dateutil", "pytz", "dicttoxml", "holidays", "roman", "six")
# The child imports this folder as a package of its own: the project itself never enters the sandbox.
_BOOT = """
import importlib.util, json, sys
folder, control, paths = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
spec = importlib.util.spec_from_file_location("sandbox", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules["sandbox"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from sandbox.zygote import main
main(control, paths)
"""


class NotReady(Exception):
    """A child that was idle did not take the call."""


class ToolEnded(Exception):
    """The child ended without an answer."""


class ToolTimeout(Exception):
    """The child did not answer in time."""


class ChannelViolation(Exception):
    """Bytes came that are not the answer to the call."""


class Zygote:
    """A running zygote. Thread-safe; raises InfrastructureError(kind="sandbox") when it cannot be started."""

    def __init__(self) -> None:
        if not hasattr(os, "fork"):
            raise InfrastructureError("the sandbox needs a system with fork (Linux, macOS, WSL)", "sandbox")
        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._serials = itertools.count(1)
        try:
            with theirs:
                self._process = _start(theirs)
            self.report = self._read_report()
        except (OSError, ValueError) as error:
            self._socket.close()
            raise InfrastructureError(f"the sandbox did not start: {error}", "sandbox") from error

    def _read_report(self) -> dict[str, Any]:
        """The walls, as the zygote found them; OSError when it ends, fails or takes too long."""
        deadline = time.monotonic() + _START_SECONDS
        try:
            length = int.from_bytes(_receive(self._socket, 4, deadline), "little")
            report = json.loads(_receive(self._socket, length, deadline))
            if "error" in report:
                raise OSError(report["error"])
        except (OSError, ValueError, ToolEnded, ToolTimeout) as error:
            self._process.kill()
            output = self._process.communicate()[1].decode("utf-8", "replace").strip()
            if output:
                logger.error("sandbox start: %s", output[-2000:])
            late = f"nothing heard for {_START_SECONDS:g} s" if isinstance(error, ToolTimeout) else ""
            reason = str(error) or late or output.rpartition("\n")[2] or f"exit status {self._process.returncode}"
            raise OSError(reason) from None
        if self._process.stderr:
            self._process.stderr.close()
        self._socket.settimeout(_START_SECONDS)
        return report

    @property
    def alive(self) -> bool:
        """Whether it still serves. A dead zygote's end of the channel is closed before its children are killed."""
        if self._process.poll() is not None:
            return False
        watch = select.poll()
        try:
            watch.register(self._socket, select.POLLIN)
            return not watch.poll(0)  # after the report it never says a word
        except (OSError, ValueError):
            return False

    def spawn(self, cpu_seconds: int) -> tuple[int, socket.socket]:
        """A new child's serial number and our end of its channel. OSError when the zygote is gone."""
        ours, theirs = socket.socketpair()
        serial = next(self._serials)
        try:
            with self._lock:
                socket.send_fds(self._socket, [CONTROL.pack(SPAWN, serial, cpu_seconds, 0)], [theirs.fileno()])
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        return serial, ours

    def kill(self, serial: int) -> None:
        """Kill and reap a child; without effect when it has ended."""
        try:
            with self._lock:
                self._socket.sendall(CONTROL.pack(KILL, serial, 0, 0))
        except OSError:
            pass  # the zygote is gone, and its children with it

    def close(self) -> None:
        """End the zygote, which kills its children first."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._socket.close()


def _start(control: socket.socket) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise OSError("this Python does not know its own program file")
    folder = os.path.dirname(os.path.abspath(__file__))
    # A fixed hash seed gives sets one order; the linker's path is what some installations need to start at all.
    environment = {"PYTHONHASHSEED": "0"}
    environment |= {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}
    arguments = [folder, str(control.fileno()), json.dumps(_package_paths())]
    return subprocess.Popen(
        [sys.executable, "-s", "-P", "-B", "-c", _BOOT, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
        close_fds=True,
        pass_fds=(control.fileno(),),
        start_new_session=True,  # Ctrl-C is for the evaluation, which closes the sandbox itself
    )


def _package_paths() -> list[str]:
    """Folders in which this process finds the packages that tools may import."""
    folders: list[str] = []
    for name in _THIRD_PARTY:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            continue
        if spec is None or not spec.origin:
            continue
        folder = os.path.dirname(os.path.abspath(spec.origin))
        if spec.submodule_search_locations:
            folder = os.path.dirname(folder)
        if folder not in folders:
            folders.append(folder)
    return folders


def _receive(channel: socket.socket, size: int, deadline: float | None = None) -> bytes:
    """Exactly `size` bytes. ToolEnded at the end of the stream, ToolTimeout at the deadline."""
    parts: list[bytes] = []
    while size:
        try:
            if deadline is not None:
                channel.settimeout(max(deadline - time.monotonic(), 0.0001))
            part = channel.recv(min(size, 1 << 20))
        except TimeoutError:
            raise ToolTimeout from None
        except OSError:
            raise ToolEnded from None
        if not part:
            raise ToolEnded
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class RowProcess:
    """One child, for one row. Used by one thread at a time."""

    def __init__(self, zygote: Zygote, timeout: float) -> None:
        """Have it forked, for calls of at most `timeout` seconds; does not wait. OSError when the zygote is gone."""
        self.zygote = zygote
        self.timeout = timeout
        self.usable = True
        self._called = False
        self._cpu_limit = int(timeout) + EXTRA_CPU_SECONDS
        self._serial, self._channel = zygote.spawn(self._cpu_limit)

    def adopt(self, row_key: str, sources: tuple[str, ...]) -> None:
        """Hand it the row. InfrastructureError when its walls did not go up, OSError: no zygote."""
        try:
            self._send(NO_ID, json.dumps({"row": row_key, "sources": list(sources)}).encode(), _ROW_START_SECONDS)
            deadline = time.monotonic() + _ROW_START_SECONDS
            _receive(self._channel, ID_BYTES, deadline)
            _, flags, _, _, size = REPLY_HEAD.unpack(_receive(self._channel, REPLY_HEAD.size, deadline))
            if not flags & FLAG_OK:
                raise ToolEnded(_receive(self._channel, size, deadline).decode("utf-8", "replace"))
        except (ToolEnded, ToolTimeout) as error:
            self.kill()
            if not self.zygote.alive:
                raise OSError("the zygote ended") from error
            reason = str(error) or type(error).__name__
            raise InfrastructureError(f"the sandbox could not start a row: {reason}", "sandbox") from error
        except BaseException:
            self.kill()
            raise

    def _send(self, call_id: bytes, request: bytes, timeout: float) -> None:
        try:
            self._channel.settimeout(timeout)
            self._channel.sendall(REQUEST_LENGTH.pack(ID_BYTES + len(request)) + call_id + request)
        except TimeoutError:
            raise ToolTimeout from None
        except OSError:
            raise ToolEnded from None

    def ask(self, request: bytes, timeout: float) -> tuple[bool, str, int]:
        """One call, one answer: (returned a value, text, full length). The clock starts with the child's receipt.

        NotReady when a child that has served before does not take the call: what an earlier call left behind there
        (a loop that goes on behind a reply of its own making, bytes in the channel) must not cost this one.
        """
        call_id = os.urandom(ID_BYTES)
        used, self._called, self.usable = self._called, True, False  # usable again when the answer has come whole
        try:
            self._send(call_id, request, _RECEIPT_SECONDS if used else _ROW_START_SECONDS)
            wait = _RECEIPT_SECONDS if used else _ROW_START_SECONDS
            if _receive(self._channel, ID_BYTES, time.monotonic() + wait) != call_id:
                raise ChannelViolation
        except (ToolEnded, ToolTimeout, ChannelViolation):
            if used:
                raise NotReady from None
            raise
        deadline = time.monotonic() + timeout
        echoed, flags, cpu, length, size = REPLY_HEAD.unpack(_receive(self._channel, REPLY_HEAD.size, deadline))
        if echoed != call_id or size > 4 * MAX_TEXT_CHARS:
            raise ChannelViolation
        text = _receive(self._channel, size, deadline).decode("utf-8", "replace") if size else ""
        fresh = cpu < self._cpu_limit - self.timeout - EXTRA_CPU_SECONDS / 2
        self.usable = fresh and not flags & FLAG_RETIRE and self.is_quiet()
        return bool(flags & FLAG_OK), text, max(length, len(text))

    def is_quiet(self) -> bool:
        """Whether the channel is open and holds nothing that nobody asked for."""
        try:
            self._channel.setblocking(False)
            self._channel.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def kill(self, wait: bool = True) -> None:
        """End the child and, if told so, wait (briefly) until no process is left."""
        self.usable = False
        self.zygote.kill(self._serial)
        if wait:
            with contextlib.suppress(ToolEnded, ToolTimeout):
                deadline = time.monotonic() + 1.0
                while True:
                    _receive(self._channel, 1 << 16, deadline)
        self._channel.close()
