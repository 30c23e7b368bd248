"""Who contributed what: Shapley values of roles, computed on the role graph (HiveMind's DAG-Shapley).

HiveMind (arXiv 2512.06432): v(S) is the team's score when only the coalition S is active. A coalition without a path
from a source to a sink inside it scores 0 by axiom and is not run (pruning); members that lie on no such path cannot
influence the result, so v(S) = v(live(S)) (live reduction). Values work with floats and with `Fraction`s.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, Protocol

Coalition = frozenset[str]
Value = Callable[[Coalition], Any]


class Graph(Protocol):
    """What is needed of a `programs.role_graph.RoleGraph`."""

    @property
    def roles(self) -> tuple[str, ...]: ...
    @property
    def edges(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def sources(self) -> tuple[str, ...]: ...
    @property
    def sinks(self) -> tuple[str, ...]: ...


def coalitions(players: Sequence[str]) -> list[Coalition]:
    """All 2^n coalitions, small ones first, in the order of `players`."""
    return [frozenset(c) for size in range(len(players) + 1) for c in itertools.combinations(players, size)]


def live_set(graph: Graph, coalition: Iterable[str]) -> Coalition:
    """Members that lie on a path from a source to a sink inside the coalition; empty when there is none."""
    members = frozenset(coalition)
    forward = {(a, b) for a, b in graph.edges if a in members and b in members}
    reached = _closure(members & set(graph.sources), forward)
    return _closure(members & set(graph.sinks), {(b, a) for a, b in forward}) & reached


def is_viable(graph: Graph, coalition: Iterable[str]) -> bool:
    """True when a message can travel from a source to a sink inside the coalition."""
    return bool(live_set(graph, coalition))


def _closure(start: Iterable[str], edges: set[tuple[str, str]]) -> Coalition:
    seen = set(start)
    todo = list(seen)
    while todo:
        node = todo.pop()
        for a, b in edges:
            if a == node and b not in seen:
                seen.add(b)
                todo.append(b)
    return frozenset(seen)


def shapley_values(players: Sequence[str], value: Value) -> dict[str, Any]:
    """Exact values by the subset formula; `value` is asked once per coalition (2^n of them).

    phi_i = sum over S without i of |S|! (n - |S| - 1)! / n! * (v(S + i) - v(S)).
    """
    n = len(players)
    worth = {s: value(s) for s in coalitions(players)}
    exact = all(isinstance(v, int | Fraction) for v in worth.values())
    weight = [Fraction(math.factorial(k) * math.factorial(n - k - 1), math.factorial(n)) for k in range(n)]
    phi: dict[str, Any] = {}
    for player in players:
        gains = ((weight[len(s)], worth[s | {player}] - worth[s]) for s in worth if player not in s)
        phi[player] = sum(w * g for w, g in gains) if exact else math.fsum(float(w) * g for w, g in gains)
    return phi


def permutation_values(players: Sequence[str], value: Value, orders: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Mean marginal contribution over the given orders: unbiased for random ones, and every single order already
    distributes exactly v(all) - v(empty)."""
    total: dict[str, Any] = dict.fromkeys(players, 0)
    for order in orders:
        before: Coalition = frozenset()
        for player in order:
            after = before | {player}
            total[player] += value(after) - value(before)
            before = after
    return {player: total[player] / len(orders) for player in players}


def draw_orders(players: Sequence[str], max_coalitions: int, rng: random.Random) -> list[tuple[str, ...]]:
    """Random orders whose distinct prefixes (with the empty and the full one) number at most `max_coalitions`.

    Always at least one order; duplicates are kept, as unbiasedness needs.
    """
    n = len(players)
    wanted = max(1, (max_coalitions - 2) // max(1, n - 1))
    return [tuple(rng.sample(list(players), n)) for _ in range(wanted)]


def prefixes(orders: Iterable[Sequence[str]]) -> list[Coalition]:
    """The distinct coalitions that `permutation_values` asks for, small ones first, deterministic."""
    found = {frozenset(order[:k]): None for order in orders for k in range(len(order) + 1)}
    return sorted(found, key=lambda s: (len(s), sorted(s)))


def veto_players(graph: Graph) -> tuple[str, ...]:
    """Roles without which no coalition is viable: a single source or sink, or any articulation role.

    With pruning no role ever has a higher value than a veto player, and veto players are tied, so the smallest value
    can never single one out.
    """
    everyone = frozenset(graph.roles)
    return tuple(r for r in graph.roles if not is_viable(graph, everyone - {r}))


def structural_values(graph: Graph) -> dict[str, Fraction]:
    """Values of the game v(S) = 1 if S is viable else 0: what a role is owed for its place alone."""
    return shapley_values(graph.roles, lambda s: Fraction(int(is_viable(graph, s))))


def adjusted_scores(phi: dict[str, Any], total: Any, structure: dict[str, Fraction]) -> dict[str, float]:
    """phi_i / (v(all) * structural phi_i): 1 is average for the role's place; 0 where the place is owed nothing or
    the team never succeeds."""
    return {
        role: float(phi[role]) / (float(total) * float(structure[role])) if structure[role] and total else 0.0
        for role in phi
    }


def tied_values(phi: dict[str, Any], owner: dict[str, str]) -> dict[str, Any]:
    """Values per prompt: the sum over the players (replicas, later rounds) that share it."""
    total: dict[str, Any] = {}
    for player, value in phi.items():
        total[owner.get(player, player)] = total.get(owner.get(player, player), 0) + value
    return total


def standard_errors(players: Sequence[str], row_values: dict[Coalition, Sequence[float]]) -> dict[str, float]:
    """Standard error over rows of each exact value, from the rows' own games (common random numbers).

    `row_values[S]` holds one score per row for every coalition of `players`; NaN for fewer than two rows.
    """
    rows = len(next(iter(row_values.values())))
    if rows < 2:
        return dict.fromkeys(players, math.nan)
    games = [shapley_values(players, {s: v[r] for s, v in row_values.items()}.__getitem__) for r in range(rows)]
    errors = {}
    for player in players:
        values = [game[player] for game in games]
        mean = math.fsum(values) / rows
        errors[player] = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (rows - 1) / rows)
    return errors


def call_counts(graph: Graph, order: Sequence[str]) -> dict[str, int]:
    """Model calls of one example over all coalitions, one call per active role: what pruning, memoisation (a role is
    called once per distinct set of inputs) and live reduction save. `order`: topological order of the roles.

    Keys: coalitions, viable, naive, pruned, memo, pruned_memo, live (distinct calls after live reduction), live_sets.
    """
    every = coalitions(graph.roles)
    alive = [s for s in every if is_viable(graph, s)]
    reduced = {live_set(graph, s) for s in alive}
    return {
        "coalitions": len(every),
        "viable": len(alive),
        "naive": sum(len(s) for s in every),
        "pruned": sum(len(s) for s in alive),
        "memo": _distinct_calls(graph, order, every),
        "pruned_memo": _distinct_calls(graph, order, alive),
        "live": _distinct_calls(graph, order, reduced),
        "live_sets": len(reduced),
    }


def _distinct_calls(graph: Graph, order: Sequence[str], sets: Iterable[Coalition]) -> int:
    """Distinct (role, history of its inputs) pairs: a role's history is what its active parents wrote."""
    known: dict[tuple[str, frozenset[int]], int] = {}
    for members in sets:
        identity: dict[str, int] = {}
        for role in order:
            if role in members:
                inputs = frozenset(identity[a] for a, b in graph.edges if b == role and a in members)
                identity[role] = known.setdefault((role, inputs), len(known))
    return len(known)
