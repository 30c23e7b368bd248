"""Every scenario of ToolHop and a model per role, in every program, from the command line."""

from __future__ import annotations

import json

import pytest

import eval as command
from programs import build_program
from programs.registry import PROGRAMS

WITHOUT_TOOLS = ("direct", "direct_search")  # no search tool among ToolHop's


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        status = command.main([*arguments, "--json", "--quiet"])
        return status, json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("name", PROGRAMS)
def test_scenarios(call, name):
    for scenario in ("free", "mandatory", "direct"):
        status, summary = call("--program", name, "--scenario", scenario, "--limit", "1", "--out", scenario)
        assert status == 0 and summary["n_scored"] == 1
        assert summary["data"]["setting"] == summary["hyperparameters"]["scenario"] == scenario
        assert (summary["tool_calls"] > 0) == (scenario != "direct" and name not in WITHOUT_TOOLS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_model_for_every_role_is_recorded_and_priced_apart(call, name):
    roles = build_program(name).roles()
    flags = [word for role in roles for word in ("--role-model", f"{role}=offline")]
    status, summary = call("--program", name, *flags, "--limit", "1", "--out", "run")
    assert status == 0 and summary["role_models"].keys() == set(roles)
    assert set(summary["usage_by_role"]) <= set(roles)
    assert all(usage["models"] for usage in summary["usage_by_role"].values())


def test_a_role_that_the_program_lacks_is_a_mistake(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command.main(["--program", "sequential", "--role-model", "manager=offline"]) == 2
    assert "sequential has no role manager; its roles are planner, tool_caller" in capsys.readouterr().err
