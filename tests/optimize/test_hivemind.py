"""HiveMind: coalitions cost what the counts say, credit obeys the game, lessons stay only when they help."""

from __future__ import annotations

import itertools
import math
import random

import dspy
import pytest

from metrics.errors import ConfigurationError
from optimize import HiveMind
from optimize.candidates import Candidate
from optimize.coalitions import Credit, Game, assess, make_plan, resolve_mode
from optimize.methods.hivemind import HEADING, bottleneck, lessons_in, parse_lessons, with_lessons
from optimize.records import Records
from optimize.replay import ReplayCache
from optimize.shapley import coalitions, is_viable
from programs.role_graph import RoleGraph
from tests.support.graphs import (
    CHAIN,
    DESK,
    DIAMOND,
    SKIP,
    STAR,
    GraphTeam,
    context_for,
    field_of,
    solved,
    team_world,
)
from tests.support.rules import CountingMetric, questions

TABLE = [
    (CHAIN, 32, 4, 10, 4, 4),
    (DIAMOND, 32, 10, 12, 6, 6),
    (STAR, 32, 19, 11, 10, 10),
    (DESK, 448, 217, 84, 73, 73),
    (SKIP, 32, 12, 12, 7, 5),
]


def game_of(graph, fixed=(), counts=None):
    """The game of a graph without a program behind it."""
    graph = RoleGraph(graph.roles, graph.predictors, graph.edges, counts or graph.counts)
    owner = {}
    for role in graph.base_roles:
        n = graph.counts[role]
        owner |= {} if role in fixed else dict.fromkeys([role] if n == 1 else [f"{role}::{k}" for k in range(n)], role)
    return Game(graph, tuple(owner), owner, frozenset(fixed))


def solve(game, mode, value, rows=1, **plan):
    """The credit of a game whose coalitions are worth `value(coalition, row)`."""
    made = make_plan(game, mode, rng=random.Random(0), **plan)
    scores = {run: [float(value(run, t)) for t in range(rows)] for run in made.runs}
    games = [
        made.values(lambda s, t=t: 0.0 if (run := made.run_for(s)) is None else scores[run][t]) for t in range(rows)
    ]
    phi_rows = {p: [g[p] for g in games] for p in game.players}
    phi = {p: math.fsum(v) / rows for p, v in phi_rows.items()}
    return Credit(made, phi, {}, phi_rows, {run: math.fsum(v) / rows for run, v in scores.items()})


# -- coalitions cost what they should ---------------------------------------------------------------


@pytest.mark.parametrize(("edges", "naive", "pruned", "memo", "both", "live"), TABLE)
def test_the_published_call_counts_are_met_exactly_by_running_programs(edges, naive, pruned, memo, both, live):
    def calls(masks, reuse):
        program, engine, lm = team_world(edges)
        with dspy.context(lm=lm):
            context = context_for(program, lm)
            context.evaluate.replay = ReplayCache(reuse=reuse)
            for mask in masks:
                context.evaluate(context.baseline, context.train[:1], active=frozenset(mask))
        assert context.ledger.counts["node_calls"] == engine.calls
        return engine.calls

    graph = GraphTeam(edges).role_graph()
    every = coalitions(graph.roles)
    viable = [s for s in every if is_viable(graph, s)]
    assert calls(every, False) == naive
    assert calls(viable, False) == pruned
    assert calls(every, True) == memo
    assert calls(viable, True) == both
    game = game_of(graph)
    assert calls({game.live(s) for s in viable}, True) == live


@pytest.mark.parametrize(("edges", "live"), [(row[0], row[-1]) for row in TABLE])
def test_credit_of_a_pruned_team_takes_exactly_these_calls(edges, live):
    program, engine, lm = team_world(edges)
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        game = Game.of(context, program.role_graph())
        plan = make_plan(game, "prune", credit="exact", rng=random.Random(0))
        credit = assess(Records(context), plan, context.baseline, context.train[:2])
    assert engine.calls == 2 * live
    assert context.ledger.spent == 2 * len(plan.runs)
    assert sum(credit.phi.values()) == pytest.approx(credit.total)


