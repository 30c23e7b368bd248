"""What the operating system says about processes that a test started."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator


def descendants(pid: int) -> dict[int, str]:
    """Living descendants of a process, zombies included: {process id: state letter}. Linux only."""
    children: dict[int, list[int]] = {}
    states: dict[int, str] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            states[int(entry)] = fields[0]
            children.setdefault(int(fields[1]), []).append(int(entry))
    found: dict[int, str] = {}
    queue = [pid]
    while queue:
        for child in children.get(queue.pop(), []):
            found[child] = states[child]
            queue.append(child)
    return found


def exists(pid: int) -> bool:
    """Whether a process is there and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Poll a condition; whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Processes started inside heed SIGINT, also where the tests are a script's background job, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
