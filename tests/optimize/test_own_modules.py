"""What a user's own plain DSPy module meets on the command lines of `optimize`."""

from __future__ import annotations

import json

import dspy
import pytest

import optimize
from optimize import credit, run
from programs import build_lm, save_program
from tests.optimize import own_modules
from tests.optimize.own_modules import questions

HERE = "tests.optimize.own_modules"


def credited(tmp_path, capsys, *words):
    out = tmp_path / "credit"
    data = ["--dataset", "own", "--data-file", str(questions(tmp_path / "q.jsonl"))]
    status = credit.main([*words, *data, "--limit", "4", "--threads", "4", "--out", str(out), "--overwrite"])
    said = capsys.readouterr()
    assert status == 0, said.err
    return json.loads((out / "credit.json").read_text()), said.err


@pytest.mark.parametrize(
    ("name", "roles", "rollouts"), [("One", {"solve"}, 4), ("Two", {"look", "answer"}, 15), ("Acting", {"act"}, 4)]
)
def test_credit_of_any_module_is_measured(tmp_path, capsys, name, roles, rollouts):
    report, said = credited(tmp_path, capsys, f"{HERE}:{name}")
    assert set(report["roles"]) == roles and report["n_rows"] == 4
    assert report["rollouts"] == rollouts
    assert ("after 3 to see who reads whom" in said) == (len(roles) > 1), "one role alone has nobody to read it"


def test_credit_of_the_prompts_of_a_compiled_module(tmp_path, capsys):
    program = own_modules.Two()
    program.look.signature = program.look.signature.with_instructions("Note what is asked for.")
    save_program(program, tmp_path / "two.json")
    report, said = credited(tmp_path, capsys, str(tmp_path / "two.json"), "--players", "prompts")
    assert report["mode"] == "prompts" and report["n_rows"] == 4 and set(report["roles"]) == {"look", "answer"}
    assert report["rollouts"] == 8 and "who reads whom" not in said, "texts are swapped, whoever reads whom"


def optimized(tmp_path, capsys, program, *words):
    data = ["--data-file", str(questions(tmp_path / "q.jsonl")), "--allow-any-cell", "--threads", "4", "--quiet"]
    method = [] if "--method" in words else ["--method", "identity"]
    where = ["--budget", "12", "--out", str(tmp_path / "job")]
    status = run.main([*method, "--program", f"{HERE}:{program}", *data, *where, *words])
    return status, capsys.readouterr()


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("too_high", "the metric too_high returned 2.0 for row q"),
        ("only_later_too_high", "the metric only_later_too_high returned 2.0 for row q"),
        ("words", "the metric words must return a number, a bool, or a Prediction with a `score`; it returned 'good'"),
    ],
)
def test_a_metric_that_gives_no_score_is_refused_in_one_line(tmp_path, capsys, metric, said):
    status, printed = optimized(tmp_path, capsys, "One", "--metric", f"{HERE}:{metric}")
    assert status == 2 and printed.err.startswith(f"error: {said}")
    assert "scores are between 0 and 1" in printed.err or metric == "words"
    assert printed.err.count("\n") == 1


def test_a_metric_that_raises_shows_its_traceback(tmp_path, capsys):
    status, printed = optimized(tmp_path, capsys, "One", "--metric", f"{HERE}:broken")
    assert status == 3 and 'return {}["missing"]' in printed.err and "KeyError" in printed.err


def test_in_python_too_a_score_outside_the_range_is_an_error():
    with dspy.context(lm=build_lm("offline")), pytest.raises(ValueError, match=r"must_be_small returned 1.5 for row"):
        optimize.Identity(metric=must_be_small).compile(own_modules.One(), trainset=examples())


def must_be_small(example, prediction, trace=None):
    return 1.5


def examples():
    return [dspy.Example(question=f"question {i}", answer="x").with_inputs("question") for i in range(6)]


def test_a_program_without_an_answer_is_refused_unless_a_metric_reads_what_it_returns(tmp_path, capsys):
    status, printed = optimized(tmp_path, capsys, "Replies")
    assert status == 2 and "the program returned reply and no answer" in printed.err and printed.err.count("\n") == 1
    own = ["--metric", f"{HERE}:reply_given", "--overwrite"]
    assert optimized(tmp_path, capsys, "Replies", *own)[0] == 0


def test_no_advice_is_given_that_the_command_does_not_take(tmp_path, capsys):
    data = ["--data-file", str(questions(tmp_path / "q.jsonl")), "--allow-any-cell", "--dry-run"]
    assert run.main(["--method", "identity", "--program", f"{HERE}:One", *data]) == 0
    said = capsys.readouterr().err
    assert "the train split: 12 of 24 rows of q.jsonl" in said and "--split" not in said


def test_flags_are_given_in_full(capsys):
    with pytest.raises(SystemExit) as end:
        run.main(["--method", "identity", "--dry"])
    assert end.value.code == 2 and "unrecognized arguments: --dry" in capsys.readouterr().err


def test_a_predictor_that_is_built_in_forward_is_named_as_such(tmp_path, capsys):
    status, printed = optimized(tmp_path, capsys, "Late", "--method", "bootstrap")
    assert status == 2 and "no predictor found: build them" in printed.err and "in __init__" in printed.err


def test_the_package_shows_its_names():
    assert {"GEPA", "MIPRO", "SearchContext"} <= set(dir(optimize)) and "Any" not in dir(optimize)
