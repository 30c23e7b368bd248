"""Shapley values obey their axioms exactly, and pruning, memoisation and live reduction change nothing but the cost."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import pytest

from optimize.shapley import (
    adjusted_scores,
    call_counts,
    coalitions,
    draw_orders,
    is_viable,
    live_set,
    permutation_values,
    prefixes,
    shapley_values,
    standard_errors,
    structural_values,
    tied_values,
    veto_players,
)
from programs.role_graph import RoleGraph


def graph(edges):
    roles = tuple(dict.fromkeys(r for e in edges for r in e))
    return RoleGraph(roles=roles, edges=tuple(edges))


CHAIN = graph([("a", "b"), ("b", "c"), ("c", "d")])
DIAMOND = graph([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
STAR = graph([("w", "m"), ("x", "m"), ("y", "m")])
DESK = graph([(a, b) for a in ("a1", "a2", "a3") for b in ("b1", "b2", "b3")] + [(b, "t") for b in ("b1", "b2", "b3")])
SKIP = graph([("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")])
F = Fraction


def random_game(players, rng, viable=None):
    return {s: F(rng.randint(0, 100)) if viable is None or viable(s) else F(0) for s in coalitions(players)}


@pytest.mark.parametrize("n", range(1, 6))
def test_axioms_hold_exactly(n):
    rng = random.Random(n)
    players = tuple("abcdef"[:n])
    for _ in range(5):
        v, w = random_game(players, rng), random_game(players, rng)
        phi = shapley_values(players, v.__getitem__)
        assert sum(phi.values()) == v[frozenset(players)] - v[frozenset()]
        both = shapley_values(players, lambda s, v=v, w=w: v[s] + 3 * w[s])
        other = shapley_values(players, w.__getitem__)
        assert both == {p: phi[p] + 3 * other[p] for p in players}
        null = {s: v[s - {players[0]}] for s in v}
        assert shapley_values(players, null.__getitem__)[players[0]] == 0
        if n > 1:
            a, b = players[:2]
            swap = {a: b, b: a}
            mirror = {s: v[s] + v[frozenset(swap.get(p, p) for p in s)] for s in v}
            even = shapley_values(players, mirror.__getitem__)
            assert even[a] == even[b]


def test_subset_formula_equals_the_average_over_all_orders():
    players = tuple("abcd")
    v = random_game(players, random.Random(1))
    orders = list(itertools.permutations(players))
    assert permutation_values(players, v.__getitem__, orders) == shapley_values(players, v.__getitem__)
    for order in orders:  # efficiency holds for every single order
        one = permutation_values(players, v.__getitem__, [order])
        assert sum(one.values()) == v[frozenset(players)] - v[frozenset()]


@pytest.mark.parametrize("g", [CHAIN, DIAMOND, STAR, DESK, SKIP])
def test_pruned_and_reduced_games_have_the_values_of_brute_force(g):
    rng = random.Random(4)
    base = random_game(g.roles, rng)
    value = {s: base[live_set(g, s)] if is_viable(g, s) else F(0) for s in coalitions(g.roles)}
    asked = set()

    def lazily(s):
        if not is_viable(g, s):
            return F(0)
        asked.add(live_set(g, s))
        return base[live_set(g, s)]

    assert shapley_values(g.roles, lazily) == shapley_values(g.roles, value.__getitem__)
    assert len(asked) == call_counts(g, g.topological_order())["live_sets"]


@pytest.mark.parametrize(
    ("g", "viable", "naive", "pruned", "memo", "both", "live"),
    [
        (CHAIN, 1, 32, 4, 10, 4, 4),
        (DIAMOND, 3, 32, 10, 12, 6, 6),
        (STAR, 7, 32, 19, 11, 10, 10),
        (DESK, 49, 448, 217, 84, 73, 73),
        (SKIP, 4, 32, 12, 12, 7, 5),
    ],
)
def test_counts_of_the_published_table(g, viable, naive, pruned, memo, both, live):
    counts = call_counts(g, g.topological_order())
    assert counts["coalitions"] == 2 ** len(g.roles)
    got = [counts[k] for k in ("viable", "naive", "pruned", "memo", "pruned_memo", "live")]
    assert got == [viable, naive, pruned, memo, both, live]


def test_layers_have_the_closed_form_of_viable_coalitions():
    for sizes in [(1, 2, 1), (2, 3), (3, 3, 1), (2, 2, 2)]:
        layers = [[f"{k}{i}" for i in range(n)] for k, n in enumerate(sizes)]
        g = graph([(a, b) for up, down in itertools.pairwise(layers) for a in up for b in down])
        assert call_counts(g, g.topological_order())["viable"] == math.prod(2**n - 1 for n in sizes)


def test_structural_values():
    assert set(structural_values(CHAIN).values()) == {F(1, 4)}
    assert structural_values(DIAMOND) == {"a": F(5, 12), "b": F(1, 12), "c": F(1, 12), "d": F(5, 12)}
    assert structural_values(STAR) == {"w": F(1, 12), "x": F(1, 12), "y": F(1, 12), "m": F(3, 4)}
    assert structural_values(DESK) == {**{r: F(5, 84) for r in DESK.roles if r != "t"}, "t": F(9, 14)}
    assert structural_values(SKIP) == {"a": F(1, 2), "b": F(0), "c": F(0), "d": F(1, 2)}


def test_a_chain_carries_no_information():
    v = {s: F(7) if len(s) == 4 else F(0) for s in coalitions(CHAIN.roles)}
    assert set(shapley_values(CHAIN.roles, v.__getitem__).values()) == {F(7, 4)}


VETOES = [(DESK, ("t",)), (DIAMOND, ("a", "d")), (CHAIN, tuple("abcd")), (STAR, ("m",))]


@pytest.mark.parametrize(("g", "vetoes"), VETOES)
def test_no_role_is_worth_more_than_a_veto_player_and_vetoes_are_tied(g, vetoes):
    assert veto_players(g) == vetoes
    rng = random.Random(0)
    for _ in range(30):
        v = random_game(g.roles, rng, viable=lambda s: is_viable(g, s))
        phi = shapley_values(g.roles, v.__getitem__)
        assert len({phi[i] for i in vetoes}) == 1
        assert all(phi[vetoes[0]] >= phi[j] for j in g.roles)


@pytest.mark.parametrize("g", [STAR, DESK])
def test_adjustment_finds_the_planted_weak_role_even_where_it_is_a_veto_player(g):
    """Competence .25 against .8; noisy-or inside a layer, product across layers."""
    for weak in g.roles:
        quality = {r: 0.25 if r == weak else 0.8 for r in g.roles}

        def v(s, quality=quality):
            if not is_viable(g, s):
                return 0.0
            return math.prod(1 - math.prod(1 - quality[r] for r in layer if r in s) for layer in g.layers())

        phi = shapley_values(g.roles, v)
        score = adjusted_scores(phi, v(frozenset(g.roles)), structural_values(g))
        assert min(score, key=score.get) == weak
        if weak in veto_players(g):
            assert min(phi, key=phi.get) != weak


def test_a_place_that_is_owed_nothing_scores_nothing():
    assert adjusted_scores({"b": F(1)}, 1, {"b": F(0)}) == {"b": 0.0}
    assert adjusted_scores({"b": F(1)}, 0, {"b": F(1)}) == {"b": 0.0}


def test_sampled_orders_respect_the_cap_and_converge():
    players = tuple("abcdefg")
    v = random_game(players, random.Random(9))
    exact = shapley_values(players, v.__getitem__)
    errors = []
    for cap in (10, 40, 4000):
        orders = draw_orders(players, cap, random.Random(1))
        assert orders == draw_orders(players, cap, random.Random(1))
        assert len(prefixes(orders)) <= max(cap, len(players) + 1)
        found = permutation_values(players, v.__getitem__, orders)
        errors.append(math.dist([float(found[p]) for p in players], [float(exact[p]) for p in players]))
    assert errors[2] < errors[0]


def test_shared_prompts_get_the_sum_of_their_players():
    assert tied_values({"d::0": F(1), "d::1": F(2), "m": F(3)}, {"d::0": "d", "d::1": "d"}) == {"d": F(3), "m": F(3)}


def test_standard_errors_over_rows():
    players = ("a",)
    rows = {frozenset(): [0.0, 0.0], frozenset("a"): [1.0, 0.0]}
    assert standard_errors(players, rows)["a"] == pytest.approx(0.5)
    assert math.isnan(standard_errors(players, {s: [1.0] for s in rows})["a"])
