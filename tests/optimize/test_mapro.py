"""MAPRO: exact joint choice over judged pools, rollouts for new assignments only, blame and examples for the next."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter

import dspy
import pytest

from metrics.errors import ConfigurationError
from optimize import MAPRO
from optimize.candidates import Candidate
from optimize.grounded import run_edges
from optimize.methods.mapro import Member, held_back
from optimize.preferences import Preferences, contrast, deterministic
from optimize.rewards import Rewards, best_assignment, draw_contexts, normalised, probe, reward
from programs.role_graph import RoleGraph
from tests.support.graphs import (
    CHAIN,
    DIAMOND,
    GraphTeam,
    context_for,
    field_of,
    solved,
    team_world,
)
from tests.support.rules import CountingMetric, questions


def search(edges=CHAIN, budget=300, metric=None, train=30, validation=30, engine=None, method_edges=None, **options):
    program, made, lm = team_world(edges, **(engine or {}))
    metric = metric or CountingMetric()
    options = {"final_gate": False, "edges": method_edges, **options}
    with dspy.context(lm=lm):
        result = MAPRO(metric=metric, prompt_model=lm, max_rollouts=budget, **options).compile(
            program, trainset=questions(train), valset=questions(validation, 1000)
        )
    return result, result.optimizer_stats, made, metric


def events(stats, name):
    return [entry for entry in stats["history"] if entry["event"] == name]


# -- what it costs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("judge", ["pointwise", "listwise"])
def test_calls_of_one_iteration_on_a_chain_of_four(judge):
    _, stats, engine, _ = search(
        engine={"style": "fresh", "judge": "half"}, judge=judge, max_iterations=1, budget=600, seed=3
    )
    counts = Counter(field for field, _ in engine.asked)
    assert counts["variants"] == 4
    assert stats["counters"]["probe_calls"] == 4 * (5 - 1) * 3 == 48
    edges = 3 * 5 * 3  # batched over the reader's candidates
    if judge == "pointwise":
        assert counts["score"] == 4 * 5 * 3 == 60 and counts["scores"] == edges
    else:
        assert counts["score"] == 0 and counts["scores"] == 4 * 3 + edges
    assert stats["counters"]["rollouts"] == 30, "all rewards are equal, so nothing new is run"
    assert stats["counters"]["judge_calls"] == counts["score"] + counts["scores"]


def test_blame_and_edits_of_the_next_iteration():
    _, _stats, engine, _ = search(
        engine={"style": "fresh", "judge": "half"}, max_iterations=2, patience=5, budget=600, seed=3
    )
    counts = Counter(field for field, _ in engine.asked)
    assert counts["blame"] == 3 * 3 and counts["new_instruction"] == 4 * 4
    operations = Counter(field_of(user, "operation").split()[0] for f, user in engine.asked if f == "new_instruction")
    assert operations == {"Add": 8, "Replace": 4, "Put": 4}


def test_a_new_assignment_costs_the_evaluation_batch_and_a_known_one_nothing():
    _, stats, _, metric = search(budget=600, fresh_rows=False)
    trials = events(stats, "evaluated")
    spent = [0, *(t["rollouts"] for t in trials)]
    assert [b - a for a, b in itertools.pairwise(spent)] == [30] * len(trials)
    assert len({t["candidate"] for t in trials}) == len(trials), "an assignment was paid for twice"
    assert metric.calls == stats["counters"]["rollouts"] == 30 * len(trials)


def test_equal_rewards_keep_the_incumbent_and_patience_ends_the_search_without_a_charge():
    result, stats, _, metric = search(engine={"judge": "half"}, budget=600, patience=3, fresh_rows=False)
    assert stats["stop_reason"] == "converged" and len(events(stats, "map")) == 3
    assert metric.calls == 30 and Candidate.of(result).id == Candidate.of(GraphTeam(CHAIN)).id


def test_an_iteration_without_gain_is_followed_by_fresh_training_rows_while_the_budget_holds_them():
    for budget in (600, 45):
        _, stats, _, metric = search(engine={"judge": "half"}, train=90, budget=budget, patience=4)
        assert stats["stop_reason"] in ("converged", "budget") and len(events(stats, "evaluated")) == 1
        assert metric.calls == stats["counters"]["rollouts"] <= budget
        if budget == 600:
            assert 30 < metric.calls <= 30 + 3 * 10, "the anchor on other rows, nothing else"
    _, stats, _, metric = search(engine={"judge": "half"}, train=90, budget=600, preset="peer", eval_rows=30)
    assert metric.calls == 30, "training rows that decide stay the same"


def test_the_batch_is_a_third_training_rows_and_shrinks_with_the_budget():
    program, _, lm = team_world(CHAIN)
    with dspy.context(lm=lm):
        for budget, sizes in ((600, (10, 20)), (120, (7, 13)), (30, (3, 7))):
            context = context_for(program, lm, train=40, validation=40, budget=budget)
            method = MAPRO(max_rollouts=budget)
            train, validation = method.batch(context)
            assert (len(train), len(validation)) == sizes and method.minimum_budget(context) == 2 * sum(sizes)
            assert {r.id for r in train} <= {r.id for r in context.train}
            assert {r.id for r in validation} <= {r.id for r in context.validation}
        context = context_for(program, lm, train=40, validation=40, budget=600)
        assert [len(part) for part in MAPRO(preset="peer").batch(context)] == [40, 0]
    with pytest.raises(ConfigurationError, match="at least 20"):
        search(budget=19)


# -- what it decides -----------------------------------------------------------------------------------


def test_a_search_finds_every_rule():
    for edges in (CHAIN, DIAMOND):
        result, stats, _, _ = search(edges, budget=600, patience=6)
        assert stats["best_score"] == 1.0 and stats["stop_reason"] == "perfect"
        needs = {role: text.split()[-1] for role, text in solved(result).items()}
        assert all(needs[role] in p.signature.instructions for role, p in result.named_predictors())


@pytest.mark.parametrize("preset", ["paper", "peer"])
def test_presets_search_as_well(preset):
    _, stats, engine, _ = search(preset=preset, budget=400, patience=6)
    assert stats["best_score"] > stats["seed_score"] == 0.0
    asked = {field for field, _ in engine.asked}
    assert ("examples" in asked) == (preset == "paper")


class Script:
    """Scores by trial: every row of the n-th evaluated assignment gets the n-th score."""

    def __init__(self, scores, rows):
        self.scores, self.rows, self.calls = scores, rows, 0

    def __call__(self, example, prediction):
        score = self.scores[min(self.calls // self.rows, len(self.scores) - 1)]
        self.calls += 1
        return score


def test_patience_stops_after_the_third_flat_iteration():
    metric = Script([0.2, 0.3, 0.3, 0.3, 0.3, 0.9], 30)
    _, stats, _, _ = search(
        metric=metric, engine={"style": "fresh", "judge": "noise"}, budget=600, num_threads=1, patience=3,
        fresh_rows=False, seed=1,
    )  # fmt: skip
    assert [t["score"] for t in events(stats, "evaluated")] == [0.2, 0.3, 0.3, 0.3, 0.3]
    assert stats["stop_reason"] == "converged" and len(events(stats, "map")) == 4
    assert [c["score"] for c in events(stats, "committed")] == [0.2, 0.3]


def test_a_candidate_that_only_its_neighbours_keep_out_waits_in_the_next_pools():
    pools = {"a": [Member(("anchor",), "anchor"), Member(("new",), "edit"), Member(("poor",), "edit")]}

    def held(values, chosen, before=None):
        return held_back(pools, Rewards({"a": values}, {}, {}), {"a": chosen}, before or {})

    waits = {"a": pools["a"][1]}
    assert held([0.5, 0.9, 0.1], 0) == waits, "preferred, and not chosen"
    assert held([0.5, 0.9, 0.1], 1) == {}, "chosen"
    assert held([0.5, 0.5, 0.1], 0) == {}, "nothing speaks for it"
    assert held([0.5, 0.5, 0.1], 0, waits) == waits, "nothing speaks against who waits already"
    assert held([0.5, 0.4, 0.1], 0, waits) == {}
    assert held([0.5, 0.6, 0.7], 0, waits) == {"a": pools["a"][2]}, "a better one takes the place"
    assert held([0.5, 0.4], 0, {"a": Member(("gone",), "edit")}) == {}


def test_outputs_that_are_equal_are_judged_once_and_readers_that_behave_alike_are_one():
    """A judge's noise about texts that changed nothing must not move an assignment."""
    program, engine, lm = team_world(CHAIN, judge="noise")
    with dspy.context(lm=lm):
        context = context_for(program, lm, train=12, validation=4, budget=60)
        rows = context.evaluate(context.baseline, context.train[:4])
        calls = draw_contexts(context, rows, 2, "test")
        own = {role: (context.roles.text(context.baseline, role),) for role in context.roles.names}
        again = {role: (f"{texts[0]} Take care.",) for role, texts in own.items()}  # words that do nothing here
        pools = {role: [own[role], again[role], (f"{own[role][0]} [R01] [R02] [R03] [R04]",)] for role in own}
        for listwise in (False, True):
            engine.asked.clear()
            found = reward(context, context.graph(), context.baseline, pools, calls, Preferences(), listwise=listwise)
            for role, values in found.node.items():
                assert found.outputs[role][0] == found.outputs[role][1] != found.outputs[role][2]
                assert values[0] == values[1] != values[2]
            for table in found.edge.values():
                assert table[0] == table[1] and all(row[0] == row[1] for row in table)
            shown = [field_of(user, "candidate_instructions") for _, user in engine.asked if "candidate_inst" in user]
            assert shown and all("Take care" not in text for text in shown)