@pytest.mark.parametrize("edges", [SKIP, DIAMOND, DESK])
def test_members_that_reach_no_sink_change_nothing(edges):
    program, _engine, lm = team_world(edges)
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        game = Game.of(context, program.role_graph())
        candidate = context.baseline.with_instructions(solved(program, program.order[::2]))
        for members in coalitions(game.players):
            live = game.live(members)
            if live is None or live == members:
                continue
            scores = [
                [row.score for row in context.evaluate(candidate, context.train[:4], active=mask)]
                for mask in (members, live)
            ]
            assert scores[0] == scores[1]


def test_a_masked_role_is_never_called_and_never_a_source_of_messages():
    program, engine, lm = team_world(DIAMOND)
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        context.evaluate(context.baseline, context.train[:3], active=frozenset("acd"))
    assert engine.seen["b"] == 0 and engine.seen["c"] == 3
    assert not any("You are the b" in text or "by b" in text for text in engine.texts)


def test_bypass_passes_messages_on_and_a_placeholder_does_not():
    from optimize.coalitions import bypass_fields
    from optimize.replay import BYPASS

    program, engine, lm = team_world(CHAIN)
    graph = program.role_graph()
    assert bypass_fields(graph) == {"b": ("message",), "c": ("message",), "d": ("message",)}
    seen = {}
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        for mode in ("placeholder", "bypass"):
            with dspy.context(**({BYPASS: bypass_fields(graph)} if mode == "bypass" else {})):
                engine.texts.clear()
                context.evaluate(context.baseline, context.train[:1], active=frozenset("acd"))
                seen[mode] = field_of(next(t for t in engine.texts if "You are the c" in t), "message")
    assert seen["placeholder"] == "" and "by a" in seen["bypass"]


# -- the game ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("edges", [CHAIN, DIAMOND, STAR, SKIP])
@pytest.mark.parametrize("mode", ["prune", "placeholder"])
def test_sampled_credit_is_efficient_capped_and_unbiased(edges, mode):
    graph = GraphTeam(edges).role_graph()
    game, rng = game_of(graph), random.Random(2)
    worth = {s: rng.random() for s in coalitions(game.players)}
    exact = solve(game, mode, lambda s, t: worth[s], credit="exact")
    assert sum(exact.phi.values()) == pytest.approx(exact.total)
    for cap in (1, 5, 8):
        plan = make_plan(game, mode, credit="permutation", cap=cap, rng=random.Random(1))
        one_order = len(game.players)
        assert len(plan.runs) <= max(cap, one_order) and plan.orders
        sampled = solve(game, mode, lambda s, t: worth[s], credit="permutation", cap=cap)
        assert sum(sampled.phi.values()) == pytest.approx(sampled.total)
    from optimize.shapley import permutation_values

    def value(s):
        run = exact.plan.run_for(s)
        return 0.0 if run is None else worth[run]

    everything = permutation_values(game.players, value, list(itertools.permutations(game.players)))
    assert everything == pytest.approx(exact.phi)


def test_rows_have_orders_of_their_own_for_the_same_price_and_each_row_is_shared_out_exactly():
    program, _, lm = team_world(DESK)
    with dspy.context(lm=lm):
        context = context_for(program, lm, budget=600)
        game, rows = Game.of(context, program.role_graph()), context.train[:4]
        plan = make_plan(game, "prune", cap=12, rng=random.Random(3), groups=4)
        credit = assess(Records(context), plan, context.baseline, rows)
    everyone = frozenset(game.players)
    assert (
        len({plan.groups[t] for t in range(4)}) == 4
        and plan.groups == make_plan(game, "prune", cap=12, rng=random.Random(3), groups=4).groups
    )
    assert all(len(plan.runs_of(t)) <= 12 and everyone in plan.runs_of(t) for t in range(4))
    assert context.ledger.spent == plan.cost(4) == sum(len(plan.runs_of(t)) for t in range(4)) <= 4 * 12
    assert set(plan.runs) == {run for t in range(4) for run in plan.runs_of(t)}, "more of the game is seen"
    assert len(plan.runs) > 12
    for t, row in enumerate(credit.full):
        assert math.fsum(values[t] for values in credit.phi_rows.values()) == pytest.approx(row.score)
    exact = make_plan(game, "prune", cap=49, rng=random.Random(0), groups=4)
    assert exact.orders is None and exact.cost(4) == 4 * 49


