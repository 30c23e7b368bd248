"""`--program my_package.my_module:MyTeam`: a user's own module, from the folder in which the user works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import eval as command

ROOT = Path(__file__).resolve().parents[1]
MODULE = '''
import dspy


class MyTeam(dspy.Module):
    """Asks a model once and returns an answer, nothing else."""

    def __init__(self, style: str = "short"):
        super().__init__()
        self.style = style
        self.solver = dspy.Predict("question, names: list[str], answer_format -> answer")

    def forward(self, question, tools, answer_format):
        reply = self.solver(question=question, names=[tool.name for tool in tools], answer_format=answer_format.text)
        return dspy.Prediction(answer=reply.answer)


class Words(dspy.Module):
    """Returns a bare text."""

    def forward(self, question, tools=None, answer_format=None):
        return "Answer: " + question.split()[0]


class NoTools(dspy.Module):
    def forward(self, question):
        return dspy.Prediction(answer="x")
'''


@pytest.fixture
def place(tmp_path):
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "my_module.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("def team(:\n")
    (tmp_path / "at_import.py").write_text("raise RuntimeError('no licence')\n")
    (tmp_path / "random.py").write_text("raise SystemExit('a file of the user hid a module')\n")
    return tmp_path


@pytest.fixture
def call(place, monkeypatch, capsys):
    """The command in this process, as a user in that folder would give it."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def run(*arguments):
        status = command.main(list(arguments))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    yield run
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("my_package", "broken", "at_import"):
            del sys.modules[name]


def rows():
    return [json.loads(line) for line in Path("run/results.jsonl").read_text().splitlines()]


def test_it_is_found_in_the_working_directory_which_hides_no_other_module(place):
    arguments = ["--program", "my_package.my_module:MyTeam", "--limit", "2", "--json"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    run = subprocess.run(
        [sys.executable, str(ROOT / "eval.py"), *arguments],
        cwd=place, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["program"] == "my_package.my_module:MyTeam"


@pytest.mark.parametrize("dataset", ["toolhop-sample", "hotpotqa-sample"])
def test_an_answer_is_all_it_needs_to_return(call, dataset):
    arguments = ["--program", "my_package.my_module:MyTeam", "--dataset", dataset, "--limit", "2", "--out", "run"]
    status, out, err = call(*arguments, "--json")
    assert status == 0, err
    summary = json.loads(out)
    assert (summary["n_scored"], summary["lm_calls"], list(summary["usage_by_role"])) == (2, 2, ["solver"])
    assert all(row["error"] is None and row["predicted_answer"] for row in rows())
    trace = json.loads(next(Path("run/traces").iterdir()).read_text())
    assert trace["calls"][0]["agent"]["role"] == "solver" and len(trace["tools_offered"]) >= 2


def test_a_bare_text_is_an_answer_too(call):
    arguments = ["--program", "my_package.my_module:Words", "--dataset", "hotpotqa-sample", "--limit", "2"]
    assert call(*arguments, "--out", "run")[0] == 0
    assert [row["predicted_answer"] for row in rows()] == [row["question"].split()[0] for row in rows()]


def test_a_module_that_takes_no_tools_is_an_error_of_every_row_that_says_so(call):
    status, out, _ = call("--program", "my_package.my_module:NoTools", "--limit", "2")
    assert status == 1 and "unexpected keyword argument 'tools'" in out


@pytest.mark.parametrize(
    ("program", "more", "says"),
    [
        ("my_package.other:MyTeam", (), "No module named 'my_package.other'"),
        ("my_package.my_module:Other", (), "has no attribute 'Other'"),
        ("my_package.my_module:dspy", (), "is no dspy.Module class"),
        ("broken:MyTeam", (), "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("at_import:MyTeam", (), "RuntimeError: no licence"),
        ("my_package.my_module:MyTeam", ("--team-size", "4"), "takes no team_size"),
    ],
)
def test_mistakes_are_one_line(call, program, more, says):
    status, out, err = call("--program", program, *more)
    assert status == 2 and out == ""
    assert err.count("\n") == 1 and says in err
