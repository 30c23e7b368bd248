"""The topology that docs/programs.md shows: under 60 lines, and it does all that the built-in ones do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import dspy
import pytest

from programs import PROGRAMS, build_program, load_program, save_program
from programs.communication import CONTEXT_LIMIT, HANDOFF_LIMIT
from programs.masking import only_roles
from programs.registry import program_class
from tests.support.flow_engine import FlowEngine
from tests.support.flow_script import FORMATS, QUESTION, TeamScript, lookup

DOCS = (Path(__file__).parents[2] / "docs" / "programs.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"runs it -->\n```python\n(.*?)```", DOCS, re.DOTALL).group(1)


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "critique_example.py").write_text(EXAMPLE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return "critique_example:Critique"


def run(program, communication="freeform"):
    engine = FlowEngine(TeamScript(communication))
    with dspy.context(lm=engine.lm):
        return program(question=QUESTION, tools=[lookup], answer_format="a bare year"), engine


def test_it_is_under_sixty_lines():
    code = [line for line in EXAMPLE.splitlines() if line.strip()]
    assert len(code) < 60 and all(len(line) <= 120 for line in EXAMPLE.splitlines())


@pytest.mark.parametrize("communication", FORMATS)
def test_it_runs_in_every_format_with_the_calls_it_states(module, communication):
    prediction, engine = run(build_program(module, communication=communication), communication)
    assert len(engine.calls) == 2 * 2 + 1 == prediction.n_lm_calls
    assert list(dict.fromkeys(engine.roles)) == ["drafter", "critic", "reviser"]
    assert "said-by-critic" in engine.of("reviser")[0].fields["context"]
    assert prediction.answer == "1815 said-by-reviser-0-1" and prediction.reports["parse_rate"] == 1.0
    json.dumps(prediction.toDict())


def test_files_masks_and_graphs_work(module, tmp_path):
    program = build_program(module)
    program.critic.signature = program.critic.signature.with_instructions("Doubt everything.")
    path = save_program(program, tmp_path / "c.json")
    again = load_program(path)
    assert again.critic.signature.instructions == "Doubt everything." and again.role_graph().sinks == ("reviser",)
    with only_roles(["drafter", "reviser"]):
        prediction, engine = run(again)
    assert engine.of("critic") == [] and prediction.answer == "1815 said-by-reviser-0-1"


def test_the_documentation_names_every_program_and_the_limits_in_force():
    for name in PROGRAMS:
        assert f"`{name}`" in DOCS
    assert f"{HANDOFF_LIMIT:,}" in DOCS and f"{CONTEXT_LIMIT:,}" in DOCS
    graph = build_program("centralized").role_graph()
    assert str(graph.topological_order()) in DOCS


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_states_its_flow_and_its_calls(name):
    stated = " ".join((program_class(name).__doc__ or "").split())
    assert "Model calls per question: " in stated
    assert "Message flow: " in stated or name in ("direct", "direct_search", "chat_agent", "search_r1")
