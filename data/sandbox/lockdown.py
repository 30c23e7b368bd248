"""The operating system's wall: limits, Landlock and seccomp through ctypes, and a check that they hold.

`prepare_zygote` is called once, after everything is loaded: it takes the privileges away and closes the file
system except for reading what Python and the listed packages need; children inherit that. `lock_child` adds what
differs per child. Landlock: Linux 5.13 and later (docs.kernel.org/userspace-api/landlock.html); seccomp: the
architectures of seccomp.py. What a system lacks is left out and reported, never assumed.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import signal
import struct
import sys
from dataclasses import dataclass, field
from typing import Any

from .protocol import TOOL_MEMORY
from .seccomp import Filter, supported_machine

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446  # the same on every architecture
READ_FILE, READ_DIR, _MAKE_BLOCK = 1 << 2, 1 << 3, 1 << 11
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_CHILD_FILES = 64
ZYGOTE_FILES = 1024  # a descriptor per child and a few


class _Ruleset(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


@dataclass
class Walls:
    """What is in force in this zygote. `strong`: everything that the supported wall consists of, checked in a child."""

    landlock: int = 0  # the kernel's Landlock ABI, 0 when it is absent
    seccomp: bool = False
    rlimits: bool = False
    address_space: int = 0  # bytes, of a child; 0: not limited
    missing: list[str] = field(default_factory=list)
    filter: Filter | None = None

    def report(self) -> dict[str, Any]:
        """The JSON form that `data.sandbox.walls()` returns."""
        return {
            "policy": True,
            "landlock": self.landlock,
            "seccomp": self.seccomp,
            "rlimits": self.rlimits,
            "strong": not self.missing,
            "missing": list(self.missing),
        }


@functools.cache  # opened in the zygote, for all its children
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _syscall(number: int, *arguments: Any) -> int:
    result = _libc().syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def landlock_abi() -> int:
    """The kernel's Landlock version, 0 where there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return _syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    except (OSError, AttributeError):
        return 0


def _restrict(abi: int, handled: int, readable: dict[str, int]) -> None:
    """One Landlock layer: deny `handled` and, where the kernel can, TCP, abstract sockets and signals outside.

    `readable`: what stays allowed below which path (READ_FILE, READ_DIR).
    """
    rules = _Ruleset(handled, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _syscall(_LANDLOCK_CREATE, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for path, allowed in readable.items():
            try:
                parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                beneath = _PathBeneath(allowed if os.path.isdir(path) else allowed & READ_FILE, parent)
                _syscall(_LANDLOCK_ADD, ruleset, ctypes.c_int(1), ctypes.byref(beneath), ctypes.c_uint32(0))
            finally:
                os.close(parent)
        _syscall(_LANDLOCK_RESTRICT, ruleset, ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def prepare_zygote(readable: dict[str, int]) -> Walls:
    """Close what the zygote and all its children never need. Call it when everything is loaded.

    `readable`: path -> READ_FILE, READ_DIR or both, for all that lies below it.
    """
    walls = Walls()
    _set_limits(walls)
    if not sys.platform.startswith("linux"):
        walls.missing += ["landlock (Linux only)", "seccomp (Linux only)"]
        return walls
    libc = _libc()
    try:  # when memory runs out, the kernel should take a tool and not the evaluation
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("900")
    except OSError:
        pass
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    abi = landlock_abi()
    if abi:
        handled = (1 << 13) - 1
        for since, bit in ((2, 13), (3, 14), (5, 15)):
            handled |= (1 << bit) if abi >= since else 0
        try:
            _restrict(abi, handled, readable)
            walls.landlock = abi
        except OSError as error:
            walls.missing.append(f"landlock ({error.strerror})")
    else:
        walls.missing.append("landlock (needs Linux 5.13 with Landlock enabled)")
    _drop_capabilities(libc)
    machine = supported_machine(platform.machine())
    if machine and struct.calcsize("P") == 8 and sys.byteorder == "little":
        walls.filter = Filter(machine)
    else:
        walls.missing.append(f"seccomp (no table for {platform.machine() or 'this machine'})")
    return walls


def _set_limits(walls: Walls) -> None:
    """The limits that are equal for the zygote and its children; the rest follows in each child."""
    import resource

    try:
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
        walls.address_space = mapped + TOOL_MEMORY
    except (OSError, ValueError):
        walls.missing.append("memory limit (no /proc/self/statm)")
    for name in ("CORE", "MEMLOCK", "MSGQUEUE", "NICE", "RTPRIO"):
        _limit(resource, name, 0)
    _limit(resource, "NOFILE", ZYGOTE_FILES)
    walls.rlimits = True


def _limit(resource: Any, name: str, value: int) -> bool:
    kind = getattr(resource, f"RLIMIT_{name}", None)
    if kind is None:
        return False
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    try:
        resource.setrlimit(kind, (value, value))
    except (OSError, ValueError):
        return False
    return True


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Root without capabilities is an ordinary owner of root's files; for others this changes nothing."""
    for capability in range(64):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) and ctypes.get_errno() == errno.EINVAL:
            break
    header = struct.pack("<Ii", 0x20080522, 0)
    if hasattr(libc, "capset"):
        libc.capset(header, bytes(24))


def lock_child(walls: Walls, zygote: int, cpu_seconds: int) -> None:
    """Everything that is switched on in a row's child, before it sees a line of the row. Raises OSError.

    Only layers that the zygote announced: a child that cannot put up one of them must not run.
    """
    import resource

    os.setsid()
    linux = sys.platform.startswith("linux")
    if linux:
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != zygote:
            raise OSError(errno.ESRCH, "the zygote is gone")
    limits = [("CPU", cpu_seconds), ("FSIZE", 0), ("NPROC", 0), ("NOFILE", _CHILD_FILES)]
    if walls.address_space:
        limits.append(("AS", walls.address_space))
    for name, value in limits:
        if not _limit(resource, name, value) and linux:
            raise OSError(errno.EPERM, f"limit {name} could not be set")
    if not linux:
        return
    if walls.landlock:  # a domain of its own: neither the zygote nor a sibling can be traced or signalled
        _restrict(walls.landlock, _MAKE_BLOCK, {})
    if walls.filter is not None:
        failed = walls.filter.install(_libc().prctl)
        if failed:
            raise OSError(failed, f"no seccomp filter: {os.strerror(failed)}")


def self_test() -> dict[str, bool]:
    """Try, in a locked child, what each wall must refuse: {wall: held}."""
    import socket

    def refused(action: Any, *arguments: Any) -> bool:
        try:
            action(*arguments)
        except OSError as error:
            return error.errno in (errno.EPERM, errno.EACCES)
        return False

    seccomp = refused(socket.socket) and refused(os.kill, os.getpid(), 0) and refused(os.fork)
    return {"landlock": refused(os.listdir, "/"), "seccomp": seccomp}
