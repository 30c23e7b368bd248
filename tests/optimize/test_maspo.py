"""MASPO: one role at a time, judged for role, readers and team; beam, buffers and refresh keep their promises."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import dspy
import pytest

from metrics.errors import ConfigurationError
from optimize import MASPO
from optimize.beam import Node, best_nodes
from optimize.candidates import Candidate
from optimize.improve import in_parts
from optimize.joint import Sample, compare_runs, misaligned, misalignment, remember, win_rate
from optimize.methods import maspo
from optimize.rows import Row
from tests.support.graphs import (
    CHAIN,
    DIAMOND,
    STAR,
    GraphTeam,
    TeamEngine,
    context_for,
    field_of,
    solved,
    team_world,
)
from tests.support.rules import CountingMetric, questions, sim_lm

W = (0.4, 0.4, 0.2)


def search(edges=CHAIN, budget=600, metric=None, train=30, validation=20, engine=None, lm=None, **options):
    program, made, model = team_world(edges, **(engine or {}))
    metric = metric or CountingMetric()
    options.setdefault("final_gate", False)
    with dspy.context(lm=lm or model):
        result = MASPO(metric=metric, prompt_model=lm or model, max_rollouts=budget, **options).compile(
            program, trainset=questions(train), valset=questions(validation, 1000)
        )
    return result, result.optimizer_stats, made, metric


def events(stats, name):
    return [entry for entry in stats["history"] if entry["event"] == name]


def sample(n, local=0.5, following=0.5, total=0.5):
    row = Row(example=None, id=str(n), score=0.0)
    return Sample(row, row, local, following, total)


# -- the parts -----------------------------------------------------------------------------------------


def test_the_truth_table_of_misalignment():
    found = {
        (local, nxt, total): misalignment(bool(local), not nxt, not total)
        for local, nxt, total in itertools.product((0, 1), repeat=3)
    }
    assert [key for key, priority in found.items() if priority is not None] == [(1, 0, 0), (1, 0, 1), (1, 1, 0)]
    assert (found[1, 0, 0], found[1, 0, 1], found[1, 1, 0]) == (0, 1, 2)
    assert sample(1, 1, 0, 0).priority == 0 and sample(1, 1, 0.5, 0.5).priority is None


def test_the_win_rate_is_the_weighted_mean_and_a_role_without_readers_counts_final_answers_only():
    samples = [sample(1, 1, 0, 0), sample(2, 1, 1, 0.5)]
    assert win_rate(samples, W) == pytest.approx(0.4 * 1 + 0.4 * 0.5 + 0.2 * 0.25)
    assert win_rate([sample(n, None, None, t) for n, t in enumerate((1, 1, 0.5))], W) == pytest.approx(2.5 / 3)
    assert win_rate([], W) == 0.5
    assert win_rate([sample(1, 1, None, 1)], W) == pytest.approx(0.4 + 0.2 + 0.2), "missing comparisons are ties"


def test_a_beam_is_sorted_without_repetitions_and_parents_come_first():
    nodes = [Node(("p",), 0.2), Node(("q",), 0.1), Node(("p",), 0.2), Node(("r",), 0.2), Node(("q",), 0.3)]
    assert [(n.texts[0], n.cum) for n in best_nodes(nodes, 2)] == [("q", 0.3), ("p", 0.2)]
    assert len(best_nodes(nodes, 9)) == 3


def test_buffers_keep_the_newest_three_and_the_worst_kind_first():
    buffer = []
    remember(buffer, misaligned([sample(1, 1, 1, 0), sample(2, 1, 0, 0), sample(3, 0, 0, 0), sample(4, 1, 0, 1)]))
    assert [s.row.id for s in buffer] == ["2", "4", "1"]
    remember(buffer, [sample(5, 1, 0, 0), sample(4, 1, 0, 0)])
    assert [s.row.id for s in buffer] == ["5", "4", "2"]
    remember(buffer, [])
    assert len(buffer) == 3


def test_a_batch_is_cut_into_equal_parts_in_order():
    rows = [Row(example=None, id=str(n), score=0.0) for n in range(5)]
    assert [[r.id for r in part] for part in in_parts(rows, 2)] == [["0", "1"], ["2", "3", "4"]]
    assert in_parts(rows[:1], 2) == [rows[:1]] and in_parts([], 2) == []


def both_runs(program, lm, texts, n=4):
    context = context_for(program, lm)
    base = context.evaluate(context.baseline, context.train[:n])
    return context, list(
        zip(base, context.evaluate(context.baseline.with_instructions(texts), context.train[:n]), strict=True)
    )


def test_joint_evaluation_compares_the_role_its_readers_and_the_score():
    program, engine, lm = team_world(CHAIN)
    with dspy.context(lm=lm):
        context, runs = both_runs(program, lm, {"b": solved(program)["b"]})
        found = compare_runs(context, "b", ["c"], runs, weights=W, terminal=False)
    assert len(found) == 4 and all(s.row.id == s.base.id for s in found)
    better = [s for s in found if s.total == 1.0]
    assert len(better) == 1 and better[0].local == better[0].next == 1.0
    assert all((s.local, s.next, s.total) == (0.5, 0.5, 0.5) for s in found if s is not better[0])
    shown = {field_of(user, "role") for field, user in engine.asked if field == "better"}
    assert shown == {"b", "c"}


def test_the_reward_of_a_role_with_several_readers_is_their_mean():
    program, _engine, lm = team_world(DIAMOND)
    with dspy.context(lm=lm):
        context, runs = both_runs(program, lm, {"a": solved(program)["a"]})
        found = compare_runs(context, "a", ["b", "c"], runs, weights=W, terminal=False)
    assert sorted(s.next for s in found) == [0.5, 0.5, 0.5, 1.0]


def test_a_role_without_readers_is_not_compared_by_its_outputs():
    program, engine, lm = team_world(CHAIN)
    with dspy.context(lm=lm):
        context, runs = both_runs(program, lm, {"d": solved(program)["d"]})
        found = compare_runs(context, "d", [], runs, weights=W, terminal=True)
        assert not engine.asked
        judged = compare_runs(context, "d", [], runs, weights=W, terminal=True, signal="judge")
    assert [s.total for s in found] == [0.5, 0.5, 0.5, 1.0] == [s.total for s in judged]
    assert all(s.local is None for s in found)
    assert len(engine.asked) == 2, "equal answers are not asked about, others in both orders"


def test_comparisons_without_weight_are_not_made_and_lost_rows_are_left_out():
    program, engine, lm = team_world(CHAIN)
    with dspy.context(lm=lm):
        context, runs = both_runs(program, lm, {"b": solved(program)["b"]})
        compare_runs(context, "b", ["c"], runs, weights=(0.7, 0.0, 0.3), terminal=False)
        assert {field_of(user, "role") for _, user in engine.asked} == {"b"}
        runs[0][0].score = None
        assert len(compare_runs(context, "b", ["c"], runs, weights=W, terminal=False)) == 3


@pytest.mark.parametrize("kind", ["first", "garbage", "empty", "half"])
def test_a_biased_or_broken_judge_credits_nobody(kind):
    program, _engine, lm = team_world(CHAIN, judge=kind)
    with dspy.context(lm=lm):
        context, runs = both_runs(program, lm, {"b": solved(program)["b"]})
        found = compare_runs(context, "b", ["c"], runs, weights=W, terminal=False, signal="judge")
    assert win_rate(found, W) == 0.5 and misaligned(found) == []


# -- the search ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("edges", [CHAIN, DIAMOND, STAR])
def test_a_search_finds_every_rule(edges):
    result, stats, _, _ = search(edges, budget=900)
    assert stats["best_score"] == 1.0 and stats["stop_reason"] == "perfect"
    needs = {role: text.split()[-1] for role, text in solved(result).items()}
    assert all(needs[role] in p.signature.instructions for role, p in result.named_predictors())


@pytest.mark.parametrize("preset", ["paper", "peer"])
def test_presets_move_the_team_as_well(preset):
    result, stats, engine, _ = search(preset=preset, budget=240)
    assert (
        stats["anchor"]["instructions"]
        == Candidate.of(result).instructions
        != Candidate.of(GraphTeam(CHAIN)).instructions
    )
    assert stats["best_score"] is None
    runs = [field_of(user, "runs") for field, user in engine.asked if field == "new_instruction"]
    assert all(("outcome:" in text) == (preset == "peer") for text in runs), "without labels no score is shown"


class Watched(maspo._Search):
    """Records every step and refresh of a search."""

    def __init__(self, *args):
        super().__init__(*args)
        self.log.extra["watched"] = self.watched = []

    def step(self, role):
        state, spent = self.states[role], self.context.ledger.spent
        before, layer, best = list(state.beam), state.layers, state.best
        batch, injected = self.draw_batch(role)
        senders = self.neighbours(role, "parents")
        misled = {s.row.id for sender in senders for s in self.states[sender].misled}
        going = super().step(role)
        self.watched.append(dict(
            kind="step", role=role, layer=layer, before=before, beam=list(state.beam), going=going,
            spent=self.context.ledger.spent - spent, batch=[r.id for r in batch], injected=injected, misled=misled,
            best=(best, state.best), anchor=self.context.roles.texts(self.anchor, role),
        ))  # fmt: skip
        return going

    def refresh(self, role):
        spent, anchor = self.context.ledger.spent, self.context.roles.texts(self.anchor, role)
        before = list(self.states[role].beam)
        super().refresh(role)
        self.watched.append(dict(
            kind="refresh", role=role, anchor=anchor, beam=list(self.states[role].beam), before=before,
            best=self.states[role].best, spent=self.context.ledger.spent - spent,
            after=self.context.roles.texts(self.anchor, role),
        ))  # fmt: skip


@pytest.fixture
def watched(monkeypatch):
    monkeypatch.setattr(maspo, "_Search", Watched)

    def run(**options):
        _result, stats, engine, metric = search(**options)
        return stats["watched"], stats, engine, metric

    return run


@pytest.fixture(scope="module")
def noisy():
    """A search with a judge without an opinion of its own, past its first refreshes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maspo, "_Search", Watched)
        _result, stats, engine, metric = search(
            engine={"judge": "noise", "style": "fresh"}, budget=800, batch=10, orders="hashed", choice_rows=0, train=40
        )
    return stats["watched"], stats, engine, metric


