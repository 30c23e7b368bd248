"""Running a team's coalitions and reading off who contributes what; the game theory is in `optimize.shapley`.

HiveMind (arXiv 2512.06432): v(S) is the mean score when only the roles in S are active. Coalitions run as masked
rollouts through the replay cache, so a role is called again only when what it reads has changed.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import dspy

from metrics.errors import ConfigurationError
from optimize.candidates import Candidate
from optimize.context import SearchContext
from optimize.records import Records
from optimize.replay import BYPASS
from optimize.rows import Row
from optimize.shapley import Coalition, coalitions, live_set, permutation_values, prefixes, shapley_values
from programs.role_graph import RoleGraph

MaskMode = Literal["auto", "prune", "placeholder", "bypass"]
CreditMode = Literal["auto", "exact", "permutation"]
Players = Literal["roles", "prompts"]
MOST_PLAYERS = 14  # whose 2^n coalitions are enumerated at all
MOST_ORDERS = 200


@dataclass(frozen=True)
class Game:
    """The players of a team: its roles, or `role::index` for agents that share a prompt.

    `players`: in role order; `owner`: player -> role; `always`: roles that stay active in every coalition.
    """

    graph: RoleGraph
    players: tuple[str, ...]
    owner: Mapping[str, str]
    always: frozenset[str] = frozenset()

    @classmethod
    def of(cls, context: SearchContext, graph: RoleGraph, fixed: Iterable[str] = (), *, agents: bool = True) -> Game:
        """Every optimized role plays, except `fixed` ones; with `agents`, each of its agents on its own.

        Predictors that no role claims stay active.
        """
        fixed = frozenset(fixed)
        owner: dict[str, str] = {}
        for role in context.roles.names:
            count = graph.counts.get(role, 1) if agents else 1
            owner |= {} if role in fixed else dict.fromkeys(_agents(role, count), role)
        unclaimed = {context.roles.role_of(name) for name in context.baseline.instructions} - set(context.roles.names)
        return cls(graph, tuple(owner), owner, fixed | unclaimed)

    @cached_property
    def _nodes(self) -> tuple[RoleGraph, dict[str, str]]:
        """The graph with one node per appearance and agent, and the player that each node belongs to."""
        count = {node: self.graph.counts[node] for node in self.graph.roles}
        player = {}
        for node in self.graph.roles:
            for name in _agents(node, count[node]):
                agent = f"{self.graph.role_of(node)}{name[len(node) :]}"
                player[name] = agent if agent in self.owner else self.graph.role_of(node)
        edges = [(a, b) for i, j in self.graph.edges for a in _agents(i, count[i]) for b in _agents(j, count[j])]
        return RoleGraph(tuple(player), edges=tuple(edges)), player

    def live(self, coalition: Coalition) -> Coalition | None:
        """The members that a message from a source to a sink can pass; None when the coalition has no such path."""
        if coalition not in self._live:
            graph, player = self._nodes
            reached = live_set(graph, [n for n, p in player.items() if p in coalition or p not in self.owner])
            self._live[coalition] = coalition & {player[node] for node in reached} if reached else None
        return self._live[coalition]

    @cached_property
    def _live(self) -> dict[Coalition, Coalition | None]:
        return {}

    @cached_property
    def vetoes(self) -> tuple[str, ...]:
        """Players without whom no coalition has a path."""
        everyone = frozenset(self.players)
        return tuple(p for p in self.players if self.live(everyone - {p}) is None)

    @cached_property
    def structure(self) -> dict[str, float]:
        """Values of the game v(S) = 1 if S has a path else 0: what a player is owed for its place alone."""
        if len(self.players) > MOST_PLAYERS:
            raise ConfigurationError(f"{len(self.players)} players are too many to enumerate their coalitions")
        return {p: float(v) for p, v in shapley_values(self.players, lambda s: int(self.live(s) is not None)).items()}

    def active(self, coalition: Coalition) -> frozenset[str] | None:
        """The mask of a coalition; None (everything runs) for all players."""
        return None if len(coalition) == len(self.players) else coalition | self.always


def _agents(node: str, count: int) -> list[str]:
    return [node] if count == 1 else [f"{node}::{index}" for index in range(count)]


def resolve_mode(mask_mode: MaskMode, score: str, game: Game) -> tuple[str, str]:
    """(mask mode, score) of `auto`: with pruning, two veto players can never be told apart, so their team is run with
    placeholders instead; with at most one, values are held against what the place alone is owed.
    """
    if mask_mode == "auto":
        return ("prune", "adjusted") if len(game.vetoes) <= 1 else ("placeholder", "phi")
    return mask_mode, score


@dataclass(frozen=True)
class Plan:
    """Which coalitions are run. `runs`: all that are, small ones first; `groups`: sampled orders of the players, one
    group for each row in turn, none when exact.

    Rows with orders of their own see more of the game for the same number of rollouts than rows that share them.
    """

    game: Game
    mode: str
    runs: tuple[Coalition, ...]
    groups: tuple[tuple[tuple[str, ...], ...], ...] = ()

    @property
    def orders(self) -> tuple[tuple[str, ...], ...] | None:
        """All sampled orders; None when exact."""
        return tuple(itertools.chain.from_iterable(self.groups)) or None

    @cached_property
    def _group_runs(self) -> list[tuple[Coalition, ...]]:
        everyone = frozenset(self.game.players)
        return [_runs(self.game, self.mode, [*prefixes(group), everyone]) for group in self.groups]

    def runs_of(self, row: int) -> tuple[Coalition, ...]:
        """What is run on a row."""
        return self._group_runs[row % len(self.groups)] if self.groups else self.runs

    def cost(self, rows: int) -> int:
        """Rollouts on so many rows."""
        return sum(len(self.runs_of(row)) for row in range(rows))

    def run_for(self, coalition: Coalition) -> Coalition | None:
        """The run that tells the value of a coalition; None for those that are worth 0 without one."""
        return run_for(self.game, self.mode, coalition)

    def values(self, worth: Any, row: int = 0) -> dict[str, float]:
        """Shapley values of the game `worth(coalition)` that a row is."""
        players = self.game.players
        if not self.groups:
            found = shapley_values(players, worth)
        else:
            found = permutation_values(players, worth, self.groups[row % len(self.groups)])
        return {player: float(value) for player, value in found.items()}


def run_for(game: Game, mode: str, coalition: Coalition) -> Coalition | None:
    """See `Plan.run_for`. An empty coalition abstains: it is worth 0, unless prompts are the players."""
    if mode == "prompts" or coalition == frozenset(game.players):
        return coalition
    if mode == "prune":
        return game.live(coalition)
    return coalition or None


def make_plan(
    game: Game, mode: str, *, credit: CreditMode = "auto", cap: int = 40, rng: random.Random, groups: int = 1
) -> Plan:
    """All coalitions when at most `cap` have to be run (`auto`), else as many random orders as `cap` runs allow, for
    each of so many groups of rows.

    Even a small cap gets one order. `exact` ignores the cap.
    """
    everyone = frozenset(game.players)
    if credit != "permutation" and len(game.players) <= MOST_PLAYERS:
        runs = _runs(game, mode, coalitions(game.players))
        if credit == "exact" or len(runs) <= cap:
            return Plan(game, mode, runs)
    elif credit == "exact":
        raise ConfigurationError(f"{len(game.players)} players are too many for exact credit; use permutation")
    drawn = tuple(_draw_orders(game, mode, cap, rng) for _ in range(groups))
    asked = prefixes(itertools.chain.from_iterable(drawn))
    return Plan(game, mode, _runs(game, mode, [*asked, everyone]), drawn)


def _draw_orders(game: Game, mode: str, cap: int, rng: random.Random) -> tuple[tuple[str, ...], ...]:
    orders: list[tuple[str, ...]] = []
    while len(orders) < MOST_ORDERS:
        order = tuple(rng.sample(game.players, len(game.players)))
        if orders and len(_runs(game, mode, prefixes([*orders, order]))) > cap:
            break
        orders.append(order)
    return tuple(orders)


def _runs(game: Game, mode: str, asked: Iterable[Coalition]) -> tuple[Coalition, ...]:
    found = dict.fromkeys(run for s in asked if (run := run_for(game, mode, s)) is not None)
    return tuple(sorted(found, key=lambda s: (len(s), [p for p in game.players if p in s])))


@dataclass
class Credit:
    """Who contributed what. By player: `phi` and its standard error over rows (NaN for one row).

    `phi_rows`: player -> one value per row; `worth`: run -> mean score on the rows that it was run on; `full`: the rows
    of the whole game; `calls`: predictor calls of the coalitions, made or replayed.
    """

    plan: Plan
    phi: dict[str, float]
    errors: dict[str, float]
    phi_rows: dict[str, list[float]]
    worth: dict[Coalition, float]
    full: list[Row] = field(default_factory=list)
    calls: int = 0

    @property
    def total(self) -> float:
        """The mean score of the whole game."""
        return self.worth[frozenset(self.plan.game.players)]

    def by_role(self, per_player: Mapping[str, float]) -> dict[str, float]:
        """Sums over the players that share a prompt."""
        return _by_role(self.plan.game, per_player)

    def role_rows(self, role: str) -> list[float]:
        """A role's value row by row."""
        mine = [values for player, values in self.phi_rows.items() if self.plan.game.owner[player] == role]
        return [math.fsum(at) for at in zip(*mine, strict=True)]

    def is_veto(self, role: str, rows: int) -> bool | None:
        """Whether every coalition without the role scored nothing, on so many rows; None where not all were run."""
        game = self.plan.game
        without = [p for p in game.players if game.owner[p] != role]
        if self.total <= 0 or any(value for run, value in self.worth.items() if run <= set(without)):
            return False
        if self.plan.mode == "prune" and any(game.owner[player] == role for player in game.vetoes):
            return True  # no path without it
        if len(without) > MOST_PLAYERS:
            return None
        runs = set(_runs(game, self.plan.mode, coalitions(without)))
        return True if all(runs <= set(self.plan.runs_of(t)) for t in range(rows)) else None

    def scales(self, score: str) -> dict[str, float]:
        """What a role's value is multiplied with: 1, or (`adjusted`) 1 over what its place is owed of the total; 0
        for a place that is owed nothing, and for all when the team never succeeds.
        """
        roles = dict.fromkeys(self.plan.game.owner.values())
        if score != "adjusted":
            return dict.fromkeys(roles, 1.0)
        structure = _by_role(self.plan.game, self.plan.game.structure)
        return {r: 1 / (self.total * structure[r]) if self.total and structure[r] else 0.0 for r in roles}


