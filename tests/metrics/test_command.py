"""What all command lines do alike."""

from __future__ import annotations

import argparse
import logging

import pytest

from metrics.command import CommandParser, run_command
from metrics.errors import ConfigurationError


@pytest.fixture
def parser():
    parser = CommandParser(prog="python -m some.thing")
    parser.add_argument("--out")
    parser.add_argument("--ids", nargs="+")
    parser.add_argument("--verbose", action="store_true")
    return parser


def fail(error):
    def run(args: argparse.Namespace) -> int:
        raise error

    return run


@pytest.mark.parametrize("words", [["--nonsense"], ["--out"], ["--out", ""], ["--ids", "a", " "], ["stray"]])
def test_a_wrong_flag_is_one_line_and_status_2(parser, capsys, words):
    with pytest.raises(SystemExit) as caught:
        run_command(parser, lambda args: 0, words)
    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (2, "")
    assert err.startswith("error: ") and err.endswith("(see python -m some.thing --help)\n") and err.count("\n") == 1


def test_mistakes_interrupts_and_bugs(parser, capsys):
    assert run_command(parser, fail(ConfigurationError("no such\n thing")), []) == 2
    assert run_command(parser, fail(KeyboardInterrupt()), [], interrupted="interrupted; --resume goes on") == 130
    assert capsys.readouterr().err == "error: no such thing\ninterrupted; --resume goes on\n"
    with pytest.raises(ValueError, match="a bug"):
        run_command(parser, fail(ValueError("a bug")), [])


def test_debugging_lines_of_libraries_are_not_shown(parser, capsys, monkeypatch):
    monkeypatch.setattr(logging.root, "handlers", [])
    library = logging.getLogger("some.library")
    library.setLevel(logging.DEBUG)

    def run(args):
        library.debug("details")
        library.warning("careful")
        return 0

    assert run_command(parser, run, []) == 0
    assert capsys.readouterr().err == "WARNING some.library: careful\n"