def test_steps_keep_beam_batch_price_and_values(noisy):
    seen, _stats, _engine, metric = noisy
    steps = [s for s in seen if s["kind"] == "step"]
    assert len(steps) > 12 and metric.calls <= 800
    for step in steps:
        assert step["spent"] <= 60
        assert len(step["beam"]) <= 2 and len({n.texts for n in step["beam"]}) == len(step["beam"])
        assert [n.cum for n in step["beam"]] == sorted((n.cum for n in step["beam"]), reverse=True)
        assert len(step["batch"]) == len(set(step["batch"])) == 10
        assert len(step["injected"]) <= 5 and step["injected"] <= step["misled"]
        assert set(step["batch"][: len(step["injected"])]) == step["injected"], "injected rows come first"
        known = {n.texts: n.cum for n in step["before"]}
        for node in step["beam"]:
            if node.texts in known and node.cum == known[node.texts]:
                continue
            gain = node.path[-1]
            assert 0 < gain <= 0.5
            assert any(node.cum == pytest.approx(parent.cum + gain) for parent in step["before"])
        old, new = step["best"]
        assert new.cum >= old.cum - 1e-12, "the best value falls only at a refresh"
        assert step["anchor"] == new.texts
    assert any(step["injected"] for step in steps)
    assert not any(step["injected"] for step in steps if step["role"] == "a"), "a source has no senders"