def test_exact_when_it_fits_the_cap_else_sampled():
    game = game_of(GraphTeam(DESK).role_graph())
    assert make_plan(game, "prune", cap=40, rng=random.Random(0)).orders is not None
    assert make_plan(game, "prune", cap=49, rng=random.Random(0)).orders is None
    assert len(make_plan(game, "prune", credit="exact", cap=1, rng=random.Random(0)).runs) == 49
    assert len(make_plan(game_of(GraphTeam(CHAIN).role_graph()), "prune", rng=random.Random(0)).runs) == 1
    assert len(make_plan(game_of(GraphTeam(CHAIN).role_graph()), "placeholder", rng=random.Random(0)).runs) == 15


def test_too_many_players_are_sampled():
    game = game_of(RoleGraph(tuple(f"r{n}" for n in range(16))))
    assert make_plan(game, "placeholder", rng=random.Random(0)).orders
    with pytest.raises(ConfigurationError, match="permutation"):
        make_plan(game, "placeholder", credit="exact", rng=random.Random(0))


def test_auto_prunes_only_where_pruning_can_tell_roles_apart():
    modes = {edges: resolve_mode("auto", "phi", game_of(GraphTeam(edges).role_graph())) for edges, *_ in TABLE}
    assert modes[STAR] == modes[DESK] == ("prune", "adjusted")
    assert modes[CHAIN] == modes[DIAMOND] == modes[SKIP] == ("placeholder", "phi")
    assert resolve_mode("prune", "phi", game_of(GraphTeam(CHAIN).role_graph())) == ("prune", "phi")


def test_agents_that_share_a_prompt_are_players_and_the_prompt_has_their_sum():
    graph = RoleGraph(("debater", "judge"), edges=(("debater", "judge"),), counts={"debater": 3})
    game = game_of(graph)
    assert game.players == ("debater::0", "debater::1", "debater::2", "judge") and game.vetoes == ("judge",)
    assert game.active(frozenset({"debater::1", "judge"})) == {"debater::1", "judge"}
    credit = solve(game, "prune", lambda s, t: len(s) / 4, credit="exact")
    roles = credit.by_role(credit.phi)
    assert roles["debater"] == pytest.approx(sum(credit.phi[f"debater::{k}"] for k in range(3)))
    assert sum(roles.values()) == pytest.approx(1.0)


def test_rounds_of_a_debate_are_one_player_per_agent():
    from programs.decentralized import Decentralized

    graph = Decentralized(team_size=4, rounds=3).role_graph()
    game = game_of(graph)
    assert game.players == tuple(f"debater::{k}" for k in range(4)) and game.vetoes == ()
    assert game.live(frozenset({"debater::2"})) == {"debater::2"}


def test_the_workers_of_a_manager_are_no_veto_players():
    from programs.centralized import Centralized

    game = game_of(Centralized(team_size=4).role_graph())
    assert game.vetoes == ("manager", "aggregator")
    assert game.live(frozenset({"manager", "aggregator"})) is None
    assert game.live(frozenset({"manager", "checker", "aggregator"})) is not None
    fixed = game_of(Centralized(team_size=4).role_graph(), fixed=("manager", "aggregator"))
    assert fixed.players == ("tool_caller", "checker", "reasoner") and fixed.vetoes == ()
    assert fixed.active(frozenset({"checker"})) == {"checker", "manager", "aggregator"}


