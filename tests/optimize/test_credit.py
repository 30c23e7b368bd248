"""The command that says who contributes what: values, savings, vetoes, and mistakes in one line."""

from __future__ import annotations

import json
import random

import dspy
import pytest

from optimize import credit
from optimize.coalitions import Game, assess, make_plan
from optimize.credit_report import credit_report, report_lines
from optimize.records import Records
from tests.support.graphs import CHAIN, DESK, DIAMOND, SKIP, STAR, context_for, solved, team_world

FACTS = {"program": "p", "dataset": "d", "split": "validation", "model": "sim", "embedded": False}
SMALL = ["--limit", "2", "--threads", "4", "--quiet"]


def measured(edges, mode, texts=None, rows=4, **plan):
    program, _engine, lm = team_world(edges)
    with dspy.context(lm=lm):
        context = context_for(program, lm, train=rows)
        candidate = context.baseline.with_instructions(solved(program, texts))
        game = Game.of(context, program.role_graph())
        made = make_plan(game, mode, rng=random.Random(0), **{"credit": "exact", **plan})
        return credit_report(context, assess(Records(context), made, candidate, context.train), FACTS)


@pytest.mark.parametrize(
    ("edges", "naive", "executed"), [(CHAIN, 32, 4), (DIAMOND, 32, 6), (STAR, 32, 10), (DESK, 448, 73), (SKIP, 32, 5)]
)
def test_savings_are_those_of_the_published_table(edges, naive, executed):
    calls = measured(edges, "prune", rows=1)["model_calls"]
    assert (calls["naive"], calls["executed"]) == (naive, executed)
    assert calls["saved"] == pytest.approx(1 - executed / naive)


def test_values_add_up_and_carry_their_errors():
    report = measured(STAR, "placeholder", texts="wxym")
    assert sum(r["phi"] for r in report["roles"].values()) == pytest.approx(report["total"]) == 1.0
    assert all(r["standard_error"] is not None for r in report["roles"].values())
    assert sum(r["share"] for r in report["roles"].values()) == pytest.approx(1.0)
    assert measured(STAR, "placeholder", rows=1)["roles"]["m"]["standard_error"] is None


def test_vetoes_are_measured_and_read_off_the_graph():
    report = measured(STAR, "prune", texts="wxym")
    assert [role for role, r in report["roles"].items() if r["veto"]] == ["m"]
    assert [role for role, r in report["roles"].items() if r["veto_in_graph"]] == ["m"]
    failing = measured(STAR, "prune", texts="")
    assert not any(r["veto"] for r in failing["roles"].values()) or failing["total"] > 0
    skip = measured(SKIP, "placeholder", texts="abcd")
    assert {role for role, r in skip["roles"].items() if r["veto_in_graph"]} == {"a", "d"}


def test_a_veto_is_claimed_only_when_every_coalition_without_the_role_was_run():
    """One order per row never runs what contradicts a false veto: exact credit says who is one."""
    exact = measured(SKIP, "placeholder", texts="abcd")
    sampled = measured(SKIP, "placeholder", texts="abcd", rows=1, credit="permutation", cap=1)
    assert sampled["orders"] == 1
    for role, r in sampled["roles"].items():
        assert r["veto"] in (exact["roles"][role]["veto"], None)
    assert any(r["veto"] is None for r in sampled["roles"].values())
    lines = report_lines(sampled)
    assert any(line.endswith("  n/a") for line in lines) and any("not all of them were run" in line for line in lines)
    pruned = measured(CHAIN, "prune", texts="abcd", rows=2, credit="permutation", cap=1)
    assert all(r["veto"] is True for r in pruned["roles"].values()), "the graph says so, whatever was run"


def test_runs_that_show_the_graph_are_not_in_the_naive_count():
    """2^4 coalitions of a chain of 4 call 32 roles on a row, however the graph came about."""
    program, _engine, lm = team_world(CHAIN, declare=False)
    with dspy.context(lm=lm):
        context = context_for(program, lm, train=4)
        graph = context.ensure_graph()
        assert context.ledger.counts["node_calls"] == 3 * 4
        made = make_plan(Game.of(context, graph), "placeholder", credit="exact", rng=random.Random(0))
        credited = assess(Records(context), made, context.baseline, context.train)
        calls = credit_report(context, credited, FACTS)["model_calls"]
    assert calls["naive"] == 4 * 32
    assert calls["saved"] == pytest.approx(1 - calls["executed"] / calls["naive"])


def test_a_sampled_report_claims_no_savings():
    report = measured(DESK, "prune", rows=2, credit="permutation", cap=20)
    assert report["credit"] == "permutation" and report["orders"] >= 1
    assert report["model_calls"]["naive"] is None
    assert any("sampled orders" in line for line in report_lines(report))


def test_the_report_is_readable_and_json():
    report = measured(CHAIN, "prune", texts="abcd")
    lines = report_lines(report)
    assert any(line.startswith("a ") and "0.250" in line for line in lines)
    assert any("pruning ties" in line for line in lines)
    assert json.loads(json.dumps(report, allow_nan=False)) == json.loads(json.dumps(report))