def test_roles_take_turns_in_topological_order_with_three_steps_each_and_nine_in_all(watched):
    seen, stats, _engine, _ = watched(
        edges=DIAMOND, engine={"style": "same"}, budget=3000, batch=4, choice_rows=0, final_gate=False
    )
    steps = [(s["role"], s["layer"]) for s in seen if s["kind"] == "step"]
    assert Counter(role for role, _ in steps) == {"a": 9, "b": 9, "c": 9, "d": 9}
    cycle = [(role, layer) for role in "abcd" for layer in (0, 1, 2)]
    assert steps[:12] == cycle and steps[12:15] == [("a", 3), ("a", 4), ("a", 5)]
    assert stats["stop_reason"] == "layers"


def test_an_unchanged_proposal_is_worth_nothing_and_costs_nothing(watched):
    seen, stats, _engine, metric = watched(engine={"style": "same"}, budget=400, batch=5, choice_rows=0)
    assert not events(stats, "proposed")
    assert all(step["spent"] <= 5 for step in seen if step["kind"] == "step"), "the parent's own runs only"
    assert metric.calls == stats["counters"]["rollouts"]


def test_a_refresh_pins_the_anchor_at_zero_and_looks_at_no_reader(noisy):
    seen, stats, engine, _ = noisy
    refreshes = [s for s in seen if s["kind"] == "refresh"]
    assert len(refreshes) >= 2
    for refresh in refreshes:
        assert refresh["spent"] <= 30 and len(refresh["beam"]) <= 2
        mine = [n.cum for n in refresh["beam"] if n.texts == refresh["anchor"]]
        assert mine in ([0.0], []), "the anchor's node is worth exactly 0"
        assert all(-0.5 <= n.cum <= 0.5 for n in refresh["beam"])
        moved = refresh["after"] != refresh["anchor"]
        assert moved == (refresh["best"].texts != refresh["anchor"])
        assert not moved or refresh["best"].cum > 1e-6
    assert len(stats["refresh_agreement"]) <= len(refreshes)
    assert engine.asked