@pytest.mark.parametrize("anchor", ["best", "latest"])
def test_the_anchor_leads_every_pool_and_pools_hold_no_text_twice(anchor, monkeypatch):
    seen = []
    made = MAPRO.new_pools

    def watch(self, context, graph, candidate, *rest):
        pools = made(self, context, graph, candidate, *rest)
        seen.append((candidate, pools))
        return pools

    monkeypatch.setattr(MAPRO, "new_pools", watch)
    metric = Script([0.2, 0.3, 0.25, 0.2, 0.1, 0.1, 0.1], 30)
    _, stats, _, _ = search(
        metric=metric, engine={"style": "fresh", "judge": "noise"}, budget=240, num_threads=1, anchor=anchor, seed=1
    )
    trials = [t["candidate"] for t in events(stats, "evaluated")]
    best = trials[1]
    for number, (candidate, pools) in enumerate(seen, 1):
        assert candidate.id == (best if anchor == "best" else trials[number])
        for role, members in pools.items():
            assert members[0].operator == "anchor" and members[0].texts == (candidate.instructions[role],)
            assert len({m.texts for m in members}) == len(members) <= 5


def test_choice_and_feedback_use_different_rows():
    _, _stats, engine, _ = search(budget=200)
    feedback = [field_of(u, "team_feedback") for f, u in engine.asked if f == "new_instruction"]
    asked = {int(n) for text in feedback for n in re.findall(r"question (\d+)", text)}
    assert asked and max(asked) < 1000, "validation rows were shown to the rewriter"


