"""Roles in every program: graphs as seen, masks, budgets, models per role, scenarios, prompts, copies."""

from __future__ import annotations

import copy
import json
import re

import dspy
import pytest

from programs import build_program, load_program, save_program
from programs.budget import QuestionBudget
from programs.centralized import WORKERS
from programs.errors import ConfigurationError
from programs.masking import only_roles
from programs.role_graph import infer_role_graph
from programs.sequential import STAGES
from tests.support.flow_engine import FlowEngine
from tests.support.flow_script import FORMATS, QUESTION, SIZES, TeamScript, lookup, run

TEAMS = [
    *(("independent", size) for size in SIZES),
    *(("sequential", size) for size in SIZES),
    *(("centralized", size) for size in SIZES),
    *(("decentralized", size) for size in SIZES),
    ("agent_as_tool", 2),
]
BASELINES = [("direct", 1), ("direct_search", 1), ("chat_agent", 1), ("search_r1", 1)]
ALL = [("single", 1), *TEAMS, *BASELINES]
FORMATTED = [(n, s, f) for n, s in TEAMS for f in (FORMATS if n != "independent" else (None,))]


def script_for(name, size, communication="freeform"):
    """A run in which every role gets to work."""
    workers = list(WORKERS[size]) if name == "centralized" else ["tool_caller"]
    return TeamScript(communication or "freeform", delegations=[workers])


def options(name, size, communication=None):
    return {"team_size": size, **({"communication": communication} if communication else {})}


def roles_of(name, size):
    return build_program(name, team_size=size).roles()


ROLES = {
    **{("sequential", size): list(STAGES[size]) for size in SIZES},
    **{("centralized", size): ["manager", *WORKERS[size], "aggregator"] for size in SIZES},
    **{("independent", size): ["solver"] for size in SIZES},
    **{("decentralized", size): ["debater"] for size in SIZES},
    ("agent_as_tool", 2): ["planner", "tool_caller"],
    ("single", 1): ["solver"],
    ("direct", 1): ["solver"],
    ("direct_search", 1): ["solver"],
    ("chat_agent", 1): ["agent"],
    ("search_r1", 1): ["agent"],
}


class TestPredictors:
    @pytest.mark.parametrize(("name", "size"), ALL)
    def test_one_predictor_per_role_with_the_roles_name(self, name, size):
        program = build_program(name, team_size=size)
        assert [n for n, _ in program.named_predictors()] == program.roles() == ROLES[name, size]

    @pytest.mark.parametrize(("name", "size"), ALL)
    def test_signatures_of_roles_differ_for_gepa(self, name, size):
        predictors = build_program(name, team_size=size, prompts="plain").predictors()
        for i, a in enumerate(predictors):
            for b in predictors[i + 1 :]:
                assert not a.signature.equals(b.signature)
                assert not a.signature.with_instructions("x").equals(b.signature.with_instructions("x"))

    @pytest.mark.parametrize("size", [s for s in SIZES if s > 2])
    def test_a_role_is_the_same_wherever_it_appears(self, size):
        sequential = build_program("sequential", team_size=size)
        centralized = build_program("centralized", team_size=size)
        for role in set(sequential.roles()) & set(centralized.roles()):
            assert getattr(sequential, role).signature.instructions == getattr(centralized, role).signature.instructions

    @pytest.mark.parametrize(("name", "size", "communication"), FORMATTED)
    def test_copies_and_files_are_the_same_program(self, name, size, communication, tmp_path):
        program = build_program(name, **options(name, size, communication))
        for role in program.roles():
            predictor = getattr(program, role)
            predictor.signature = predictor.signature.with_instructions(f"Rewritten for {role}.")
        path = save_program(program, tmp_path / "p.json")
        stock = build_program(name, **options(name, size, communication))
        stock.load(path)
        script = script_for(name, size, communication)
        seen = []
        for one in (program, program.deepcopy(), copy.deepcopy(program), load_program(path), stock):
            assert one.hyperparameters() == program.hyperparameters()
            assert [n for n, _ in one.named_predictors()] == program.roles()
            engine = FlowEngine(script)
            with dspy.context(lm=engine.lm):
                prediction = one(question=QUESTION, tools=[lookup])
            assert all(f"Rewritten for {call.role}." in call.system for call in engine.calls)
            seen.append(json.dumps([prediction.toDict(), sorted(c.system + c.user for c in engine.calls)]))
        assert len(set(seen)) == 1

    def test_shared_prompts_load_at_another_size(self, tmp_path):
        for name in ("independent", "decentralized"):
            path = save_program(build_program(name, team_size=4), tmp_path / f"{name}.json")
            assert load_program(path, team_size=8).team_size == 8
        path = save_program(build_program("sequential", team_size=4), tmp_path / "s.json")
        with pytest.raises(ValueError, match="missing in the file: question_parser"):
            load_program(path, team_size=8)

    @pytest.mark.parametrize(
        ("name", "bad"),
        [
            ("sequential", {"team_size": 3}),
            ("centralized", {"team_size": 5}),
            ("agent_as_tool", {"team_size": 4}),
            ("single", {"team_size": 2}),
            ("independent", {"team_size": 0}),
            ("independent", {"communication": "freeform"}),
            ("sequential", {"communication": "xml"}),
            ("sequential", {"rounds": 2}),
            ("decentralized", {"rounds": 0}),
            ("direct", {"communication": "freeform"}),
            ("sequential", {"scenario": "sometimes"}),
        ],
    )
    def test_what_does_not_fit_is_refused(self, name, bad):
        with pytest.raises(ConfigurationError):
            build_program(name, **bad)


