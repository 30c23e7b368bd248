"""What a judge thinks of prompt pools: rewards of candidates (nodes) and of handoffs between them (edges).

MAPRO's Eq. 4 and 5 (arXiv 2510.07475): g_i(k), how well the output of candidate k of role i fulfils the role, and
g_ij(k, l), how usable that output is for role j under candidate l. Outputs are real: recorded calls of the role, asked
again under the candidate's prompt.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimize import judge
from optimize.candidates import Candidate
from optimize.clip import OUTPUT, PROMPT, clip
from optimize.context import SearchContext
from optimize.map_inference import MapAssignment, map_assignment
from optimize.preferences import Preferences
from optimize.rows import NodeCall, Row
from optimize.work import calls_of, received, written
from programs.role_graph import RoleGraph

Texts = tuple[str, ...]  # the instructions of a role, one per predictor
Pools = Mapping[str, Sequence[Texts]]  # role -> candidates, the anchor's own first
Contexts = Mapping[str, Sequence[NodeCall]]  # role -> recorded calls
Outputs = dict[str, list[list[str | None]]]  # [role][candidate][context]; None: the reply could not be read


@dataclass
class Rewards:
    """`node[i][k]` and `edge[i, j][k][l]` in [0, 1], means over contexts; `outputs`: what the candidates wrote."""

    node: dict[str, list[float]]
    edge: dict[tuple[str, str], list[list[float]]]
    outputs: Outputs

    def first_outputs(self, role: str) -> list[str]:
        """What each candidate of a role wrote in the first context."""
        return [texts[0] or "" for texts in self.outputs.get(role, [])]


def draw_contexts(context: SearchContext, rows: Sequence[Row], n: int, *parts: Any) -> dict[str, list[NodeCall]]:
    """`n` recorded calls of each role from different rows; half of the time the last call of a run, which writes what
    others read, else any. Fewer where a role was called in fewer rows.
    """
    drawn: dict[str, list[NodeCall]] = {}
    for role in context.roles.names:
        rng = context.rng("contexts", *parts, role)
        called = [calls for row in rows if row.usable and (calls := calls_of(row, role))]
        picked = [called[at] for at in sorted(rng.sample(range(len(called)), min(n, len(called))))]
        drawn[role] = [calls[-1] if rng.random() < 0.5 else rng.choice(calls) for calls in picked]
    return drawn


def reward(
    context: SearchContext,
    graph: RoleGraph,
    anchor: Candidate,
    pools: Pools,
    calls: Contexts,
    demos: Preferences,
    *,
    listwise: bool = False,
    edges: bool = True,
) -> Rewards:
    """Probe every candidate of every role on the role's contexts and have its outputs judged."""
    outputs = probe(context, anchor, pools, calls)
    node = node_rewards(context, calls, outputs, demos, listwise=listwise)
    for role, pool in pools.items():
        node.setdefault(role, [1.0] * len(pool))  # never called: nothing tells its candidates apart
    return Rewards(node, edge_rewards(context, graph, pools, outputs, demos) if edges else {}, outputs)


def probe(context: SearchContext, anchor: Candidate, pools: Pools, calls: Contexts) -> Outputs:
    """The recorded outputs for the anchor's own prompts; for the others the same calls, made again (not charged)."""
    items = [(role, k) for role, pool in pools.items() if calls[role] for k in range(len(pool))]

    def ask(item: tuple[str, int]) -> list[str | None]:
        role, k = item
        if k == 0:
            return [written(call.prediction) for call in calls[role]]
        candidate = context.roles.with_text(anchor, role, *pools[role][k])
        replies = [context.probe(candidate, call) for call in calls[role]]
        return [None if reply is None else written(reply) for reply in replies]

    outputs: Outputs = {}
    for (role, _), texts in zip(items, context.map(ask, items), strict=True):
        outputs.setdefault(role, []).append(texts)
    return outputs