@pytest.mark.parametrize("seed", range(20))
def test_with_true_rewards_the_choice_is_the_best_of_all_combinations(seed):
    rng = random.Random(seed)
    graph = RoleGraph(
        ("a", "b", "c", "b@2"),
        predictors={"b@2": ("b",)},
        edges=(("a", "b"), ("b", "c"), ("c", "b@2"), ("a", "c")),
        counts={"c": rng.choice([1, 2])},
    )
    sizes = {"a": 3, "b": 4, "c": 2}
    node = {r: [rng.uniform(0.2, 1) for _ in range(n)] for r, n in sizes.items()}
    pairs = [("a", "b"), ("b", "c"), ("c", "b"), ("a", "c")]
    edge = {(i, j): [[rng.choice([0.05, 0.9]) for _ in range(sizes[j])] for _ in range(sizes[i])] for i, j in pairs}

    def score(pick):
        value = math.prod(node[graph.role_of(n)][pick[graph.role_of(n)]] ** graph.counts[n] for n in graph.roles)
        for x, y in graph.edges:
            i, j = graph.role_of(x), graph.role_of(y)
            value *= edge[i, j][pick[i]][pick[j]] ** (graph.counts[x] * graph.counts[y])
        return value

    every = [dict(zip(sizes, pick, strict=True)) for pick in itertools.product(*(range(n) for n in sizes.values()))]
    chosen, found = best_assignment(graph, Rewards(node, edge, {}))
    assert chosen == max(every, key=score) and found.exact


