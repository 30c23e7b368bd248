"""Processes that a test can kill, forked from one that has imported everything: a start costs no second."""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["pytest", "gepa", "optuna", "optimize.methods", "tests.optimize.jobs"])


def start(function: Callable[..., Any], *arguments: Any, errors: Path) -> BaseProcess:
    """`function(*arguments)`, of an importable module, in a process of its own; its errors are in a file."""
    process = context.Process(target=_run, args=(function, arguments, str(errors)), daemon=True)
    process.start()
    return process


def _run(function: Callable[..., Any], arguments: tuple[Any, ...], errors: str) -> None:
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
    try:
        function(*arguments)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