def _by_role(game: Game, per_player: Mapping[str, float]) -> dict[str, float]:
    roles = dict.fromkeys(game.owner.values())
    return {role: math.fsum(v for p, v in per_player.items() if game.owner[p] == role) for role in roles}


def assess(
    records: Records,
    plan: Plan,
    candidate: Candidate,
    rows: Sequence[Any],
    *,
    reference: Candidate | None = None,
) -> Credit | None:
    """Run the plan's coalitions of `candidate` on `rows` (what is not known yet is charged) and solve the game.

    With prompts as players a coalition has the candidate's texts and the others have those of `reference`. None when
    the budget does not hold the plan, or when no row was usable in every coalition.
    """
    context, game = records.context, plan.game
    everyone = frozenset(game.players)
    results: dict[Coalition, dict[int, Row]] = {}
    before = _calls(context)
    bypass = {BYPASS: bypass_fields(game.graph)} if plan.mode == "bypass" else None
    with dspy.context(**bypass) if bypass else nullcontext():
        for run in plan.runs:
            places = [t for t in range(len(rows)) if run in plan.runs_of(t)]
            asked = [rows[t] for t in places]
            if plan.mode == "prompts":
                texts = with_prompts(context, candidate, reference or context.baseline, {game.owner[p] for p in run})
                found = records.fetch(texts, asked)
            elif run == everyone:
                found = records.fetch(candidate, asked)
            else:
                found = records.fetch(candidate, asked, game.active(run))
            if len(found) < len(asked):
                return None
            results[run] = dict(zip(places, found, strict=True))
    usable = [t for t in range(len(rows)) if all(results[run][t].usable for run in plan.runs_of(t))]
    if not usable:
        return None
    scores = {run: {t: float(found[t].score or 0.0) for t in usable if t in found} for run, found in results.items()}

    def worth(t: int) -> Any:
        return lambda s: 0.0 if (run := plan.run_for(s)) is None else scores[run][t]

    games = [plan.values(worth(t), t) for t in usable]
    phi_rows = {player: [game[player] for game in games] for player in game.players}
    return Credit(
        plan=plan,
        phi={player: math.fsum(values) / len(values) for player, values in phi_rows.items()},
        errors={player: standard_error(values) for player, values in phi_rows.items()},
        phi_rows=phi_rows,
        worth={run: math.fsum(values.values()) / len(values) for run, values in scores.items() if values},
        full=[results[everyone][t] for t in usable],
        calls=_calls(context) - before,
    )


def _calls(context: SearchContext) -> int:
    return context.ledger.counts["node_calls"] + context.ledger.counts["cached_node_calls"]


def with_prompts(context: SearchContext, candidate: Candidate, reference: Candidate, roles: Iterable[str]) -> Candidate:
    """`reference` with the texts and demos of `candidate` in these roles."""
    names = [name for role in roles for name in context.roles.predictors[role]]
    texts = reference.with_instructions({name: candidate.instructions[name] for name in names})
    return texts.with_demos({name: candidate.demos.get(name, ()) for name in names})


def bypass_fields(graph: RoleGraph) -> dict[str, tuple[str, ...]]:
    """role -> input fields in which its senders' messages arrive, as far as the graph knows them."""
    found: dict[str, dict[str, None]] = {}
    for (_, node), name in graph.edge_field.items():
        found.setdefault(graph.role_of(node), {})[name] = None
    return {role: tuple(names) for role, names in found.items()}


def standard_error(values: Sequence[float]) -> float:
    """Standard error of a mean over rows; NaN for fewer than two."""
    n = len(values)
    if n < 2:
        return math.nan
    mean = math.fsum(values) / n
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)