def test_agents_that_read_each_other_are_judged_under_one_prompt():
    """A debate: the edge from a prompt to itself counts on its diagonal, once per pair of agents."""
    graph = RoleGraph(
        ("d", "d@2"), predictors={"d": ("d",), "d@2": ("d",)}, edges=(("d", "d@2"),), counts={"d": 3, "d@2": 3}
    )
    node = {"d": [1.0, 0.95]}
    friendly, hostile = Rewards(node, {("d", "d"): [[0.5, 0], [0, 0.6]]}, {}), Rewards(node, {}, {})
    assert best_assignment(graph, friendly)[0] == {"d": 1}
    assert best_assignment(graph, hostile)[0] == {"d": 0}


def test_tables_are_scaled_to_one():
    assert normalised([[0.2, 0.4]]) == [[0.5, 1.0]]
    assert normalised([[0.0, 0.0]]) == [[1.0, 1.0]], "a judge that gives nobody anything says nothing"
    assert normalised([]) == []


# -- rewards -------------------------------------------------------------------------------------------


def test_probes_ask_the_recorded_inputs_and_the_anchor_is_not_asked_again():
    program, engine, lm = team_world(CHAIN)
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        rows = context.evaluate(context.baseline, context.train[:6])
        calls = draw_contexts(context, rows, 3, 1)
        assert {role: len(found) for role, found in calls.items()} == dict.fromkeys("abcd", 3)
        before = engine.calls
        texts = solved(program)
        pools = {role: [context.roles.texts(context.baseline, role), (texts[role],)] for role in "abcd"}
        outputs = probe(context, context.baseline, pools, calls)
    assert engine.calls - before == 4 * 3 == context.ledger.counts["probe_calls"]
    assert context.ledger.spent == 6
    for role in "abcd":
        recorded = [f"out: {call.prediction.out}" for call in calls[role]]
        assert outputs[role][0] == recorded
        assert all(("lacks" not in new) or ("lacks" in call.inputs["message"])
                   for new, call in zip(outputs[role][1], calls[role], strict=True))  # fmt: skip


def test_a_role_that_was_never_called_has_equal_candidates():
    program, _engine, lm = team_world(CHAIN)
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        rows = context.evaluate(context.baseline, context.train[:3], active=frozenset("abd"))
        calls = draw_contexts(context, rows, 3, 1)
        pools = {
            role: [context.roles.texts(context.baseline, role), (f"You are the {role}. [R09]",)] for role in "abcd"
        }
        found = reward(context, program.role_graph(), context.baseline, pools, calls, Preferences())
    assert calls["c"] == [] and found.node["c"] == [1.0, 1.0] and found.first_outputs("c") == []
    assert ("c", "d") not in found.edge and ("a", "b") in found.edge


def test_an_output_that_cannot_be_read_is_worth_nothing():
    program, _engine, lm = team_world(CHAIN)
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        rows = context.evaluate(context.baseline, context.train[:3])
        calls = draw_contexts(context, rows, 3, 1)
        pools = {role: [context.roles.texts(context.baseline, role), ("You are broken.",)] for role in "abcd"}
        context.probe = lambda candidate, call: None
        found = reward(context, program.role_graph(), context.baseline, pools, calls, Preferences())
    assert all(found.node[role][1] == 0.0 and found.node[role][0] > 0 for role in "abcd")
    assert best_assignment(program.role_graph(), found)[0] == dict.fromkeys("abcd", 0)


def test_without_edges_no_handoff_is_judged():
    _, _stats, engine, _ = search(edge_power=0, budget=120)
    assert not any(f == "scores" for f, _ in engine.asked)
    _, _stats, engine, _ = search(edge_power=0.5, budget=120)
    assert any(f == "scores" for f, _ in engine.asked)