def run(tmp_path, capsys, *words):
    status = credit.main([*words, *SMALL, "--out", str(tmp_path / "out")])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_program_is_measured_and_saved(tmp_path, capsys):
    status, out, _err = run(tmp_path, capsys, "sequential", "--team-size", "2")
    assert status == 0
    path = tmp_path / "out" / "credit.json"
    assert out.strip() == str(path)
    report = json.loads(path.read_text())
    assert set(report["roles"]) == {"tool_caller", "aggregator"} and report["n_rows"] == 2
    assert report["rollouts"] == 3 * 2 and report["embedded"] is True
    assert sum(r["phi"] for r in report["roles"].values()) == pytest.approx(report["total"])
    assert str(tmp_path) not in path.read_text()
    status, _out, err = run(tmp_path, capsys, "sequential", "--team-size", "2")
    assert status == 2 and "--overwrite" in err and len(err.strip().splitlines()) == 1
    assert run(tmp_path, capsys, "sequential", "--team-size", "2", "--overwrite")[0] == 0


def test_different_analyses_have_different_folders_and_the_table_explains_itself(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = "toolhop-sample/centralized-mipro"
    small = ["--limit", "1", "--max-coalitions", "2"]
    paths = set()
    for words in ([target], [target, "--players", "prompts"], ["centralized"], ["centralized", "--split", "test"]):
        assert credit.main([*words, *small]) == 0
        out = capsys.readouterr().out.splitlines()
        for column in ("phi ", "s.e. ", "adjusted ", "veto "):
            assert sum(line.startswith(column) for line in out) == 1, "each column is explained"
        paths.add(out[-1])
    assert len(paths) == 4 and all((tmp_path / path).exists() for path in paths)
    assert credit.main(["centralized", *small]) == 2 and "--overwrite" in capsys.readouterr().err


def half(example, prediction):
    return 0.5


def test_a_metric_of_ones_own_is_what_the_credit_is_for(tmp_path, capsys):
    words = ("sequential", "--team-size", "2", "--metric", "tests.optimize.test_credit:half")
    status, _out, _err = run(tmp_path, capsys, *words)
    report = json.loads((tmp_path / "out" / "credit.json").read_text())
    assert status == 0 and report["total"] == 0.5 and report["metric"] == "tests.optimize.test_credit:half"
    assert sum(r["phi"] for r in report["roles"].values()) == pytest.approx(0.5)
    status, _out, err = run(tmp_path, capsys, "sequential", "--metric", "tests.optimize.own_modules:too_high",
                            "--overwrite")  # fmt: skip
    assert status == 2 and "between 0 and 1" in err


def test_a_module_whose_graph_has_to_be_seen_asks_for_three_rows_before_it_spends_any(tmp_path, capsys):
    status, out, err = run(tmp_path, capsys, "tests.optimize.own_modules:Two")
    assert status == 2 and "--limit 3" in err and len(err.strip().splitlines()) == 1 and not out


def test_agents_of_one_prompt_share_its_credit(tmp_path, capsys):
    status, _out, _err = run(tmp_path, capsys, "independent", "--team-size", "2")
    report = json.loads((tmp_path / "out" / "credit.json").read_text())
    assert status == 0 and list(report["roles"]) == ["solver"]
    assert set(report["roles"]["solver"]["players"]) == {"solver::0", "solver::1"}


def test_prompts_of_a_compiled_program_against_the_first_ones(tmp_path, capsys):
    from programs import build_program, save_program

    program = build_program("sequential", team_size=2, prompts="plain")
    text = "Work one hop at a time: find the first unknown, then use its value in the next step."
    program.tool_caller.signature = program.tool_caller.signature.with_instructions(text)
    file = tmp_path / "better.json"
    save_program(program, file)
    status, _out, _err = run(tmp_path, capsys, str(file), "--players", "prompts")
    report = json.loads((tmp_path / "out" / "credit.json").read_text())
    assert status == 0 and report["mode"] == "prompts" and report["compiled"] == "better.json"
    assert report["roles"]["aggregator"]["phi"] == 0 and "(none)" in report["worth"]
    assert report["rollouts"] == 2 * 2, "only two of the four coalitions differ"
    unchanged = tmp_path / "same.json"
    save_program(build_program("sequential", team_size=2, prompts="plain"), unchanged)
    status, _out, err = run(tmp_path, capsys, str(unchanged), "--players", "prompts", "--overwrite")
    assert status == 2 and "nothing to compare" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sequential", "--fixed", "boss"], "no role boss"),
        (["sequential", "--players", "prompts"], "compiled file"),
        (["no_such_program"], "no compiled program"),
        (["sequential", "--max-coalitions", "0"], "at least 1"),
        (["sequential", "--dataset", "nothing"], "nothing"),
        (["sequential", "--metric", "no.such:metric"], "--metric"),
        (["sequential", "--dataset", "hotpotqa-sample", "--metric", "strict"], "--metric strict"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, words, said):
    status, _out, err = run(tmp_path, capsys, *words)
    assert status == 2 and said in err and len(err.strip().splitlines()) == 1


def test_help_needs_no_dspy():
    import subprocess
    import sys

    code = "import sys, optimize.credit as c; c.build_parser().format_help(); sys.exit('dspy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
