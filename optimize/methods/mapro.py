"""`mapro`: joint choice of one prompt per role as MAP inference (arXiv 2510.07475).

Every role has a pool of candidate prompts. A judge rewards each candidate's outputs (nodes) and how usable they are
for each candidate of the next role (edges); the assignment with the highest product of rewards is found exactly and
run; what its failures teach is handed upstream as blame, and the pools are made anew around the anchor. Judging and
probing single roles takes no rollout; only a new joint assignment does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from optimize import blame, preferences, rewriter, seeds
from optimize.candidates import Candidate
from optimize.context import SearchContext
from optimize.grounded import run_edges
from optimize.methods.base import Method
from optimize.methods.presets import check_at_least, check_choice, settle
from optimize.records import graph_of
from optimize.rewards import Rewards, Texts, best_assignment, draw_contexts, reward
from optimize.rows import Row, mean_score
from optimize.stops import StopSearch
from optimize.trials import Trials
from optimize.work import NOTHING
from programs.role_graph import RoleGraph

ANCHOR = "anchor"
LEAST_ROWS = 10  # of an evaluation batch that is cut to a small budget
SHARE = 6  # evaluations that a budget should hold
FEEDBACK_ROWS = 3  # runs that blame is asked about


@dataclass(frozen=True)
class Member:
    """A candidate of a pool; `operator` is what made it."""

    texts: Texts
    operator: str


Pools = dict[str, list[Member]]  # the anchor's own prompt first


class MAPRO(Method):
    """Options and their defaults:

    `pool` 5: candidates per role, the anchor included. `contexts` 3: recorded inputs on which a candidate is judged.
    `eval_rows` 30: rows on which an assignment is run, a third of them training rows (contexts, blame, examples) and
    the rest validation rows (choice, patience); cut to a sixth of a small budget; 0: all. `choice` validation: or
    `train`, where all of them are training rows. `judge` pointwise: or `listwise` (all outputs of a pool in one call).
    `critic` deterministic: or `contrast`, `llm` (see `optimize.preferences`). `anchor` best: or `latest` (the last MAP
    assignment). `waiting` True: a candidate that the judge prefers and that is left out because its neighbours do not
    go with it keeps its place in the next pool until they do. `fresh_rows` True: an iteration without gain is followed
    by other training rows, on which the anchor is run: its old ones have nothing more to say. `patience` 10 and
    `epsilon` 0: stop after so many iterations that improved by no more; most of them choose the anchor's own prompts
    again and cost fresh rows at most.
    `max_iterations` 0: as many as the budget holds. `edges` judge: or `run`, where the reader is asked again with the
    candidate's message and its output is judged (K x K x contexts probes per edge); `edge_power` 1: weight of edges, 0
    leaves them out.
    `least_similarity` 0: of an edit to its parent, in tokens.

    Presets: `paper` (listwise, llm critic, latest anchor, at most 10 iterations, edits at temperature 0.2), `peer` (all
    training rows for everything, at most 8 iterations); both with a patience of 3, without waiting and
    fresh rows.
    """

    name: ClassVar[str] = "mapro"
    call_tokens: ClassVar[int] = 1000  # most calls are a judge's, with short replies
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {
            "judge": "listwise",
            "critic": "llm",
            "anchor": "latest",
            "waiting": False,
            "fresh_rows": False,
            "patience": 3,
            "max_iterations": 10,
            "edit_temperature": 0.2,
        },
        "peer": {
            "choice": "train",
            "eval_rows": 0,
            "waiting": False,
            "fresh_rows": False,
            "patience": 3,
            "max_iterations": 8,
        },
    }
    pool: int = 5
    contexts: int = 3
    eval_rows: int = 30
    choice: str = "validation"
    judge: str = "pointwise"
    critic: str = "deterministic"
    anchor: str = "best"
    waiting: bool = True
    fresh_rows: bool = True
    patience: int = 10
    epsilon: float = 0.0
    max_iterations: int = 0
    edges: str = "judge"
    edge_power: float = 1.0
    least_similarity: float = 0.0
    edit_temperature: float = 0.7

    def __init__(
        self,
        metric: Any = None,
        *,
        preset: Literal["paper", "peer"] | None = None,
        pool: int | None = None,
        contexts: int | None = None,
        eval_rows: int | None = None,
        choice: Literal["validation", "train"] | None = None,
        judge: Literal["pointwise", "listwise"] | None = None,
        critic: Literal["deterministic", "contrast", "llm"] | None = None,
        anchor: Literal["best", "latest"] | None = None,
        waiting: bool | None = None,
        fresh_rows: bool | None = None,
        patience: int | None = None,
        epsilon: float | None = None,
        max_iterations: int | None = None,
        edges: Literal["judge", "run"] | None = None,
        edge_power: float | None = None,
        least_similarity: float | None = None,
        edit_temperature: float | None = None,
        **common: Any,
    ) -> None:
        super().__init__(metric, **common)
        settle(self, preset, locals())
        check_choice("choice", self.choice, ("validation", "train"))
        check_choice("judge", self.judge, ("pointwise", "listwise"))
        check_choice("critic", self.critic, ("deterministic", "contrast", "llm"))
        check_choice("anchor", self.anchor, ("best", "latest"))
        check_choice("edges", self.edges, ("judge", "run"))
        check_at_least(1, pool=self.pool, contexts=self.contexts, patience=self.patience)
        check_at_least(0, eval_rows=self.eval_rows, max_iterations=self.max_iterations)

    def minimum_budget(self, context: SearchContext) -> int:
        """The evaluation batch for the baseline and for one assignment."""
        return 2 * sum(map(len, self.batch(context))) if context.roles.names else 0

    def advised_budget(self, context: SearchContext) -> int:
        return SHARE * sum(map(len, self.batch(context)))

    def expected_calls(self, context: SearchContext) -> int:
        graph, roles = context.roles.graph, len(context.roles.names)
        edges = len(graph.edges) if graph is not None else roles - 1
        iteration = roles * self.pool * self.contexts + edges * self.pool * self.contexts + roles * (self.pool + 2)
        return iteration * max(1, context.ledger.limit // max(1, sum(map(len, self.batch(context)))) - 1)

    def batch(self, context: SearchContext) -> tuple[list[Any], list[Any]]:
        """The training and the validation rows of every evaluation, fixed for the search."""
        train, validation = context.train, context.validation
        if self.choice == "train":
            size = self.eval_rows or len(train)
            return seeds.draw(train, size, context.seed, self.name, "batch"), []
        size = self.eval_rows or len(train) + len(validation)
        size = min(size, max(LEAST_ROWS, context.ledger.limit // SHARE))
        first = seeds.draw(train, max(1, round(size / 3)), context.seed, self.name, "train")
        ids = {str(row.id) for row in first}
        rest = [row for row in validation if str(row.id) not in ids] or validation
        return first, seeds.draw(rest, max(1, size - len(first)), context.seed, self.name, "validation")

    def run(self, context: SearchContext) -> Candidate:
        """Algorithm 1 of the paper."""
        if not context.roles.names:
            return context.baseline
        log, trials = context.log, Trials(context, *self.batch(context))
        best = anchor = context.baseline
        seed = trials.score(best)
        if seed is None:
            raise StopSearch("infrastructure" if context.ledger.remaining else "budget")
        best_score = seed
        log.seed_score = seed
        log.commit(best, best_score)
        graph = graph_of(context, trials.rows(best))
        demos = preferences.Preferences()
        if self.critic == "llm":
            preferences.warm_start(demos, context.roles.names, trials.rows(best))
        pools = self.first_pools(context)
        gains: list[float] = []
        waiting: dict[str, Member] = {}
        while not (stop := self.stops(context, trials, best_score, gains)):
            iteration = len(gains) + 1
            if gains:
                if self.fresh_rows and not gains[-1]:
                    trials.see_more(anchor, iteration)
                pools = self.new_pools(context, graph, anchor, trials.rows(anchor), iteration, waiting)
            rows, texts = trials.rows(anchor), texts_of(pools)
            calls = draw_contexts(context, rows, self.contexts, iteration)
            listwise, judged = self.judge == "listwise", self.edge_power > 0 and self.edges == "judge"
            rewards = reward(context, graph, anchor, texts, calls, demos, listwise=listwise, edges=judged)
            if self.edge_power > 0 and self.edges == "run":
                rewards.edge = run_edges(context, graph, anchor, texts, calls, rows, demos)
            chosen, found = best_assignment(graph, rewards, edge_power=self.edge_power)
            waiting = held_back(pools, rewards, chosen, waiting) if self.waiting else {}
            proposal = anchor
            for role, k in chosen.items():
                proposal = context.roles.with_text(proposal, role, *pools[role][k].texts)
            log.note("map", iteration=iteration, choice=chosen, log_reward=found.log_reward, exact=found.exact)
            log.extra["pools"] = texts
            before = best_score
            if proposal.id not in trials.scores:
                log.proposed(proposal, origin="map", parent=anchor)
                score = trials.score(proposal)
                accepted = score is not None and score > best_score
                log.decided(proposal, accepted, "invalid" if score is None else f"{score:g} against {best_score:g}")
                if accepted and score is not None:
                    best, best_score = proposal, score
                    log.commit(best, best_score)
            gains.append(best_score - before)
            self.update_demos(context, demos, rewards, chosen, trials, anchor, proposal)
            if trials.scores.get(proposal.id) is not None:
                anchor = best if self.anchor == "best" else proposal
        log.stop_reason = stop
        return log.incumbent

    def stops(self, context: SearchContext, trials: Trials, best: float, gains: Sequence[float]) -> str:
        """Why the search ends before the next iteration; empty when it goes on."""
        if best >= 1:
            return "perfect"
        if len(gains) >= self.patience and max(gains[-self.patience :]) <= self.epsilon:
            return "converged"
        if self.max_iterations and len(gains) >= self.max_iterations:
            return "iterations"
        return "budget" if context.ledger.remaining < trials.cost else ""

    # -- pools -------------------------------------------------------------------------------------

    def first_pools(self, context: SearchContext) -> Pools:
        """The baseline's prompt and K - 1 variants of it, from one call per role (L1)."""
        base = context.baseline

        def write(role: str) -> list[rewriter.Proposal]:
            text = context.roles.text(base, role)
            return rewriter.variants(context, role, text, seed=text, count=self.pool - 1)

        written_ = dict(zip(context.roles.names, context.map(write, context.roles.names), strict=True))
        return {role: self.pool_of(context, base, role, found, "variant") for role, found in written_.items()}

    def new_pools(
        self,
        context: SearchContext,
        graph: RoleGraph,
        anchor: Candidate,
        rows: Sequence[Row],
        iteration: int,
        waiting: Mapping[str, Member],
    ) -> Pools:
        """The anchor, who waits, and edits of the anchor up to K per role (L5), after blame has been asked for (L4)."""
        order = {row.id: n for n, row in enumerate(_shuffled(rows, context, iteration))}
        worst = sorted((r for r in rows if r.usable), key=lambda r: (r.score, order[r.id]))[:FEEDBACK_ROWS]
        about_role = blame.propagate(context, graph, worst)
        about_team = blame.team_feedback(rows, worst)
        context.log.note("blame", iteration=iteration, said=about_role)
        names = list(rewriter.OPERATORS)

        def edit(item: tuple[str, int]) -> rewriter.Proposal:
            role, slot = item
            operator = names[slot % len(names)]
            at = slot % len(context.roles.predictors[role])
            near = self.least_similarity and operator != "replacement"
            parent = context.roles.texts(anchor, role)[at]
            return rewriter.rewrite(
                context,
                rewriter.RewriteInstruction,
                {
                    "role": role,
                    "operation": rewriter.OPERATORS[operator],
                    "team_feedback": about_team,
                    "role_feedback": "\n".join(about_role.get(role, [])) or NOTHING,
                    "variation": slot + 1,
                },
                parent=parent,
                seed=context.roles.texts(context.baseline, role)[at],
                check=rewriter.too_far(parent, self.least_similarity) if near else lambda text: None,
                temperature=self.edit_temperature,
            )

        slots = [(role, slot) for role in context.roles.names for slot in range(self.pool - 1 - (role in waiting))]
        edits = context.map(edit, slots)
        pools = {}
        for role in context.roles.names:
            found = [e for e, s in zip(edits, slots, strict=True) if s[0] == role]
            members = self.pool_of(context, anchor, role, found, "edit")
            held = waiting.get(role)
            known = held is None or any(m.texts == held.texts for m in members)
            pools[role] = members if known or held is None else [*members, held]
        return pools

    def pool_of(
        self, context: SearchContext, anchor: Candidate, role: str, found: Sequence[rewriter.Proposal], origin: str
    ) -> list[Member]:
        """The anchor first, then what was written, without repetitions."""
        own, predictors = context.roles.texts(anchor, role), context.roles.predictors[role]
        members = {own: Member(own, ANCHOR)}
        for slot, proposal in enumerate(found):
            rewriter.refused(context, predictors[0], [proposal])
            if proposal.text is not None:
                at = slot % len(predictors) if origin == "edit" else 0
                texts = (*own[:at], proposal.text, *own[at + 1 :])
                operator = list(rewriter.OPERATORS)[slot % len(rewriter.OPERATORS)] if origin == "edit" else origin
                members.setdefault(texts, Member(texts, operator))
        return list(members.values())

    # -- demonstrations ----------------------------------------------------------------------------

    def update_demos(
        self,
        context: SearchContext,
        demos: preferences.Preferences,
        rewards: Rewards,
        chosen: Mapping[str, int],
        trials: Trials,
        anchor: Candidate,
        proposal: Candidate,
    ) -> None:
        """The critic: what the judge is shown next time."""
        if trials.scores.get(proposal.id) is None or not trials.seen(proposal):
            return
        rows = trials.rows(proposal)
        if self.critic == "contrast":
            preferences.contrast(demos, context.roles.names, rows, trials.rows(anchor))
            return
        if self.critic == "llm":
            pools = {role: (rewards.first_outputs(role), rewards.node[role]) for role in rewards.outputs}
            preferences.llm_critic(context, demos, pools, rows)
            return
        success = mean_score([row for row in rows if row.usable]) or 0.0
        for role in rewards.outputs:
            outputs = rewards.first_outputs(role)
            preferences.deterministic(demos, role, outputs, rewards.node[role], chosen[role], success)


def held_back(
    pools: Pools, rewards: Rewards, chosen: Mapping[str, int], before: Mapping[str, Member]
) -> dict[str, Member]:
    """Per role the candidate that is rated above the chosen one: only its neighbours kept it out. One that waits
    already stays until it is rated lower.
    """
    found: dict[str, Member] = {}
    for role, values in rewards.node.items():
        pool, level = pools[role], values[chosen[role]]
        top = max(range(len(values)), key=lambda k: (values[k], -k))
        old = before.get(role)
        if values[top] > level:
            found[role] = pool[top]
        elif old in pool and old is not pool[chosen[role]] and values[pool.index(old)] >= level:
            found[role] = old
    return found


def texts_of(pools: Pools) -> dict[str, list[Texts]]:
    """The texts of every pool."""
    return {role: [member.texts for member in members] for role, members in pools.items()}


def _shuffled(rows: Sequence[Row], context: SearchContext, iteration: int) -> list[Row]:
    return context.rng("failures", iteration).sample(list(rows), len(rows))