# -- the bottleneck ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "mode", "score"),
    [
        *((edges, "placeholder", "phi") for edges in (CHAIN, DIAMOND, STAR, DESK)),
        *((edges, "prune", "adjusted") for edges in (STAR, DESK)),
    ],
)
def test_a_planted_weak_role_is_the_bottleneck(edges, mode, score):
    graph = GraphTeam(edges).role_graph()
    game, floor = game_of(graph), 0.3 if mode == "placeholder" else 0.0
    for weak in graph.roles:
        quality = {r: 0.25 if r == weak else 0.8 for r in graph.roles}

        def value(s, t, quality=quality):
            layers = ([quality[r] for r in layer if r in s] for layer in graph.layers())
            return math.prod(max(floor, 1 - math.prod(1 - q for q in layer)) for layer in layers)

        credit = solve(game, mode, value, credit="exact")
        assert bottleneck(credit, score, {}) == weak


def test_ties_go_to_the_role_that_was_tried_longest_ago_then_to_role_order():
    game = game_of(GraphTeam(CHAIN).role_graph())
    credit = solve(game, "prune", lambda s, t: 0.5, rows=4)
    assert [
        bottleneck(credit, "phi", tried) for tried in ({}, {"a": 1}, {"a": 1, "b": 2}, dict(a=3, b=2, c=5, d=4))
    ] == [
        "a",
        "b",
        "c",
        "b",
    ]


def test_roles_within_a_standard_error_are_tied_and_the_smaller_value_goes_first():
    game = game_of(GraphTeam(STAR).role_graph())
    noise = {0: 1.0, 1: 0.0, 2: 1.0, 3: 0.0}

    def value(s, t):
        return sum({"w": 0.5 - 0.01, "x": 0.5, "y": noise[t], "m": 3.0}[r] for r in s)

    credit = solve(game, "placeholder", value, rows=4, credit="exact")
    assert credit.phi["w"] < credit.phi["x"] == pytest.approx(credit.phi["y"])
    assert bottleneck(credit, "phi", {}) == "w"
    assert bottleneck(credit, "phi", {"w": 1}) == "y", "y differs by less than the noise between rows"
    assert bottleneck(credit, "phi", {"w": 1, "y": 2}) == "w", "x is worse by more than the noise, always by 0.01"
    assert bottleneck(credit, "phi", {}, waiting={"w", "y"}) == "x"


def test_a_place_that_is_owed_nothing_is_never_the_bottleneck():
    game = game_of(GraphTeam(SKIP).role_graph())
    credit = solve(game, "prune", lambda s, t: 0.5, rows=2)
    assert bottleneck(credit, "adjusted", {"a": 1}) == "d"
    assert {bottleneck(credit, "adjusted", {"a": a, "d": d}) for a, d in itertools.product(range(3), repeat=2)} == {
        "a",
        "d",
    }
    nothing = solve(game, "prune", lambda s, t: 0.0, rows=2)
    assert bottleneck(nothing, "adjusted", {}) == "a", "a team that never succeeds tells nothing"


# -- lessons ---------------------------------------------------------------------------------------------


def test_the_block_of_lessons_is_idempotent_and_leaves_the_text_intact():
    seed = "You are the a.\n\nDo your part."
    once = with_lessons(seed, ["one", "two"])
    assert once.startswith(seed) and lessons_in(once) == ["one", "two"]
    assert with_lessons(once, ["one", "two"]) == once
    assert with_lessons(once, ["three"]).count(HEADING) == 1 and lessons_in(with_lessons(once, ["three"])) == ["three"]
    assert with_lessons(once, []) == seed and lessons_in(seed) == []


@pytest.mark.parametrize(
    ("reply", "lessons"),
    [
        ("- one\n- two\n- One.", ["one", "two"]),
        ("1. one\n2) two", ["one", "two"]),
        ("Thoughts first.\n\n- one\n* two", ["one", "two"]),
        ("- draft\n\n- one\n- two\n\nThat is all.", ["one", "two"]),
        ("one\ntwo", ["one", "two"]),
        ("", []),
        (None, []),
        ("---\n***", []),
        ("- " + "x" * 5000, None),
    ],
)
def test_lessons_are_the_lines_of_the_last_block(reply, lessons):
    found = parse_lessons(reply)
    assert found == lessons if lessons is not None else len(found) == 1 and len(found[0]) <= 300