def test_edges_from_execution_show_what_the_reader_makes_of_a_message():
    program, _engine, lm = team_world(CHAIN)
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        base = context.baseline.with_instructions(solved(program, "bcd"))
        rows = context.evaluate(base, context.train[:8])
        calls = draw_contexts(context, rows, 8, 1)
        pools = {r: [context.roles.texts(base, r)] for r in "cd"}
        pools["a"] = [context.roles.texts(base, "a"), (solved(program)["a"],), ("You are the a. Worse.",)]
        pools["b"] = [context.roles.texts(base, "b"), ("You are the b. Do your part.",)]
        before = context.ledger.spent
        found = run_edges(context, program.role_graph(), base, pools, calls, rows, Preferences())
    assert context.ledger.spent == before, "no rollout is taken"
    table = found["a", "b"]
    assert len(table) == 3 and all(len(line) == 2 for line in table)
    assert table[1][0] == pytest.approx(0.9), "both have their rule: every reader output is fine"
    assert max(max(line) for line in table) == table[1][0]
    assert table[1][1] < table[1][0] > table[0][0] and table[0][1] < table[1][1] + 1e-9
    assert set(found) == {("a", "b"), ("b", "c"), ("c", "d")}


def test_a_message_that_nobody_read_says_nothing_about_an_edge():
    program, _engine, lm = team_world(CHAIN)
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        rows = context.evaluate(context.baseline, context.train[:3], active=frozenset("acd"))
        calls = draw_contexts(context, rows, 3, 1)
        pools = {r: [context.roles.texts(context.baseline, r)] for r in "abcd"}
        found = run_edges(context, program.role_graph(), context.baseline, pools, calls, rows, Preferences())
    assert set(found) == {("c", "d")}


def test_a_search_may_run_its_edges():
    _, stats, engine, metric = search(edges=CHAIN, budget=200, patience=3, method_edges="run")
    assert not any(f == "scores" for f, _ in engine.asked) and stats["best_score"] > stats["seed_score"]
    assert metric.calls == stats["counters"]["rollouts"]


# -- examples for the judge ------------------------------------------------------------------------------


def test_examples_are_few_balanced_and_newest_first():
    demos = Preferences()
    assert demos.shown("a") == "(none)"
    for n in range(10):
        demos.add("a", True, f"good {n}", "r")
    demos.add("a", False, "bad 0", "r")
    assert len(demos.of("a")) == 7
    assert demos.shown("a").splitlines() == ["good: good 9 (r)", "bad: bad 0 (r)", "good: good 8 (r)"]
    demos.add("a", False, "good 9", "changed my mind")
    assert not [e for e in demos.of("a") if e.output == "good 9" and e.good]
    demos.add("a", True, "x" * 5000, "y" * 5000)
    assert all(len(e.output) <= 400 and len(e.reason) <= 200 for e in demos.of("a"))


@pytest.mark.parametrize(
    ("success", "rewards", "polarity"),
    [
        (0.5, [0.8, 0.9], {"one": True}),
        (0.4, [0.8, 0.9], {}),
        (0.9, [0.7, 0.9], {}),
        (0.9, [0.8, 0.3], {"one": True, "two": False}),
        (0.1, [0.2, 0.4], {"two": False}),
    ],
)
def test_the_deterministic_critic(success, rewards, polarity):
    demos = Preferences()
    deterministic(demos, "a", ["one", "two"], rewards, 0, success)
    assert {e.output: e.good for e in demos.of("a")} == polarity


def test_contrast_pairs_come_from_the_same_example():
    program, _engine, lm = team_world(CHAIN)
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        worse = context.evaluate(context.baseline, context.train[:4])
        better = context.evaluate(context.baseline.with_instructions(solved(program, "ab")), context.train[:4])
    demos = Preferences()
    contrast(demos, program.order, worse, better)
    for role in "ab":
        assert {e.good for e in demos.of(role)} == {True, False}
        assert any(f"lacks {role}" in e.output for e in demos.of(role) if not e.good)
    same = Preferences()
    contrast(same, program.order, worse, worse)
    assert same.of("a") == []


def test_examples_reach_the_judge():
    _, _, engine, _ = search(critic="contrast", budget=300, patience=6)
    shown = [field_of(user, "examples") for field, user in engine.asked if field == "score"]
    assert shown[0] == "(none)" and any("good:" in text and "bad:" in text for text in shown)


@pytest.mark.parametrize(
    "options",
    [
        {"choice": "x"},
        {"judge": "x"},
        {"critic": "x"},
        {"anchor": "x"},
        {"preset": "x"},
        {"pool": 0},
        {"eval_rows": -1},
    ],
)
def test_unusable_options_are_named(options):
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        MAPRO(metric=CountingMetric(), **options)
