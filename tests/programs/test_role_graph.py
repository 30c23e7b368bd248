"""The role graph: queries, unrolled protocols, and inference from the traces of a foreign module."""

from __future__ import annotations

import logging

import dspy
import pytest

from programs.errors import ConfigurationError
from programs.role_graph import RoleGraph, appearance, infer_role_graph, resolve_role_graph
from programs.role_inference import roles_of
from tests.support.flow_engine import FlowEngine

DIAMOND = RoleGraph(("a", "b", "c", "d"), edges=(("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")))
CENTRALIZED = RoleGraph(
    ("manager", "checker", "reasoner", "manager@2", "aggregator"),
    edges=(
        ("manager", "checker"),
        ("manager", "reasoner"),
        ("checker", "manager@2"),
        ("reasoner", "manager@2"),
        ("manager@2", "aggregator"),
    ),
)


def test_queries_of_a_diamond():
    assert DIAMOND.sources == ("a",) and DIAMOND.sinks == ("d",)
    assert DIAMOND.topological_order() == ("a", "b", "c", "d")
    assert DIAMOND.layers() == (("a",), ("b", "c"), ("d",))
    assert DIAMOND.ancestors("d") == {"a", "b", "c"} and DIAMOND.descendants("a") == {"b", "c", "d"}
    assert DIAMOND.ancestors("a") == DIAMOND.descendants("d") == frozenset()
    assert DIAMOND.parents("d") == DIAMOND.children("a") == ("b", "c")
    assert DIAMOND.predictors["a"] == ("a",) and DIAMOND.counts["a"] == 1
    assert not any(DIAMOND.is_tied(role) for role in DIAMOND.roles)


def test_order_follows_edges_not_names():
    graph = RoleGraph(("z", "y", "x"), edges=(("x", "y"), ("y", "z"), ("x", "z")))
    assert graph.topological_order() == ("x", "y", "z")
    assert graph.layers() == (("x",), ("y",), ("z",))  # the longest path decides


def test_an_unrolled_protocol_is_tied():
    assert CENTRALIZED.is_tied("manager") and CENTRALIZED.is_tied("manager@2")
    assert not CENTRALIZED.is_tied("checker")
    assert CENTRALIZED.appearances("manager") == ("manager", "manager@2")
    assert CENTRALIZED.role_of("manager@2") == "manager"
    assert CENTRALIZED.base_roles == ("manager", "checker", "reasoner", "aggregator")
    assert CENTRALIZED.sources == ("manager",) and CENTRALIZED.sinks == ("aggregator",)
    assert appearance("debater", 1) == "debater" and appearance("debater", 3) == "debater@3"


def test_replicas_are_tied():
    graph = RoleGraph(("solver",), counts={"solver": 4})
    assert graph.is_tied("solver") and graph.sources == graph.sinks == ("solver",)


@pytest.mark.parametrize(
    ("roles", "more", "message"),
    [
        (("a", "a"), {}, "duplicate roles"),
        (("a",), {"edges": (("a", "b"),)}, r"unknown roles.*\['b'\]"),
        (("a",), {"counts": {"b": 2}}, "unknown roles"),
        (("a",), {"edges": (("a", "a"),)}, "a@2"),
        (("a", "b"), {"edges": (("a", "b"), ("b", "a"))}, "cycle"),
    ],
)
def test_what_is_no_graph_is_refused(roles, more, message):
    with pytest.raises(ConfigurationError, match=message):
        RoleGraph(roles, **more)


def test_an_empty_graph_has_nothing():
    assert RoleGraph(()).layers() == () and RoleGraph(()).sources == ()


class Chain(dspy.Module):
    """A user's own module: plan, solve with a library module, write."""

    def __init__(self):
        super().__init__()
        self.writer = dspy.Predict("report, question -> answer")
        self.planner = dspy.Predict("question -> plan")
        self.solver = dspy.ChainOfThought("question, plan -> result")

    def forward(self, question):
        plan = self.planner(question=question).plan
        result = self.solver(question=question, plan=plan).result
        return self.writer(question=question, report=f"The solver says: {result}")


class Managed(dspy.Module):
    """A user's own module with a role that is asked twice."""

    def __init__(self):
        super().__init__()
        self.manager = dspy.Predict("question, known -> order")
        self.worker = dspy.Predict("task -> finding")
        self.writer = dspy.Predict("notes -> answer")

    def forward(self, question):
        finding = self.worker(task=self.manager(question=question, known="").order).finding
        return self.writer(notes=self.manager(question=question, known=finding).order)


def unique(call):
    """A reply whose every field is a text of its own."""
    names = call.outputs
    number = abs(sum(map(ord, call.user)))
    return "".join(f"[[ ## {n} ## ]]\nwritten text {n} {number}\n\n" for n in names) + "[[ ## completed ## ]]"