class TestRoleGraph:
    @pytest.mark.parametrize(("name", "size", "communication"), FORMATTED)
    def test_an_edge_is_what_somebody_really_read(self, name, size, communication):
        _, engine, program = run(name, script_for(name, size, communication), **options(name, size, communication))
        graph = program.role_graph()
        seen = set()
        for call in engine.calls:
            authors = {re.sub(r"-\d+-\d+$", "", a) for a in re.findall(r"said-by-(\w+-\d+-\d+)", call.user)}
            if "task-0-for" in call.fields["question"]:
                authors |= {"manager", "planner"} & set(program.roles())
            seen |= {(author, call.role) for author in authors if author != call.role}
        stated = {(graph.role_of(i), graph.role_of(j)) for i, j in graph.edges}
        assert {edge for edge in stated if edge[0] != edge[1]} == seen

    @pytest.mark.parametrize(("name", "size"), ALL)
    def test_it_is_a_dag_over_the_predictors(self, name, size):
        program = build_program(name, team_size=size)
        graph = program.role_graph()
        assert set(graph.base_roles) == set(program.roles())
        assert {p for names in graph.predictors.values() for p in names} == {n for n, _ in program.named_predictors()}
        assert len(graph.topological_order()) == len(graph.roles)
        assert len(graph.sinks) == 1 and len(graph.sources) == 1
        fields = {name: p.signature.input_fields for name, p in program.named_predictors()}
        assert all(graph.edge_field[i, j] in fields[graph.predictors[j][0]] for i, j in graph.edges)
        shared = {"independent": ["solver"], "decentralized": ["debater"]}.get(name, [])
        again = {"centralized": ["manager"], "agent_as_tool": ["planner"]}.get(name, [])
        assert [role for role in graph.base_roles if graph.is_tied(role)] == [*shared, *again]
        assert all(graph.counts[node] == size for role in shared for node in graph.appearances(role))

    def test_a_debate_is_unrolled_by_round(self):
        graph = build_program("decentralized", rounds=3).role_graph()
        assert graph.edges == (("debater", "debater@2"), ("debater@2", "debater@3"))
        assert build_program("decentralized", rounds=1).role_graph().edges == ()

    @pytest.mark.parametrize(("name", "size"), [t for t in TEAMS if t[0] != "decentralized"])
    def test_the_same_graph_can_be_read_off_traces(self, name, size):
        program = build_program(name, team_size=size)
        traces = []
        for _ in range(3):
            with dspy.context(lm=FlowEngine(script_for(name, size)).lm, trace=[]):
                program(question=QUESTION, tools=[lookup])
                traces.append(list(dspy.settings.trace))
        inferred, stated = infer_role_graph(program, traces), program.role_graph()
        assert {(stated.role_of(i), stated.role_of(j)) for i, j in stated.edges} == {
            (inferred.role_of(i), inferred.role_of(j)) for i, j in inferred.edges
        }