def node_rewards(
    context: SearchContext, calls: Contexts, outputs: Outputs, demos: Preferences, *, listwise: bool
) -> dict[str, list[float]]:
    """g_i(k) (L2), one call per output, or (`listwise`) per context. Equal outputs have one reward, an unreadable one
    is worth nothing.
    """
    groups: list[tuple[dict[str, Any], list[str]]] = []
    places: list[tuple[str, list[int], list[int]]] = []  # role, candidates, and which of them is judged for each
    for role, texts in outputs.items():
        for t, call in enumerate(calls[role]):
            readable = [k for k in range(len(texts)) if texts[k][t] is not None]
            first = alike([texts[k][t] for k in readable])
            places.append((role, readable, first))
            common = {
                "role": role,
                "role_description": clip(context.roles.text(context.baseline, role), PROMPT),
                "received": received(call),
                "examples": demos.shown(role),
            }
            groups.append((common, [texts[readable[n]][t] or "" for n in sorted(set(first))]))
    if listwise:
        scores = judge.rate_together(context, judge.RateOutputs, judge.RateOutput, groups)
    else:
        single = [{**common, "output": text} for common, texts in groups for text in texts]
        flat = iter(judge.rate(context, judge.RateOutput, single))
        scores = [[next(flat) for _ in texts] for _, texts in groups]
    means = {role: [0.0] * len(texts) for role, texts in outputs.items()}
    for (role, readable, first), found in zip(places, scores, strict=True):
        judged = dict(zip(sorted(set(first)), found, strict=True))
        for k, n in zip(readable, first, strict=True):
            means[role][k] += judged[n] / len(calls[role])
    return means


def edge_rewards(
    context: SearchContext, graph: RoleGraph, pools: Pools, outputs: Outputs, demos: Preferences
) -> dict[tuple[str, str], list[list[float]]]:
    """g_ij(k, l) (L3); one call judges an output under all candidates of its reader.

    Candidates of a reader that wrote the same in every context are one candidate here: what a judge makes of their
    texts is no evidence, and its noise would move an assignment that nothing speaks against. Agents that share a
    prompt read each other under that prompt, so only l = k is asked there.
    """
    same = {role: alike([tuple(texts) for texts in outputs.get(role, ())]) for role in pools}
    groups: list[tuple[dict[str, Any], list[str]]] = []
    places: list[tuple[tuple[str, str], int, list[int]]] = []
    for i, j in dict.fromkeys((graph.role_of(a), graph.role_of(b)) for a, b in graph.edges):
        for k, texts in enumerate(outputs.get(i, ())):
            readers = [k] if i == j else sorted(set(same[j])) or list(range(len(pools[j])))
            for text in texts:
                if text is not None:
                    common = {"receiver": j, "message": clip(text, OUTPUT), "examples": demos.shown(j)}
                    places.append(((i, j), k, readers))
                    groups.append((common, [clip("\n\n".join(pools[j][m]), PROMPT) for m in readers]))
    scores = judge.rate_together(context, judge.RateHandoffs, judge.RateHandoff, groups)
    tables = {(i, j): [[0.0] * len(pools[j]) for _ in pools[i]] for (i, j), _, _ in places}
    for ((i, j), k, readers), found in zip(places, scores, strict=True):
        for m, score in zip(readers, found, strict=True):
            tables[i, j][k][m] += score / len(outputs[i][k])
    return {
        (i, j): table if i == j or not same[j] else [[row[m] for m in same[j]] for row in table]
        for (i, j), table in tables.items()
    }


def alike(items: Sequence[Any]) -> list[int]:
    """For each item the place of the first one that equals it."""
    first: dict[Any, int] = {}
    return [first.setdefault(item, place) for place, item in enumerate(items)]


def best_assignment(
    graph: RoleGraph, rewards: Rewards, *, edge_power: float = 1.0
) -> tuple[dict[str, int], MapAssignment]:
    """The MAP choice per role. Every agent and every later appearance of a role is a node, tied to the role's pool.

    Each table is scaled to a maximum of 1 first, so that a lenient judge of edges does not outweigh a strict one of
    nodes; ties keep the anchor's prompts.
    """
    nodes = [(name, index) for name in graph.roles for index in range(graph.counts[name])]
    place = {node: n for n, node in enumerate(nodes)}
    roles = list(rewards.node)
    node = {role: normalised([values])[0] for role, values in rewards.node.items()}
    edge = {pair: normalised(table) for pair, table in rewards.edge.items()}
    edges = {
        (place[a, x], place[b, y]): edge[graph.role_of(a), graph.role_of(b)]
        for a, b in graph.edges
        if (graph.role_of(a), graph.role_of(b)) in edge
        for x, y in itertools.product(range(graph.counts[a]), range(graph.counts[b]))
    }
    owners = [graph.role_of(name) for name, _ in nodes]
    found = map_assignment(
        [node[role] for role in owners], edges, tied=[roles.index(role) for role in owners], edge_power=edge_power
    )
    return {role: found.choice[owners.index(role)] for role in roles}, found


def normalised(table: Sequence[Sequence[float]]) -> list[list[float]]:
    """A table scaled to a maximum of 1; one that is all zero tells nothing and becomes all 1."""
    top = max((value for row in table for value in row), default=0.0)
    if top <= 0 or not math.isfinite(top):
        return [[1.0] * len(row) for row in table]
    return [[value / top for value in row] for row in table]