def search(edges=CHAIN, budget=300, metric=None, train=20, validation=20, engine=None, **options):
    program, made, lm = team_world(edges, **(engine or {}))
    metric = metric or CountingMetric()
    options.setdefault("final_gate", False)
    with dspy.context(lm=lm):
        result = HiveMind(metric=metric, prompt_model=lm, max_rollouts=budget, **options).compile(
            program, trainset=questions(train), valset=questions(validation, 1000)
        )
    return result, result.optimizer_stats, made, metric


def events(stats, name):
    return [entry for entry in stats["history"] if entry["event"] == name]


@pytest.mark.parametrize("edges", [CHAIN, STAR])
def test_a_search_finds_every_rule_and_says_what_it_learned(edges):
    result, stats, _engine, _metric = search(edges, budget=600)
    assert stats["best_score"] == 1.0 and stats["stop_reason"] == "perfect"
    for role, predictor in result.named_predictors():
        assert solved(result)[role].split()[-1] in predictor.signature.instructions
        assert lessons_in(predictor.signature.instructions) == stats["lessons"][role]
    assert len(stats["phi"]) >= 4 and stats["phi"][0]["bottleneck"] in result.order


def test_an_empty_reflection_costs_no_acceptance_rollouts():
    _result, stats, _engine, metric = search(engine={"style": "empty"}, budget=200)
    assert not events(stats, "proposed") and stats["proposals_accepted"] == 0
    charged = [e for e in events(stats, "evaluated") if e["split"] == "validation"]
    assert len(charged) == 1 and stats["counters"]["rollouts"] == metric.calls <= 200


@pytest.mark.parametrize("style", ["empty", "destroy"])
@pytest.mark.parametrize("preset", [None, "paper"])
def test_a_search_with_nothing_new_to_run_ends(style, preset):
    """With few rows everything is known long before a large budget ends; reflections alone are not charged."""
    _result, stats, _engine, _metric = search(
        engine={"style": style}, budget=5000, preset=preset, train=6, validation=6
    )
    assert stats["stop_reason"] == "no new lessons" and stats["counters"]["rollouts"] < 1000
    last = max(n for n, event in enumerate(stats["history"]) if event["event"] in ("evaluated", "credit"))
    turns = [event for event in stats["history"][: last + 1] if event["event"] == "bottleneck"]
    assert len(events(stats, "bottleneck")) <= len(turns) + 3 * 4


def test_lessons_that_are_known_already_are_no_candidate():
    result, stats, _engine, _metric = search(engine={"style": "destroy"}, budget=400, max_cycles=6)
    rejected = [e["reason"] for e in events(stats, "rejected")]
    assert rejected and all("against" in reason for reason in rejected)
    assert Candidate.of(result).id == Candidate.of(GraphTeam(CHAIN)).id


def test_equal_means_are_rejected():
    result, stats, _engine, _metric = search(metric=lambda example, prediction: 0.5, budget=200)
    assert events(stats, "proposed") and not events(stats, "accepted")
    assert Candidate.of(result).id == Candidate.of(GraphTeam(CHAIN)).id


def test_a_rejection_hands_the_turn_on_without_a_new_measurement():
    _result, stats, engine, metric = search(
        metric=CountingMetric(feedback=False), budget=600, engine={"style": "destroy"}, max_cycles=2
    )
    order = [event["role"] for event in events(stats, "bottleneck")]
    assert len(stats["phi"]) == 2 and sorted(order[:4]) == sorted(order[4:]) == ["a", "b", "c", "d"]
    shown = [field_of(user, "rejected_lessons") for field, user in engine.asked if field == "lessons"]
    assert shown[:4] == ["(none)"] * 4 and all(text.startswith("- ") for text in shown[4:])
    candidates = {event["candidate"] for event in events(stats, "evaluated")}
    assert metric.calls <= 2 * 15 * 5 + 10 * len(candidates), "a candidate was paid for twice"


def test_the_paper_measures_before_every_proposal():
    _result, stats, _engine, _metric = search(
        metric=lambda example, prediction: 0.5, budget=600, engine={"style": "random"}, max_cycles=5, preset="paper"
    )
    assert len(events(stats, "bottleneck")) == len(stats["phi"]) == 5
    assert [cycle["bottleneck"] for cycle in stats["phi"]] == ["a", "b", "c", "d", "a"], "a chain is all ties"


