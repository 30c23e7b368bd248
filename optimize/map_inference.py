"""Exact MAP inference over prompt pools: the best joint assignment of one candidate per role.

MAPRO (arXiv 2510.07475, sections 3-4) scores an assignment p as the product of node rewards g_i(p_i) and edge rewards
g_ij(p_i, p_j) and looks for its maximum. We maximise the sum of log rewards by variable elimination with traceback,
which equals max-product on the junction tree and needs no tree. Log rewards are rounded to integers, so sums are
exact, and ties are broken by a total order: highest reward, then most roles unchanged, then lexicographically
smallest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

REWARD_FLOOR = 1e-6
_SCALE = 10**9

Scope = tuple[int, ...]
Factor = tuple[Scope, dict[tuple[int, ...], int]]


@dataclass(frozen=True)
class MapAssignment:
    """`choice`: one candidate index per role (tied roles agree); `log_reward`: its sum of log rewards;
    `width`: induced width of the elimination (tree 1, cycle 2, clique of n: n - 1); `exact`: False when pools had
    to be shortened because a table would have exceeded `max_cells`."""

    choice: tuple[int, ...]
    log_reward: float
    width: int
    exact: bool


def log_units(reward: float) -> int:
    """A reward in (0, 1] as an integer log, floored at `REWARD_FLOOR` so that no candidate is ruled out for ever."""
    return round(_SCALE * math.log(min(1.0, max(REWARD_FLOOR, reward))))


def map_assignment(
    nodes: Sequence[Sequence[float]],
    edges: Mapping[tuple[int, int], Sequence[Sequence[float]]],
    *,
    incumbent: Sequence[int] | None = None,
    tied: Sequence[int] | None = None,
    edge_power: float = 1.0,
    max_cells: int = 2_000_000,
    order: Sequence[int] | None = None,
) -> MapAssignment:
    """The assignment with the highest product of rewards.

    `nodes[i][k]`: reward of candidate k of role i; `edges[i, j][k][l]`: reward of role i with k feeding role j with
    l. `tied[i]`: variable of role i (roles with one number share a prompt: their unaries add up and an edge between
    them counts on its diagonal); default: every role its own. `incumbent`: today's choice per role (default all 0),
    wins ties. `edge_power` scales the edges' logs. `order`: elimination order of variables (default min-fill). Raises
    ValueError for empty pools or tied roles with pools of different sizes.
    """
    variable = _variables(tied, len(nodes))
    count = max(variable, default=-1) + 1
    sizes = _pool_sizes(nodes, variable, count)
    today = [0] * count
    for role, index in enumerate(incumbent or [0] * len(nodes)):
        today[variable[role]] = index
    factors = _factors(nodes, edges, variable, sizes, edge_power)
    pools = [list(range(size)) for size in sizes]
    limit = max(sizes, default=1)
    exact = True
    while True:
        solved = _eliminate(_restrict(factors, pools, today), [len(p) for p in pools], order, max_cells)
        if solved is not None:
            break
        exact, limit = False, limit - 1
        pools = _shorten(factors, pools, today, limit)
    picks, width = solved
    best = [pools[v][k] for v, k in enumerate(picks)]
    total = sum(table[tuple(best[v] for v in scope)] for scope, table in factors)
    return MapAssignment(tuple(best[v] for v in variable), total / _SCALE, width, exact)


def _variables(tied: Sequence[int] | None, roles: int) -> list[int]:
    """Variables numbered 0..n-1 in the order in which their roles appear."""
    labels = list(range(roles)) if tied is None else list(tied)
    if len(labels) != roles:
        raise ValueError(f"tied names {len(labels)} roles, the pools are {roles}")
    number = {label: n for n, label in enumerate(dict.fromkeys(labels))}
    return [number[label] for label in labels]


def _pool_sizes(nodes: Sequence[Sequence[float]], variable: Sequence[int], count: int) -> list[int]:
    sizes = [0] * count
    for role, rewards in enumerate(nodes):
        if not len(rewards):
            raise ValueError(f"role {role} has an empty pool")
        if sizes[variable[role]] not in (0, len(rewards)):
            raise ValueError(f"role {role} shares its prompt with a role whose pool has another size")
        sizes[variable[role]] = len(rewards)
    return sizes


def _factors(
    nodes: Sequence[Sequence[float]],
    edges: Mapping[tuple[int, int], Sequence[Sequence[float]]],
    variable: Sequence[int],
    sizes: Sequence[int],
    edge_power: float,
) -> list[Factor]:
    """Integer log tables over variables; edges of one pair of variables are added into one table."""
    tables: dict[Scope, dict[tuple[int, ...], int]] = {(v,): {(k,): 0 for k in range(n)} for v, n in enumerate(sizes)}
    for role, rewards in enumerate(nodes):
        for k, reward in enumerate(rewards):
            tables[(variable[role],)][(k,)] += log_units(reward)
    for (i, j), matrix in edges.items():
        a, b = variable[i], variable[j]
        for k, row in enumerate(matrix):
            for m, reward in enumerate(row):
                value = round(edge_power * log_units(reward))
                if a == b:
                    if k == m:
                        tables[(a,)][(k,)] += value
                    continue
                scope, cell = ((a, b), (k, m)) if a < b else ((b, a), (m, k))
                table = tables.setdefault(scope, {})
                table[cell] = table.get(cell, 0) + value
    return list(tables.items())


def _restrict(factors: Sequence[Factor], pools: Sequence[Sequence[int]], today: Sequence[int]) -> list[Factor]:
    """Tables over positions in `pools`, scaled so that the tie order fits below one unit of reward."""
    combos = math.prod(len(p) for p in pools)
    scale = (len(pools) + 1) * combos
    position = [{k: n for n, k in enumerate(pool)} for pool in pools]
    result: list[Factor] = []
    for scope, table in factors:
        cells = {}
        for cell, value in table.items():
            if all(k in position[v] for v, k in zip(scope, cell, strict=True)):
                cells[tuple(position[v][k] for v, k in zip(scope, cell, strict=True))] = value * scale
        result.append((scope, cells))
    stride = combos
    for v, pool in enumerate(pools):
        stride //= len(pool)
        result.append(((v,), {(n,): combos * (k == today[v]) - n * stride for n, k in enumerate(pool)}))
    return result


def _eliminate(
    factors: list[Factor], sizes: Sequence[int], order: Sequence[int] | None, max_cells: int
) -> tuple[list[int], int] | None:
    """The unique optimum and the induced width; None when a table would exceed `max_cells`."""
    left = set(range(len(sizes)))
    traceback: list[tuple[int, Scope, dict[tuple[int, ...], int]]] = []
    width = 0
    queue = list(order) if order is not None else None
    while left:
        var = (
            next(v for v in queue if v in left) if queue is not None else _next_variable(left, [f[0] for f in factors])
        )
        near = [f for f in factors if var in f[0]]
        scope = tuple(sorted({v for s, _ in near for v in s} - {var}))
        width = max(width, len(scope))
        if math.prod(sizes[v] for v in scope) * sizes[var] > max_cells and scope:
            return None
        table, best = _maximise(var, scope, near, sizes)
        factors = [f for f in factors if var not in f[0]] + [(scope, table)]
        traceback.append((var, scope, best))
        left.discard(var)
    picks = [0] * len(sizes)
    for var, scope, best in reversed(traceback):
        picks[var] = best[tuple(picks[v] for v in scope)]
    return picks, width


def _maximise(
    var: int, scope: Scope, near: Sequence[Factor], sizes: Sequence[int]
) -> tuple[dict[tuple[int, ...], int], dict[tuple[int, ...], int]]:
    """Combine the tables that touch `var` and maximise it out."""
    full = (*scope, var)
    places = [(tuple(full.index(v) for v in s), t) for s, t in near]
    table: dict[tuple[int, ...], int] = {}
    best: dict[tuple[int, ...], int] = {}
    for outer in itertools.product(*(range(sizes[v]) for v in scope)):
        for k in range(sizes[var]):
            cell = (*outer, k)
            value = sum(t[tuple(cell[p] for p in place)] for place, t in places)
            if outer not in table or value > table[outer]:
                table[outer], best[outer] = value, k
    return table, best


def _next_variable(left: set[int], scopes: Sequence[Scope]) -> int:
    """Min-fill, ties by min-degree, then by index."""
    linked: dict[int, set[int]] = {v: set() for v in left}
    for scope in scopes:
        for a, b in itertools.permutations(scope, 2):
            linked[a].add(b)

    def cost(v: int) -> tuple[int, int, int]:
        fill = sum(b not in linked[a] for a, b in itertools.combinations(linked[v], 2))
        return fill, len(linked[v]), v

    return min(left, key=cost)


def _shorten(
    factors: Sequence[Factor], pools: Sequence[Sequence[int]], today: Sequence[int], limit: int
) -> list[list[int]]:
    """The `limit` most promising candidates per variable (node log plus mean edge logs), today's always among them."""
    shorter = []
    for v, pool in enumerate(pools):
        merit: dict[int, float] = dict.fromkeys(pool, 0.0)
        for scope, table in factors:
            if v not in scope:
                continue
            at = scope.index(v)
            for k in pool:
                cells = [value for cell, value in table.items() if cell[at] == k]
                merit[k] += sum(cells) / len(cells)
        ranked = [k for _, _, k in sorted((k != today[v], -merit[k], k) for k in pool)]
        shorter.append(sorted(ranked[: max(1, limit)]))
    return shorter