class TestMask:
    @pytest.mark.parametrize(("name", "size", "communication"), FORMATTED)
    def test_a_masked_role_is_not_called_and_no_source_of_messages(self, name, size, communication):
        program = build_program(name, **options(name, size, communication))
        for masked in program.roles():
            engine = FlowEngine(script_for(name, size, communication))
            others = [role for role in program.roles() if role != masked]
            with dspy.context(lm=engine.lm, trace=[]), only_roles(others):
                prediction = program(question=QUESTION, tools=[lookup])
            assert engine.of(masked) == [] and prediction.n_lm_calls == len(engine.calls)
            for call in engine.calls:
                assert f"from {masked}" not in call.user and f"said-by-{masked}-" not in call.user
                assert f"ask_{masked}" not in call.fields.get("tools", "")
            assert isinstance(prediction.answer, str)
            sinks = {program.role_graph().role_of(sink) for sink in program.role_graph().sinks}
            if masked in sinks:
                assert prediction.answer == prediction.final_text == ""
            assert not any(h["from"]["role"] == masked for h in prediction.reports.get("handoffs", []))
            records = [entry for entry in prediction.trajectory if entry["agent"]["role"] == masked]
            assert all(entry["masked"] and entry["n_lm_calls"] == 0 for entry in records)
            json.dumps(prediction.toDict())

    def test_everybody_masked_is_an_abstention(self):
        for name, size in ALL:
            engine = FlowEngine(TeamScript())
            with dspy.context(lm=engine.lm), only_roles([]):
                prediction = build_program(name, team_size=size)(question=QUESTION, tools=[lookup])
            assert (prediction.answer, prediction.n_lm_calls, engine.calls) == ("", 0, [])

    @pytest.mark.parametrize(("name", "role"), [("independent", "solver"), ("decentralized", "debater")])
    def test_single_replicas_can_be_masked(self, name, role):
        engine = FlowEngine(TeamScript(answers=lambda call: f"a{call.index}"))
        with dspy.context(lm=engine.lm), only_roles([f"{role}::1", f"{role}::3"]):
            prediction = build_program(name)(question=QUESTION, tools=[lookup])
        assert {call.index for call in engine.calls} == {1, 3} and prediction.answer == "a1"
        for call in engine.of(role, round=2):
            assert "from debater 2" in call.user and "from debater 1 " not in call.user

    def test_without_a_mask_nothing_changes(self):
        for name, size in TEAMS:
            program = build_program(name, team_size=size)
            results = []
            for roles in (None, program.roles()):
                with dspy.context(lm=FlowEngine(script_for(name, size)).lm), only_roles(roles):
                    results.append(json.dumps(program(question=QUESTION, tools=[lookup]).toDict()))
            assert len(set(results)) == 1


class TestBudget:
    @pytest.mark.parametrize(("name", "size", "communication"), [("single", 1, None), *FORMATTED])
    def test_reaching_it_forces_the_answer_once_and_is_marked(self, name, size, communication):
        script, shape = script_for(name, size, communication), options(name, size, communication)
        _, full, _ = run(name, script, **shape)
        finishers = size if name in ("independent", "decentralized") else 1
        for calls in (0, 1, 3, len(full.calls) - finishers - 1):
            budget = QuestionBudget(calls)
            prediction, engine, _ = run(name, script, context={"question_budget": budget}, **shape)
            assert len(engine.calls) <= calls + finishers  # each answering agent once, beyond the limit
            assert budget.used_calls == prediction.n_lm_calls == len(engine.calls)
            if calls < len(full.calls) - finishers:
                assert prediction.stopped == "budget_calls"
            assert prediction.answer.startswith("1815")
            json.dumps(prediction.toDict())

    @pytest.mark.parametrize(("name", "size"), [("single", 1), *(t for t in TEAMS if t[1] in (2, 4))])
    @pytest.mark.parametrize(
        ("limits", "why"),
        [({"seconds": -1}, "budget_time"), ({"tokens": 0}, "budget_tokens"), ({"usd": 0.0}, "budget_usd")],
    )
    def test_time_tokens_and_money_end_it_alike(self, name, size, limits, why):
        budget = QuestionBudget(1000, **limits)
        prediction, engine, _ = run(
            name, script_for(name, size), team_size=size, context={"question_budget": budget}
        )
        assert prediction.stopped == why and prediction.answer.startswith("1815")
        assert len(engine.calls) == (size if name in ("independent", "decentralized") else 1)

    @pytest.mark.parametrize(("name", "size"), ALL)
    def test_a_team_has_sixty_calls_per_agent_for_all_agents_together(self, name, size):
        budgets = []

        def script(call):
            budgets.append(dspy.settings.get("question_budget"))
            return base(call)

        base = script_for(name, size)
        run(name, script, team_size=size)
        assert max(b.calls for b in budgets) <= 60 * size and all(b.depth <= 2 for b in budgets)

    def test_agents_cannot_delegate_below_depth_two(self):
        budget = QuestionBudget(100, max_depth=1)
        prediction, engine, _ = run("centralized", TeamScript(), context={"question_budget": budget})
        assert engine.of("tool_caller") == [] and "cannot delegate" in engine.of("manager")[1].fields["trajectory"]
        assert prediction.answer