def test_no_cycle_starts_that_the_budget_does_not_hold():
    for budget in (28, 40, 60, 95, 130):
        _result, stats, _engine, metric = search(budget=budget)
        assert stats["counters"]["rollouts"] == metric.calls <= budget
        for cycle in events(stats, "credit"):
            later = [e for e in stats["history"] if e["rollouts"] >= cycle["rollouts"]]
            assert any(e["event"] in ("evaluated", "refused") for e in later), "a proposal that could not be scored"


def test_a_small_budget_samples_orders_and_shrinks_rows_before_it_refuses():
    program = GraphTeam(CHAIN)
    assert search(budget=28)[1]["phi"]
    with pytest.raises(ConfigurationError, match="at least 28"):
        search(budget=27)
    method = HiveMind(metric=CountingMetric(), max_rollouts=600)
    with dspy.context(lm=team_world(CHAIN)[2]):
        context = context_for(program, dspy.settings.lm)
        assert method.minimum_budget(context) == 2 * 10 + 4 * 2
        assert method.advised_budget(context) == 10 + 3 * (15 * 5 + 10)


def test_fixed_roles_are_always_active_and_have_every_third_proposal():
    _result, stats, _engine, _metric = search(
        STAR, budget=600, fixed=("m",), metric=lambda e, p: 0.5, engine={"style": "random"}, max_cycles=6
    )
    order = [event["role"] for event in events(stats, "bottleneck")]
    assert order[2] == order[5] == "m" and "m" not in order[:2] + order[3:5]
    assert set(stats["phi"][0]) == {"w", "x", "y", "cycle", "bottleneck", "standard_errors"}
    with pytest.raises(ConfigurationError, match="boss"):
        search(STAR, fixed=("boss",))


def test_prompts_as_players_mask_nothing():
    _result, stats, engine, _metric = search(players="prompts", budget=600)
    assert stats["best_score"] == 1.0
    first = stats["phi"][0]
    assert all(first[role] == 0 for role in "abcd"), "nothing was improved yet, so no prompt contributes"
    asked = [text for text in engine.texts if "You are the d" in text and "[[ ## out ## ]]" in text]
    assert asked and all(field_of(text, "message") for text in asked)


def test_a_team_with_one_prompt_has_nobody_to_compare():
    program, _engine, lm = team_world((), roles=("solo",))
    metric = CountingMetric()
    with dspy.context(lm=lm):
        result = HiveMind(metric=metric, prompt_model=lm, max_rollouts=60, final_gate=False).compile(
            program, trainset=questions(8), valset=questions(8, 1000)
        )
    assert "[R00]" in result.solo.signature.instructions
    assert metric.calls == result.optimizer_stats["counters"]["rollouts"]
    measured = [e["coalitions"] for e in events(result.optimizer_stats, "credit")]
    assert set(measured) == {1}, "the whole team only"


def test_lessons_of_an_earlier_search_are_kept():
    program, _engine, lm = team_world(CHAIN)
    text = with_lessons("You are the a. Do your part.", ["[R00]"])
    program.a.signature = program.a.signature.with_instructions(text)
    with dspy.context(lm=lm):
        result = HiveMind(metric=CountingMetric(), prompt_model=lm, max_rollouts=600, final_gate=False).compile(
            program, trainset=questions(20), valset=questions(20, 1000)
        )
    assert "[R00]" in result.a.signature.instructions
    assert result.a.signature.instructions.count(HEADING) == 1


@pytest.mark.parametrize(
    "options",
    [{"mask_mode": "no"}, {"score": "x"}, {"credit": "x"}, {"players": "x"}, {"preset": "x"}, {"accept_rows": 0}],
)
def test_unusable_options_are_named(options):
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        HiveMind(metric=CountingMetric(), **options)


def test_presets_fill_what_is_not_given():
    assert HiveMind(preset="paper").mask_mode == "prune" and HiveMind().mask_mode == "auto"
    assert HiveMind(preset="peer", accept_rows=7).accept_rows == 7 and HiveMind(preset="peer").accept_rows == 5
