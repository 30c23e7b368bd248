"""Run a command as `nobody`: `python as_nobody.py COMMAND ...` (as root; exit status 77: not possible here, and why).

Where the interpreter lives below a directory that only root may enter, the command gets a mount namespace in which
that directory is empty but for the interpreter.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import sys
import tempfile

_NEWNS, _BIND, _REC, _PRIVATE = 0x00020000, 4096, 16384, 1 << 18


def main() -> None:
    nobody = pwd.getpwnam("nobody")
    try:
        _uncover(os.path.realpath(sys.base_prefix))
    except OSError as error:
        print(f"cannot run as nobody: {error}", file=sys.stderr)
        sys.exit(77)
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)
    for needed in (sys.argv[1], os.getcwd()):
        if not os.access(needed, os.R_OK | os.X_OK):
            print(f"cannot run as nobody: {needed} is closed to others", file=sys.stderr)
            sys.exit(77)
    os.execvp(sys.argv[1], sys.argv[1:])


def _uncover(folder: str) -> None:
    closed = None
    path = folder
    while path != "/":
        if not os.stat(path).st_mode & 0o001:
            closed = path
        path = os.path.dirname(path)
    if closed is None:
        return
    if closed == folder:
        raise OSError(f"{folder} itself is closed to others")
    libc = ctypes.CDLL(None, use_errno=True)

    def must(result: int) -> None:
        if result:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    kept = tempfile.mkdtemp()
    must(libc.unshare(_NEWNS))
    must(libc.mount(b"none", b"/", None, _REC | _PRIVATE, None))
    must(libc.mount(folder.encode(), kept.encode(), None, _BIND, None))
    must(libc.mount(b"tmpfs", closed.encode(), b"tmpfs", 0, b"mode=755"))
    os.makedirs(folder)
    must(libc.mount(kept.encode(), folder.encode(), None, _BIND, None))


if __name__ == "__main__":
    main()
