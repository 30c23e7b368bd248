"""Ctrl-C before there is anything to save: one line and exit status 130, no traceback.

The first import of every command line, so that it covers the others; it imports next to nothing itself.
"""

from __future__ import annotations

import os
import signal
from typing import Any

INTERRUPTED = 130  # exit status


def end_on_interrupt() -> None:
    """From now on Ctrl-C ends the process at once, with one line: nothing is at work that had to be saved."""
    _handle(_end)


def raise_on_interrupt() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt, as Python does by itself."""
    _handle(signal.default_int_handler)


def _handle(handler: Any) -> None:
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as it is for a background job of a script
        signal.signal(signal.SIGINT, handler)


def _end(signum: int, frame: Any) -> None:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