class TestModels:
    @pytest.mark.parametrize(("name", "size"), ALL)
    def test_every_role_can_have_its_own(self, name, size):
        script = script_for(name, size)
        roles = roles_of(name, size)
        engines = {role: FlowEngine(script) for role in roles}
        models = {
            role: dspy.LM(f"fake/{role}", engine=engine, cache=False, num_retries=0) for role, engine in engines.items()
        }
        default = FlowEngine(script)
        program = build_program(name, team_size=size, role_models=models)
        with dspy.context(lm=default.lm):
            prediction = program(question=QUESTION, tools=[lookup])
        assert default.calls == [] and prediction.answer.startswith("1815")
        for role, engine in engines.items():
            assert engine.calls and {call.role for call in engine.calls} == {role}
        assert prediction.role_models == {role: f"fake/{role}" for role in roles}
        assert program.deepcopy().role_models.names() == prediction.role_models

    def test_an_unknown_role_is_refused_with_the_known_ones(self):
        with pytest.raises(ConfigurationError, match=r"no role poet.*planner, tool_caller"):
            build_program("agent_as_tool", role_models={"poet": FlowEngine([]).lm})


class TestScenarios:
    @pytest.mark.parametrize(("name", "size"), ALL)
    def test_direct_offers_no_tools_and_speaks_of_none(self, name, size):
        engine = FlowEngine(TeamScript(tool_steps=0, delegations=script_for(name, size).delegations))
        with dspy.context(lm=engine.lm):
            prediction = build_program(name, team_size=size, scenario="direct")(question=QUESTION, tools=[lookup])
        assert prediction.answer.startswith("1815")
        for call in engine.calls:
            assert "lookup" not in call.user and "lookup" not in call.system
            if call.role not in ("manager", "planner"):
                assert "(no tools" in call.fields.get("tools", "(no tools")
            claims_no_tools(call)

    @pytest.mark.parametrize(("name", "size"), ALL)
    def test_mandatory_insists_where_there_are_tools(self, name, size):
        _, engine, _ = run(name, script_for(name, size), team_size=size, scenario="mandatory")
        for call in engine.calls:
            if '"lookup"' in call.fields.get("tools", ""):
                assert "must rest on a tool result" in call.fields["trajectory"]

    @pytest.mark.parametrize("prompts", ["default", "plain"])
    @pytest.mark.parametrize(("name", "size"), ALL)
    def test_prompts_claim_no_tools_or_team_mates_that_the_role_does_not_have(self, name, size, prompts):
        _, engine, _ = run(name, script_for(name, size), team_size=size, prompts=prompts)
        for call in engine.calls:
            claims_no_tools(call)
            objective = call.system.split("your objective is:")[-1]
            if name in ("single", "independent", "direct", "direct_search", "chat_agent", "search_r1"):
                assert not re.search(r"team|others|report|assistant that|delegat", objective)

    @pytest.mark.parametrize(("name", "size"), ALL)
    def test_plain_prompts_exist_for_every_role(self, name, size):
        default, plain = (build_program(name, team_size=size, prompts=p) for p in ("default", "plain"))
        for role in default.roles():
            texts = [getattr(program, role).signature.instructions for program in (default, plain)]
            assert len(texts[1]) < len(texts[0]) and len(texts[1]) < 60


def claims_no_tools(call):
    """A request without tools has a prompt that promises none."""
    tools = call.fields.get("tools", "(no tools in this call)")
    if tools.startswith("(no tools") and not call.forced:
        objective = call.system.split("your objective is:")[-1]
        assert not re.search(r"\bthe tools\b|each tool\b|several tools|with a tool\b", objective), objective
