"""The system calls that a row's child may make: a list of what is allowed, everything else refused.

An allow-list holds against calls that no list of dangers names (io_uring, pidfd, keyctl, userfaultfd, shared memory,
chmod, utime, extended attributes, and whatever the next kernel brings). Numbers: Linux `asm/unistd_64.h` (x86-64) and
`asm-generic/unistd.h` (aarch64). Refusals are errors, not signals, so that a tool's own handler sees PermissionError.
"""

from __future__ import annotations

import ctypes
import struct

# Most frequent first: the filter is a linear program.
_PLAIN: dict[str, dict[str, int]] = {
    "x86_64": {
        "read": 0, "write": 1, "futex": 202, "mmap": 9, "munmap": 11, "brk": 12, "mprotect": 10, "mremap": 25,
        "madvise": 28, "close": 3, "fstat": 5, "lseek": 8, "newfstatat": 262, "stat": 4, "lstat": 6, "statx": 332,
        "access": 21, "faccessat": 269, "faccessat2": 439, "getdents64": 217, "pread64": 17, "readv": 19,
        "writev": 20, "dup": 32, "getcwd": 79, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15,
        "sigaltstack": 131, "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229,
        "clock_nanosleep": 230, "nanosleep": 35, "gettimeofday": 96, "time": 201, "times": 100, "getrusage": 98,
        "getrlimit": 97, "getrandom": 318, "getpid": 39, "getppid": 110, "gettid": 186, "getuid": 102,
        "geteuid": 107, "getgid": 104, "getegid": 108, "getgroups": 115, "sched_yield": 24,
        "sched_getaffinity": 204, "getcpu": 309, "exit": 60, "exit_group": 231,
    },
    "aarch64": {
        "read": 63, "write": 64, "futex": 98, "mmap": 222, "munmap": 215, "brk": 214, "mprotect": 226, "mremap": 216,
        "madvise": 233, "close": 57, "fstat": 80, "lseek": 62, "newfstatat": 79, "statx": 291, "faccessat": 48,
        "faccessat2": 439, "getdents64": 61, "pread64": 67, "readv": 65, "writev": 66, "dup": 23, "getcwd": 17,
        "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139, "sigaltstack": 132, "restart_syscall": 128,
        "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115, "nanosleep": 101, "gettimeofday": 169,
        "times": 153, "getrusage": 165, "getrlimit": 163, "getrandom": 278, "getpid": 172, "getppid": 173,
        "gettid": 178, "getuid": 174, "geteuid": 175, "getgid": 176, "getegid": 177, "getgroups": 158,
        "sched_yield": 124, "sched_getaffinity": 123, "getcpu": 168, "exit": 93, "exit_group": 94,
    },
}  # fmt: skip
# Allowed for some arguments only, or refused in a way of its own. None: the architecture has no such call.
_SPECIAL: dict[str, dict[str, int | None]] = {
    "x86_64": {"open": 2, "openat": 257, "fcntl": 72, "prlimit64": 302, "ioctl": 16, "clone3": 435},
    "aarch64": {"open": None, "openat": 56, "fcntl": 25, "prlimit64": 261, "ioctl": 29, "clone3": 435},
}
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _EACCES, _ENOTTY, _ENOSYS = 1, 13, 25, 38
_NUMBER, _ARCH = 0, 4
_ANY_WRITE = 0o1 | 0o2 | 0o100 | 0o1000 | 0o20000000  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_TMPFILE
# Nothing that sets an owner: F_SETOWN with F_SETSIG is a kill in disguise.
_FCNTL_COMMANDS = (0, 1, 2, 3, 1030)  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC


def supported_machine(machine: str) -> str | None:
    """The table's name for `platform.machine()`, or None."""
    return {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}.get(machine.lower())


def build_filter(machine: str) -> bytes:
    """The classic-BPF program (8 bytes an instruction) for one of the two architectures."""
    plain, special = _PLAIN[machine], _SPECIAL[machine]
    out: list[bytes] = []

    def put(code: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        out.append(struct.pack("<HBBI", code, if_true, if_false, value))

    def argument(index: int, high: bool = False) -> int:
        return 16 + 8 * index + (4 if high else 0)

    put(_LOAD, _ARCH)
    put(_JEQ, _AUDIT_ARCH[machine], 1, 0)
    put(_RETURN, _KILL)
    put(_LOAD, _NUMBER)
    if machine == "x86_64":
        put(_JGE, _X32_BIT, 0, 1)
        put(_RETURN, _KILL)
    for number in plain.values():
        put(_JEQ, number, 0, 1)
        put(_RETURN, _ALLOW)
    for name, flags_index in (("open", 1), ("openat", 2)):
        number_or_none = special[name]
        if number_or_none is not None:
            put(_JEQ, number_or_none, 0, 4)
            put(_LOAD, argument(flags_index))
            put(_JSET, _ANY_WRITE, 0, 1)
            put(_RETURN, _ERRNO | _EACCES)
            put(_RETURN, _ALLOW)
    put(_JEQ, special["fcntl"] or 0, 0, 2 + 2 * len(_FCNTL_COMMANDS))
    put(_LOAD, argument(1))
    for command in _FCNTL_COMMANDS:
        put(_JEQ, command, 0, 1)
        put(_RETURN, _ALLOW)
    put(_RETURN, _ERRNO | _EPERM)
    reading_own_limits = (argument(0), argument(2), argument(2, high=True))  # pid 0, no new limits
    put(_JEQ, special["prlimit64"] or 0, 0, 2 + 2 * len(reading_own_limits))
    for done, offset in enumerate(reading_own_limits, start=1):
        put(_LOAD, offset)
        put(_JEQ, 0, 0, 1 + 2 * (len(reading_own_limits) - done))
    put(_RETURN, _ALLOW)
    put(_RETURN, _ERRNO | _EPERM)
    put(_JEQ, special["ioctl"] or 0, 0, 1)
    put(_RETURN, _ERRNO | _ENOTTY)
    put(_JEQ, special["clone3"] or 0, 0, 1)
    put(_RETURN, _ERRNO | _ENOSYS)  # so that C libraries fall back to clone, which is refused in turn
    put(_RETURN, _ERRNO | _EPERM)
    return b"".join(out)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


class Filter:
    """A filter ready to be installed: built once in the zygote, switched on in every child."""

    def __init__(self, machine: str) -> None:
        code = build_filter(machine)
        self._buffer = ctypes.create_string_buffer(code, len(code))
        self._program = _Program(len(code) // 8, ctypes.cast(self._buffer, ctypes.c_void_p))

    def install(self, prctl: ctypes._NamedFuncPointer) -> int:
        """0, or the errno. Needs no-new-privileges; cannot be undone."""
        if prctl(22, 2, ctypes.byref(self._program), 0, 0):  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
            return ctypes.get_errno() or -1
        return 0