def traces_of(program, questions, script=unique):
    collected = []
    for question in questions:
        with dspy.context(lm=FlowEngine(script).lm, adapter=dspy.ChatAdapter(), trace=[]):
            program(question=question)
            collected.append(list(dspy.settings.trace))
    return collected


QUESTIONS = ["Who was the mother of Ada Lovelace?", "Where was the father of Bob born?", "When did it all begin again?"]


class TestInference:
    def test_a_chain_is_read_off_its_traces(self):
        program = Chain()
        graph = infer_role_graph(program, traces_of(program, QUESTIONS))
        assert graph.edges == (("planner", "solver"), ("solver", "writer"))
        assert graph.topological_order() == ("planner", "solver", "writer")
        assert graph.predictors["solver"] == ("solver.predict",)
        assert graph.edge_field == {("planner", "solver"): "plan", ("solver", "writer"): "report"}

    def test_a_question_that_is_echoed_is_no_message(self):
        def echo(call):
            question = call.fields["question"]
            return "".join(f"[[ ## {n} ## ]]\n{question}\n\n" for n in call.outputs) + "[[ ## completed ## ]]"

        program = Chain()
        assert infer_role_graph(program, traces_of(program, QUESTIONS, echo)).edges == ()

    def test_short_outputs_prove_nothing(self):
        def short(call):
            return "".join(f"[[ ## {n} ## ]]\nyes\n\n" for n in call.outputs) + "[[ ## completed ## ]]"

        program = Chain()
        assert infer_role_graph(program, traces_of(program, QUESTIONS, short)).edges == ()

    def test_the_majority_of_examples_decides(self):
        a, b = ("a", {"q": "x"}, {"o": "text one of a"}), ("b", {"i": "nothing of it"}, {"o": "second text"})
        linked = ("b", {"i": "see text one of a!"}, {"o": "second text"})
        program = dspy.Module()
        program.a, program.b = dspy.Predict("q -> o"), dspy.Predict("i -> o")
        assert infer_role_graph(program, [[a, linked], [a, linked], [a, b]]).edges == (("a", "b"),)
        assert infer_role_graph(program, [[a, linked], [a, b], [a, b]]).edges == ()
        assert infer_role_graph(program, [[a, linked], [a, linked], [a, b], [a, b]]).edges == ()

    def test_roles_that_talk_back_are_unrolled_and_tied_with_a_warning(self, caplog):
        program = Managed()
        with caplog.at_level(logging.WARNING):
            graph = infer_role_graph(program, traces_of(program, QUESTIONS))
        assert graph.edges == (("manager", "worker"), ("worker", "manager@2"), ("manager@2", "writer"))
        assert graph.is_tied("manager@2") and graph.predictors["manager@2"] == ("manager",)
        assert "worker -> manager" in caplog.text

    def test_too_few_traces_say_what_is_needed(self):
        program = Chain()
        with pytest.raises(ConfigurationError, match=r"at least 3 traces.*got 2.*role_graph"):
            infer_role_graph(program, traces_of(program, QUESTIONS[:2]))

    def test_traces_of_another_instance_are_refused(self):
        with pytest.raises(ConfigurationError, match="this very instance"):
            infer_role_graph(Chain(), traces_of(Chain(), QUESTIONS))

    def test_roles_that_were_never_called_stay_without_edges(self, caplog):
        program = Chain()
        traces = traces_of(program, QUESTIONS)
        program.extra = dspy.Predict("a -> b")
        graph = infer_role_graph(program, traces)
        assert "extra" in graph.sources and "extra" in graph.sinks and "extra" in caplog.text

    def test_the_same_traces_always_give_the_same_graph(self):
        program = Managed()
        traces = traces_of(program, QUESTIONS)
        assert len({str(infer_role_graph(program, order)) for order in (traces, traces[::-1])}) == 1


def test_predictors_of_one_library_module_are_one_role():
    program = dspy.Module()
    program.agent = dspy.ReAct("question -> answer", tools=[])
    program.peers = [dspy.Predict("a -> b"), dspy.Predict("a -> b")]
    roles, frozen = roles_of(program)
    assert roles["agent"] == ("agent.react", "agent.extract.predict")
    assert "peers[0]" in roles and "peers[1]" in roles and frozen == ()


def test_frozen_predictors_are_named_not_lost(caplog):
    program = Chain()
    program.solver._compiled = True
    roles, frozen = roles_of(program)
    assert "solver" not in roles and frozen == ("solver.predict",)
    graph = infer_role_graph(program, traces_of(program, QUESTIONS))
    assert graph.frozen == ("solver.predict",) and "solver.predict" in caplog.text


def test_where_the_graph_comes_from():
    program = Chain()
    assert resolve_role_graph(program, DIAMOND) is DIAMOND
    program.role_graph = lambda: CENTRALIZED
    assert resolve_role_graph(program) is CENTRALIZED
    program.role_graph = DIAMOND
    assert resolve_role_graph(program) is DIAMOND
    with pytest.raises(ConfigurationError):
        resolve_role_graph(Chain())
