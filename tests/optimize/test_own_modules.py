"""What a user's own plain DSPy module meets on the command lines of `optimize`."""

from __future__ import annotations

import json

import pytest

from optimize import credit
from programs import save_program
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
