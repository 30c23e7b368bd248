"""What every command line does alike: one line for a mistake, an exit status, no traceback for Ctrl-C.

if __name__ == "__main__":  # first of all
    from metrics.interrupt import end_on_interrupt

    end_on_interrupt()
...
def main(argv: Sequence[str] | None = None) -> int:
    return run_command(build_parser(), run, argv)

if __name__ == "__main__":
    run_main(main)
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from metrics.interrupt import INTERRUPTED, end_on_interrupt, raise_on_interrupt

NOTICE = 25  # level of log lines for people that are no warnings (`programs.retrying`)


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose user errors are one line: what is wrong, and where the flags are explained.

    An option with an empty value is an error: it is a variable of a shell script that was not set. Options are given
    in full: an abbreviation would mean something else once there are more options.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in argparse, empty values refused."""
        found, rest = super().parse_known_args(args, namespace)
        for action in self._actions:
            value = getattr(found, action.dest, None)
            values = value if isinstance(value, list) else [value]
            if action.option_strings and any(isinstance(item, str) and not item.strip() for item in values):
                self.error(f"argument {'/'.join(action.option_strings)}: is empty")
        return found, rest

    def error(self, message: str) -> NoReturn:
        """Print `error: MESSAGE (see PROG --help)` and exit with 2."""
        self.exit(2, f"error: {' '.join(message.split())} (see {self.prog} --help)\n")


def run_command(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    argv: Sequence[str] | None,
    *,
    interrupted: str = "interrupted",
) -> int:
    """Parse `argv`, set up logging (to stderr; `args.verbose`: more of it), and `run(args)`; the exit status.

    A user's mistake (an exception whose class says `user_mistake = True`) is one line on stderr and its
    `exit_status`, else 2; Ctrl-C is the line `interrupted` and 130. Everything else raises: it is a bug.
    """
    args = parser.parse_args(argv)
    set_up_logging(getattr(args, "verbose", False), quiet=getattr(args, "quiet", False))
    try:
        return run(args)
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if not getattr(error, "user_mistake", False):
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return getattr(error, "exit_status", 2)


def set_up_logging(verbose: bool, *, quiet: bool = False) -> None:
    """Warnings of all libraries on stderr; with `verbose` also information, unless `quiet` also notices."""
    import logging

    class Handler(logging.StreamHandler):  # type: ignore[type-arg]
        stream = property(lambda self: sys.stderr, lambda self, value: None)  # a live line puts its own in place

    logging.addLevelName(NOTICE, "note")
    handler = Handler()
    # here, since some libraries set their own level
    handler.setLevel(logging.INFO if verbose else logging.WARNING if quiet else NOTICE)
    logging.basicConfig(handlers=[handler], level=handler.level, format="%(levelname)s %(name)s: %(message)s")


def run_main(main: Callable[[], int]) -> NoReturn:
    """Run `main` and end the process with its status; 1 and one line when its output cannot be written.

    Ends also when threads of unanswered questions (and what they started) never return.
    """
    raise_on_interrupt()
    status: Any = 1
    lost = None
    try:
        status = main()
    except SystemExit as end:  # of the parser
        status = end.code
    except OSError:
        if not (lost := _lost_output("\n")):
            raise
    end_on_interrupt()
    if lost := lost or _lost_output():
        print(f"error: cannot write to standard output: {lost}", file=sys.stderr)
        status = 1
    sys.stderr.flush()
    _leave(status)


def _lost_output(more: str = "") -> str | None:
    """Why what was printed (and `more`) cannot be written, None when it can."""
    try:
        print(end=more, flush=True)
    except OSError as error:
        # the interpreter tries once more at its end, and would complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error.strerror or type(error).__name__
    return None


def _leave(status: Any) -> NoReturn:
    import atexit
    import threading

    if any(thread.name == "hopteam-question" for thread in threading.enumerate()):
        atexit._run_exitfuncs()  # closes the sandbox; the interpreter itself would wait for those threads first
        os._exit(status)
    sys.exit(status)