def test_no_lookahead_while_refreshing():
    program, engine, lm = team_world(CHAIN)
    with dspy.context(lm=lm):
        context = context_for(program, lm, train=20)
        context.method = "maspo"
        run = maspo._Search(MASPO(metric=CountingMetric(), batch=6), context)
        run.graph, run.roles = program.role_graph(), list("abcd")
        run.states = {role: run.first_state(role) for role in run.roles}
        run.states["b"].beam.append(Node((solved(program)["b"],), 0.4))
        run.states["b"].layers = 3
        run.refresh("b")
    assert {field_of(user, "role") for field, user in engine.asked if field == "better"} == {"b"}
    assert (
        run.states["b"].best.texts == (solved(program)["b"],) and run.anchor.instructions["b"] == solved(program)["b"]
    )
    assert run.states["b"].best.cum == run.states["b"].beam[0].cum <= 0.5


class TrapEngine(TeamEngine):
    """A decoy at `b`: with the tag [R66] its outputs look better and the reader `c` breaks on them."""

    def act(self, system, user):
        said = super().act(system, user)
        role = re.search(r"You are the (\w+)", system)[1]
        if role == "b" and "[R66]" in system:
            return said.replace("bad", "shiny ok by b, bad").replace("ok by b", "SHINY ok by b", 1)
        if role == "c" and "SHINY" in field_of(user, "message"):
            return f"bad lacks c:[R77] by {role} 0"
        return said

    def better(self, user, seed):
        a, b = field_of(user, "output_a"), field_of(user, "output_b")
        if ("SHINY" in a) != ("SHINY" in b):
            return "A" if "SHINY" in a else "B"
        return super().better(user, seed)

    def edited(self, current, user, seed):
        if "You are the b" in current and "[R66]" not in current:
            return f"{current} [R66]"
        return super().edited(current, user, seed)


def trap(**options):
    engine = TrapEngine(needs={}, style="same")
    program = GraphTeam((("a", "b"), ("b", "c")))
    with dspy.context(lm=sim_lm(engine)):
        return MASPO(
            metric=CountingMetric(), prompt_model=sim_lm(engine), max_rollouts=400, batch=10, choice_rows=0,
            final_gate=False, layers=3, **options,
        ).compile(program, trainset=questions(30), valset=questions(10, 1000)), engine  # fmt: skip


