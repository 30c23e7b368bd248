"""Programs by name, a user's own class, refusals, and the flags of the command lines."""

from __future__ import annotations

import argparse
import subprocess
import sys

import dspy
import pytest

from programs import PROGRAMS, build_program
from programs.errors import ConfigurationError
from programs.options import add_program_flags, program_from_args, program_options
from programs.registry import describe_programs, program_class
from programs.team import Team
from tests.support.engines import ScriptedEngine, finish_role, make_lm


class Mine(dspy.Module):
    """A user's own program."""

    def __init__(self, depth: int = 1):
        super().__init__()
        self.depth = depth
        self.solver = dspy.Predict("question -> answer")

    def forward(self, question, tools=None, answer_format=None):
        return self.solver(question=question)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_builds_rebuilds_and_answers(name):
    program = build_program(name)
    assert isinstance(program, Team)
    assert program.name == name
    hyper = program.hyperparameters()
    again = build_program(name, **hyper)
    assert again.hyperparameters() == hyper
    names = [predictor for predictor, _ in program.named_predictors()]
    assert all("." not in predictor and "[" not in predictor for predictor in names)
    signatures = [predictor.signature for _, predictor in program.named_predictors()]
    assert not any(a.equals(b) for i, a in enumerate(signatures) for b in signatures[:i])
    assert set(program.role_graph().base_roles) == set(names)
    with dspy.context(lm=make_lm(ScriptedEngine(finish_role))):
        assert program(question="q", tools=[], answer_format="a").answer == "42"
    assert describe_programs()[name]


def test_every_program_has_a_plain_prompt_set():
    for name in PROGRAMS:
        for (_, good), (_, plain) in zip(
            build_program(name).named_predictors(), build_program(name, prompts="plain").named_predictors(), strict=True
        ):
            assert len(plain.signature.instructions) < len(good.signature.instructions)


def test_a_users_class_is_built_by_its_path():
    program = build_program(f"{__name__}:Mine", depth=3)
    assert program.depth == 3
    assert program_class(f"{__name__}:Mine").__name__ == "Mine"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nope", {}, "choose from single"),
        ("no.such.module:X", {}, "cannot load"),
        (f"{__name__}:missing", {}, "cannot load"),
        (f"{__name__}:finish_role", {}, "no dspy.Module"),
        (f"{__name__}:Mine", {"team_size": 4}, "takes no team_size"),
        ("single", {"team_size": 4}, "4 does not fit"),
        ("single", {"rounds": 2}, "no rounds"),
        ("single", {"communication": "freeform"}, "no handoffs"),
        ("single", {"tool_calling": "json"}, "text, native"),
        ("single", {"prompts": "best"}, "default, plain"),
        ("single", {"scenario": "x"}, "free, mandatory, direct"),
        ("single", {"max_turns": 0}, "from 1"),
        ("single", {"max_tokens": 5}, "takes no max_tokens"),
        ("centralized", {"communication": "morse"}, "freeform"),
        ("centralized", {"team_size": True}, "whole number"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(name, options, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        build_program(name, **options)
    assert "\n" not in str(caught.value)


def parse(*flags, default="single"):
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset")
    add_program_flags(parser, default=default)
    return parser.parse_args(flags)


def test_flags_describe_a_program():
    flags = "--topology centralized --team-size 2 --communication semi_structured --tool-calling native"
    args = parse(*flags.split(), "--prompts", "plain", "--scenario", "mandatory", "--max-turns", "5")
    program = program_from_args(args, environ={})
    assert program.hyperparameters() == {
        "team_size": 2, "communication": "semi_structured", "tool_calling": "native", "prompts": "plain",
        "scenario": "mandatory", "max_turns": 5, "decoding": {"temperature": 0.0},
    }  # fmt: skip


def test_flags_that_are_not_given_leave_the_programs_defaults():
    assert program_options(parse(), {}) == {}
    assert program_from_args(parse(default="centralized"), environ={}).team_size == 4


def test_turns_come_from_the_flag_then_the_variable_then_the_default():
    variable = {"TOOLHOP_MAX_TURNS": "4"}
    assert program_options(parse("--max-turns", "6"), variable)["max_turns"] == 6
    assert program_options(parse("--dataset", "toolhop-sample"), variable)["max_turns"] == 4
    assert "max_turns" not in program_options(parse("--dataset", "hotpotqa"), variable)
    with pytest.raises(ConfigurationError, match="TOOLHOP_MAX_TURNS"):
        program_options(parse(), {"TOOLHOP_MAX_TURNS": "many"})
    assert program_from_args(parse("--program", f"{__name__}:Mine"), environ=variable).depth == 1


def test_bad_flags_are_usage_errors(capsys):
    for flags in (("--team-size", "0"), ("--tool-calling", "json"), ("--max-turns", "x")):
        with pytest.raises(SystemExit) as caught:
            parse(*flags)
        assert caught.value.code == 2
    capsys.readouterr()


def test_names_and_flags_need_no_dspy():
    code = "import sys, programs.options; from programs import PROGRAMS; sys.exit('dspy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
