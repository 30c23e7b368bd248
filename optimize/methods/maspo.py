"""`maspo`: beam search over one role at a time, with proposals judged for role, readers and team (arXiv 2605.06623).

Roles take turns in topological order. A step proposes new prompts for each beam node from its own runs, runs them on
the same examples (only the role and what depends on it is executed again, `optimize.replay`) and adds the relative win
rate to the node's value. Samples that a role wins and the team loses come back in the batches of the role's readers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from metrics.errors import ConfigurationError
from optimize import rewriter, seeds
from optimize.beam import Node, Texts, best_nodes
from optimize.candidates import Candidate
from optimize.context import SearchContext
from optimize.improve import improve, in_parts
from optimize.joint import Sample, Weights, case_text, compare_runs, misaligned, remember, win_rate
from optimize.methods.base import Method
from optimize.methods.presets import check_at_least, check_choice, settle
from optimize.records import Records, graph_of
from optimize.rows import Row
from optimize.stops import StopSearch
from programs.role_graph import RoleGraph

MARGIN = 1e-6
BATCH, SMALL_BATCH, TINY_BATCH = 10, 6, 4
INJECTED = 0.5  # the largest share of a batch that comes from senders' misaligned samples
STEPS = 3  # of a role in one turn


@dataclass
class RoleState:
    """Where the search of one role stands. `misled`: its misaligned samples, `bad`: samples it lost, newest first."""

    beam: list[Node]
    best: Node
    layers: int = 0
    misled: list[Sample] = field(default_factory=list)
    bad: list[Sample] = field(default_factory=list)


class MASPO(Method):
    """Options and their defaults:

    `beam` 2: nodes per role. `proposals` 2: per node and step, each from its own part of the batch. `batch` 0: rows per
    step; 0 takes 10 where a round of all roles fits the budget, else 6 (4 for budgets below 100). `layers` 9: steps per
    role in all, three per turn. `weights` (.4, .4, .2): of local, next and global comparisons. `refresh_weights`
    (.7, .3): local and global where values are refreshed; with `lookahead` False in every step. `global_signal` metric:
    or `judge`, for rows without labels. `orders` both: or `hashed`, one call per comparison instead of two.
    `mislead_on_accept_only` False: keep misaligned samples of rejected proposals as well. `choice_rows` 10: validation
    rows on which a moved team is scored after a turn, the best one is returned; 0 returns where the search stands.
    `price` full: or `fractional`, which charges a rollout by the share of predictor calls that were executed.

    Presets: `paper` (no labels: the judge compares answers, nothing is scored; samples kept on acceptance only), `peer`
    (batches of 10, nothing is scored).
    """

    name: ClassVar[str] = "maspo"
    call_tokens: ClassVar[int] = 1000  # most calls are a judge's, with short replies
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {"global_signal": "judge", "batch": BATCH, "mislead_on_accept_only": True, "choice_rows": 0},
        "peer": {"batch": BATCH, "choice_rows": 0},
    }
    beam: int = 2
    proposals: int = 2
    batch: int = 0
    layers: int = 9
    weights: Sequence[float] = (0.4, 0.4, 0.2)
    refresh_weights: Sequence[float] = (0.7, 0.3)
    lookahead: bool = True
    global_signal: Literal["metric", "judge"] = "metric"
    orders: Literal["both", "hashed"] = "both"
    mislead_on_accept_only: bool = False
    choice_rows: int = 10
    price: Literal["full", "fractional"] = "full"

    def __init__(
        self,
        metric: Any = None,
        *,
        preset: Literal["paper", "peer"] | None = None,
        beam: int | None = None,
        proposals: int | None = None,
        batch: int | None = None,
        layers: int | None = None,
        weights: Sequence[float] | None = None,
        refresh_weights: Sequence[float] | None = None,
        lookahead: bool | None = None,
        global_signal: Literal["metric", "judge"] | None = None,
        orders: Literal["both", "hashed"] | None = None,
        mislead_on_accept_only: bool | None = None,
        choice_rows: int | None = None,
        price: Literal["full", "fractional"] | None = None,
        **common: Any,
    ) -> None:
        super().__init__(metric, **common)
        settle(self, preset, locals())
        check_choice("global_signal", self.global_signal, ("metric", "judge"))
        check_choice("orders", self.orders, ("both", "hashed"))
        check_choice("price", self.price, ("full", "fractional"))
        check_at_least(1, beam=self.beam, proposals=self.proposals, layers=self.layers)
        check_at_least(0, batch=self.batch, choice_rows=self.choice_rows)
        for name, size in (("weights", 3), ("refresh_weights", 2)):
            given = getattr(self, name)
            if len(given) != size or min(given) < 0 or not math.isclose(sum(given), 1, abs_tol=1e-6):
                raise ConfigurationError(f"{name} must be {size} shares of 1, not {given!r}")

    def minimum_budget(self, context: SearchContext) -> int:
        """One batch for the baseline and for one proposal, and the choice rows for both."""
        return 2 * (self._batch(context) + self._n_choice(context)) if context.roles.names else 0

    def advised_budget(self, context: SearchContext) -> int:
        """One turn of every role."""
        turn = STEPS * self._batch(context) * self.beam * (1 + self.proposals) + self._n_choice(context)
        return self._n_choice(context) + len(context.roles.names) * turn

    def expected_calls(self, context: SearchContext) -> int:
        step = self._batch(context) * self.beam * (1 + self.proposals)
        judged = self.beam * self.proposals * self._batch(context) * 2 * (2 if self.orders == "both" else 1)
        return context.ledger.limit // max(1, step) * (judged + self.beam * self.proposals)

    def _batch(self, context: SearchContext) -> int:
        size = self.batch
        if not size:
            cycle = STEPS * len(context.roles.names) * BATCH * self.beam * (1 + self.proposals)
            size = (
                BATCH if cycle <= context.ledger.limit else SMALL_BATCH if context.ledger.limit >= 100 else TINY_BATCH
            )
        return min(size, len(context.train))

    def _n_choice(self, context: SearchContext) -> int:
        if self.global_signal == "judge":
            return 0
        return min(self.choice_rows, max(TINY_BATCH, context.ledger.limit // 12), len(context.validation))

    def run(self, context: SearchContext) -> Candidate:
        """The fixed-rounds path of the paper with joint evaluation, misalignment and refresh."""
        if not context.roles.names:
            return context.baseline
        context.ledger.price = self.price
        return _Search(self, context).run()


class _Search:
    """One search: the state of every role, and the anchor, which is the assignment that the team has now."""

    def __init__(self, method: MASPO, context: SearchContext) -> None:
        self.method = method
        self.context = context
        self.log = context.log
        self.records = Records(context)
        self.anchor = context.baseline
        self.size = method._batch(context)
        self.choice = seeds.draw(context.validation, method._n_choice(context), context.seed, method.name, "choice")
        self.turn = 0
        self.rates: list[dict[str, Any]] = []
        self.agreement: list[bool] = []

    # -- the algorithm -----------------------------------------------------------------------------

    def run(self) -> Candidate:
        log, context = self.log, self.context
        if self.choice:
            score = self.records.trial(self.anchor, self.choice, "validation")
            if score is None:
                raise StopSearch("infrastructure" if context.ledger.remaining else "budget")
            log.commit(self.anchor, score)
        self.graph = self.find_graph()
        order = dict.fromkeys(self.graph.role_of(node) for node in self.graph.topological_order())
        self.roles = [role for role in order if role in context.roles.names]
        self.states = {role: self.first_state(role) for role in self.roles}
        while log.stop_reason == "":
            before = self.turn
            for role in self.roles:
                if self.states[role].layers < self.method.layers and not self.take_turn(role):
                    log.stop_reason = "perfect" if log.best_score is not None and log.best_score >= 1 else "budget"
                    break
            if self.turn == before:
                log.stop_reason = log.stop_reason or "layers"
        log.extra |= {"misalignment": self.rates, "refresh_agreement": self.agreement, "anchor": self.anchor.to_json()}
        log.extra["misaligned"] = {role: [s.row.id for s in self.states[role].misled] for role in self.roles}
        return log.incumbent

    def take_turn(self, role: str) -> bool:
        """Refresh the beam and take up to three steps; False when the search has to end."""
        state, before = self.states[role], self.anchor.id
        self.turn += 1
        if state.layers:
            self.refresh(role)
        going = True
        for _ in range(min(STEPS, self.method.layers - state.layers)):
            going = self.step(role)
            if not going:
                break
            state.layers += 1
        if self.anchor.id != before:
            self.choose()
        return going and not (self.log.best_score is not None and self.log.best_score >= 1)

    def step(self, role: str) -> bool:
        """One layer: proposals for every beam node, judged against it. False when the budget does not hold it."""
        state, method = self.states[role], self.method
        batch, injected = self.draw_batch(role)
        children: list[Node] = list(state.beam)
        outcomes: dict[Texts, list[Sample]] = {}
        complete = True
        for node in state.beam:
            reference = self.context.roles.with_text(self.anchor, role, *node.texts)
            base = self.run_on(reference, batch)
            if not base:
                complete = False
                break
            for texts in self.propose(role, node, base):
                candidate = self.context.roles.with_text(self.anchor, role, *texts)
                self.log.proposed(candidate, origin="improve", parent=reference, role=role)
                rows = self.run_on(candidate, batch)
                if not rows:
                    complete = False
                    break
                samples = self.judge(role, base, rows, self.weights)
                gain = win_rate(samples, self.weights) - 0.5
                self.note_misalignment(role, state.layers, samples, injected)
                if not method.mislead_on_accept_only:
                    remember(state.misled, misaligned(samples))
                self.log.decided(candidate, gain > 0, f"value {gain:+.3f} against its parent")
                if gain > 0:
                    children.append(Node(texts, node.cum + gain, (*node.path, gain)))
                    outcomes[texts] = samples
        state.beam = best_nodes(children, method.beam)
        top = state.beam[0]
        if top.cum > state.best.cum + MARGIN:
            state.best = top
            self.anchor = self.context.roles.with_text(self.anchor, role, *top.texts)
            samples = outcomes.get(top.texts, [])
            remember(state.bad, [s for s in samples if s.lost])
            remember(state.misled, misaligned(samples))
            self.log.note("anchor", role=role, candidate=self.anchor.id, value=top.cum)
        return complete

    def refresh(self, role: str) -> None:
        """Other roles have moved, so values are measured anew against the anchor, on fresh rows and without lookahead.

        The anchor's own node is worth 0; it gives way only to a node that beats it now.
        """
        state = self.states[role]
        mine = self.context.roles.texts(self.anchor, role)
        others = [node for node in state.beam if node.texts != mine]
        rows = seeds.draw(self.context.train, self.size, self.context.seed, "refresh", role, self.turn)
        if not others:
            state.beam = [Node(mine)]
            state.best = state.beam[0]
            return
        base = self.run_on(self.anchor, rows)
        if not base:
            return
        fresh = [Node(mine)]
        local, total = self.method.refresh_weights
        weights = (local, 0.0, total)
        for node in others:
            found = self.run_on(self.context.roles.with_text(self.anchor, role, *node.texts), rows)
            if found:
                value = win_rate(self.judge(role, base, found, weights), weights) - 0.5
                fresh.append(Node(node.texts, value, (value,)))
        top_before = state.beam[0].texts
        state.beam = best_nodes(fresh, self.method.beam)
        state.best = state.beam[0] if state.beam[0].cum > MARGIN else next(n for n in fresh if n.texts == mine)
        self.agreement.append(state.beam[0].texts == top_before)
        if state.best.texts != mine:
            self.anchor = self.context.roles.with_text(self.anchor, role, *state.best.texts)
            self.log.note("anchor", role=role, candidate=self.anchor.id, value=state.best.cum, refreshed=True)

    def choose(self) -> None:
        """Score the team where the search stands; it is the incumbent when it beats the best one so far."""
        if not self.choice:
            self.log.commit(self.anchor, None)
            return
        score = self.records.trial(self.anchor, self.choice, "validation")
        if score is not None and self.log.best_score is not None and score > self.log.best_score:
            self.log.commit(self.anchor, score)

    # -- its parts ---------------------------------------------------------------------------------

    @property
    def weights(self) -> Weights:
        """Weights of a step."""
        if self.method.lookahead:
            local, following, total = self.method.weights
            return local, following, total
        local, total = self.method.refresh_weights
        return local, 0.0, total

    def find_graph(self) -> RoleGraph:
        if self.context.roles.graph is not None or len(self.context.roles.names) == 1:
            return graph_of(self.context, ())
        rows = self.choice or seeds.draw(self.context.train, self.size, self.context.seed, "graph")
        return graph_of(self.context, self.records.fetch(self.anchor, rows))

    def first_state(self, role: str) -> RoleState:
        node = Node(self.context.roles.texts(self.anchor, role))
        return RoleState([node], node)

    def draw_batch(self, role: str) -> tuple[list[Any], set[str]]:
        """Rows of a step and the ids of the injected ones, which come first: misaligned samples of the role's senders.

        All beam nodes of a step share them, so that the anchor is run on them once.
        """
        context, state = self.context, self.states[role]
        rng = context.rng("batch", role, state.layers)
        known = {str(row.id): row for row in context.train}
        cases = [s.row.id for sender in self.neighbours(role, "parents") for s in self.states[sender].misled]
        injected = list(dict.fromkeys(case for case in cases if case in known))
        most = int(self.size * INJECTED)
        if len(injected) > most:
            injected = rng.sample(injected, most)
        others = [row_id for row_id in known if row_id not in injected]
        fill = rng.sample(others, min(len(others), self.size - len(injected)))
        return [known[row_id] for row_id in [*injected, *fill]], set(injected)

    def neighbours(self, role: str, side: Literal["parents", "children"]) -> list[str]:
        """Optimized roles next to any appearance of a role, itself left out."""
        graph = self.graph
        found = [graph.role_of(n) for node in graph.appearances(role) for n in getattr(graph, side)(node)]
        return [name for name in dict.fromkeys(found) if name != role and name in self.states]

    def run_on(self, candidate: Candidate, rows: Sequence[Any]) -> list[Row]:
        """Rows of a candidate, in order; none when they do not fit beside what the choice after this turn takes."""
        reserve = len(self.choice)
        if len(self.records.missing(candidate, rows)) > self.context.ledger.remaining - reserve:
            return []
        found = self.records.fetch(candidate, rows)
        scored = [row.score for row in found if row.score is not None]
        if found:
            self.log.evaluated(candidate, "train", math.fsum(scored) / len(scored) if scored else None, len(found))
        return found

    def judge(self, role: str, base: Sequence[Row], rows: Sequence[Row], weights: Weights) -> list[Sample]:
        """Joint evaluation of one candidate against its reference."""
        readers = self.neighbours(role, "children")
        return compare_runs(
            self.context,
            role,
            readers,
            list(zip(base, rows, strict=True)),
            weights=weights,
            terminal=not readers,
            signal=self.method.global_signal,
            orders=self.method.orders,
        )

    def propose(self, role: str, node: Node, base: Sequence[Row]) -> list[Texts]:
        """New prompts for a node, one from each part of the batch; repetitions and the parent itself are left out."""
        roles, readers = self.context.roles, self.neighbours(role, "children")
        at = self.states[role].layers % len(node.texts)
        found = improve(
            self.context,
            role,
            parent=node.texts[at],
            seed=roles.texts(self.context.baseline, role)[at],
            parts=in_parts([row for row in base if row.usable], self.method.proposals),
            readers=readers,
            trouble=[case_text(sample, name) for name in readers for sample in self.states[name].bad],
            labels=self.method.global_signal == "metric",
        )
        rewriter.refused(self.context, roles.predictors[role][at], found)
        texts = [(*node.texts[:at], p.text, *node.texts[at + 1 :]) for p in found if p.text is not None]
        return list(dict.fromkeys(texts))

    def note_misalignment(self, role: str, layer: int, samples: Sequence[Sample], injected: set[str]) -> None:
        """Diagnostics: the share of misaligned samples among those that were drawn at random."""
        drawn = [s for s in samples if s.row.id not in injected]
        if drawn and drawn[0].local is not None:
            rate = sum(s.priority is not None for s in drawn) / len(drawn)
            self.rates.append({"role": role, "layer": layer, "rate": rate, "n": len(drawn)})