def test_a_change_that_shines_alone_and_breaks_its_reader_is_rejected_and_comes_back_to_the_reader(monkeypatch):
    monkeypatch.setattr(maspo, "_Search", Watched)
    result, _engine = trap()
    assert "[R66]" not in result.b.signature.instructions
    stats = result.optimizer_stats
    assert stats["misaligned"]["b"], "the misaligned samples are in the buffer of b"
    reader = next(s for s in stats["watched"] if s["kind"] == "step" and s["role"] == "c")
    assert reader["injected"] and reader["injected"] <= set(stats["misaligned"]["b"])
    rates = {(r["role"]): r["rate"] for r in stats["misalignment"] if r["layer"] == 0}
    assert rates["b"] == 1.0


def test_looking_at_the_role_alone_walks_into_the_trap():
    result, _engine = trap(weights=(1.0, 0.0, 0.0), refresh_weights=(1.0, 0.0))
    assert "[R66]" in result.b.signature.instructions


def test_samples_of_rejected_proposals_are_kept_unless_told_otherwise():
    result, _engine = trap(mislead_on_accept_only=True)
    assert result.optimizer_stats["misaligned"]["b"] == []


def test_a_reader_s_trouble_reaches_the_proposer_of_its_sender():
    _, _, engine, _ = search(budget=500, engine={"judge": "noise", "style": "fresh"}, choice_rows=0, batch=6, train=40)
    shown = [field_of(user, "readers_trouble") for field, user in engine.asked if field == "new_instruction"]
    assert any(re.search(r"### 1\n[bcd] for the task:", text) for text in shown) and "(none)" in shown


def test_only_what_changed_is_executed_again_and_a_fractional_price_credits_it():
    spent = {}
    for price in ("full", "fractional"):
        _, stats, _engine, metric = search(price=price, budget=90, engine={"judge": "half"}, choice_rows=0, batch=10)
        counters = stats["counters"]
        assert counters["cached_node_calls"] > 0
        spent[price] = counters["spent"]
        assert metric.calls == counters["rollouts"] >= counters["spent"]
        assert counters["node_calls"] + counters["cached_node_calls"] == 4 * counters["rollouts"]
    _, full, _, _ = search(price="full", budget=60, engine={"judge": "half"}, choice_rows=0, batch=10)
    assert full["counters"]["spent"] == full["counters"]["rollouts"]
    assert spent["fractional"] <= 90


def test_a_moved_team_is_scored_after_each_turn_and_the_best_one_is_returned():
    _result, stats, _, _ = search(budget=500, engine={"judge": "noise"}, batch=10, choice_rows=10)
    scores = [c["score"] for c in events(stats, "committed")]
    assert scores == sorted(set(scores)) and stats["best_score"] == scores[-1]
    validation = [e for e in events(stats, "evaluated") if e["split"] == "validation"]
    assert all(e["rows"] == 10 for e in validation)
    assert len({e["candidate"] for e in validation}) == len(validation)


def test_batches_follow_the_budget():
    program, _engine, lm = team_world(CHAIN)
    with dspy.context(lm=lm):
        context = context_for(program, lm, train=40, validation=40, budget=600)
        assert MASPO()._batch(context) == 6 and MASPO(batch=10)._batch(context) == 10
        assert MASPO(beam=1, proposals=1)._batch(context) == 10
        assert MASPO().minimum_budget(context) == 2 * (6 + 10)
        small = context_for(program, lm, train=40, validation=40, budget=60)
        assert MASPO().minimum_budget(small) == 2 * (4 + 5)
        assert MASPO(preset="paper").minimum_budget(small) == 2 * 10
        tiny = context_for(program, lm, train=2, validation=40, budget=60)
        assert MASPO()._batch(tiny) == 2
    with pytest.raises(ConfigurationError, match="at least 16"):
        search(budget=15)


@pytest.mark.parametrize(
    "options",
    [
        {"global_signal": "x"},
        {"orders": "x"},
        {"price": "x"},
        {"preset": "x"},
        {"beam": 0},
        {"weights": (1, 1, 1)},
        {"weights": (1, 0)},
        {"refresh_weights": (1.5, -0.5)},
    ],
)
def test_unusable_options_are_named(options):
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        MASPO(metric=CountingMetric(), **options)
