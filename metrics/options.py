"""The flags of a run (limits, folder, output), shared by both command lines. Imports no dspy."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metrics.evaluate import Limits
    from metrics.progress import Progress

QUESTION_TIMEOUT = 600.0
THREADS = 16
MAX_ERRORS = 0.1


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how a run goes and where it is kept; see `limits_from_args`, `progress_from_args`."""
    group = parser.add_argument_group("run")
    group.add_argument("--question-timeout", type=_seconds, default=QUESTION_TIMEOUT, metavar="S",
                       help="seconds per question, checked between calls; the program then answers from what it "
                            "knows; 0: no limit; default: 600")  # fmt: skip
    group.add_argument("--threads", type=_positive, default=THREADS, metavar="N",
                       help="questions at a time; never changes a result; default: 16")  # fmt: skip
    group.add_argument("--seed", type=int, default=0, help="decides every random choice; default: 0")
    group.add_argument("--max-usd", type=_dollars, metavar="USD", help="stop cleanly when this much has been billed")
    group.add_argument("--max-errors", type=share_or_count, default=MAX_ERRORS, metavar="X",
                       help="stop when more questions than this failed: a share below 1 (and at least 10) or "
                            "a count; default: 0.1")  # fmt: skip
    group.add_argument("--out", "--out-dir", dest="out", metavar="FOLDER",
                       help="where the results go; default: a new folder under results/ or runs/")  # fmt: skip
    group.add_argument("--resume", action="store_true",
                       help="go on with an interrupted run: finished rows stay, failed ones are redone")  # fmt: skip
    group.add_argument("--overwrite", action="store_true", help="delete the rows that are in the folder")
    group.add_argument("--plots", action="store_true",
                       help="also draw the plots of report.html as PNG and SVG, in plots/ (extra `plots`)")  # fmt: skip
    group.add_argument("--json", action="store_true", help="print the summary as JSON on stdout, and nothing else")
    group.add_argument("--quiet", action="store_true", help="no progress; print the summary's path only")
    group.add_argument("--verbose", action="store_true", help="one line per question, and more log messages")


def limits_from_args(args: argparse.Namespace) -> Limits:
    """The limits that the flags describe."""
    from metrics.evaluate import Limits

    return Limits(question_timeout=args.question_timeout or None, max_errors=args.max_errors, max_usd=args.max_usd)


def progress_from_args(args: argparse.Namespace) -> Progress:
    """The progress display that the flags ask for, on stderr."""
    from metrics.progress import make_progress

    return make_progress(quiet=args.quiet, verbose=args.verbose)


def share_or_count(text: str) -> float | int:
    """`0.1` is a share of all rows (float), `5` a count (int)."""
    try:
        value = float(text)
        if not math.isfinite(value) or value < 0:
            raise ValueError
        if value < 1 and value != 0:
            return value
        if value != int(value):
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a share below 1 or a whole number, got {text!r}") from None
    return int(value)


def _seconds(text: str) -> float:
    return _number(text, "a number of seconds from 0")


def _dollars(text: str) -> float:
    return _number(text, "an amount of dollars from 0")


def _number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"must be {what}, got {text!r}")
    return value


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, got {text!r}")
    return value
