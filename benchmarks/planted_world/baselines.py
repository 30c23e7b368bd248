"""Baselines under the same ledger: strict hill climbing on paired minibatches of five rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from benchmarks.planted_world.texts import hints
from optimize import rewriter
from optimize.candidates import Candidate
from optimize.context import SearchContext
from optimize.methods.base import Method
from optimize.rows import Row, mean_score
from optimize.work import NOTHING

MINIBATCH = 5
MOST_EDITS = 3  # of one proposal of the random search


class _HillClimbing(Method):
    """A step: run the current prompts on a fresh minibatch, propose, run the proposal on the same rows, keep it when
    its sum is strictly higher.
    """

    def minimum_budget(self, context: SearchContext) -> int:
        return 2 * MINIBATCH

    def run(self, context: SearchContext) -> Candidate:
        log, current = context.log, context.baseline
        log.commit(current, None)
        step = 0
        while context.ledger.remaining >= 2 * MINIBATCH:
            rng = context.rng("step", step)
            batch = rng.sample(context.train, min(MINIBATCH, len(context.train)))
            rows = context.evaluate(current, batch, whole=True)
            candidate = self.propose(context, current, rows, step, rng)
            step += 1
            if candidate.id == current.id:
                continue
            log.proposed(candidate, origin=self.name, parent=current)
            before, after = mean_score(rows), mean_score(context.evaluate(candidate, batch, whole=True))
            accepted = before is not None and after is not None and after > before
            log.decided(candidate, accepted)
            if accepted:
                current = candidate
                log.commit(current, None)
        return log.incumbent

    def propose(
        self, context: SearchContext, current: Candidate, rows: Sequence[Row], step: int, rng: random.Random
    ) -> Candidate:
        """The next proposal; `current` itself when there is none."""
        raise NotImplementedError

    def edit(self, context: SearchContext, current: Candidate, role: str, feedback: str, variation: int) -> Candidate:
        """One edit of one role by the optimizer's model."""
        text = context.roles.text(current, role)
        inputs = {
            "role": role,
            "operation": rewriter.OPERATORS["adding"],
            "team_feedback": NOTHING,
            "role_feedback": feedback or NOTHING,
            "variation": variation,
        }
        seed = context.roles.text(context.baseline, role)
        proposal = rewriter.rewrite(context, rewriter.RewriteInstruction, inputs, parent=text, seed=seed)
        return current if proposal.text is None else context.roles.with_text(current, role, proposal.text)


class RandomSearch(_HillClimbing):
    """One to three edits of random roles, without any feedback."""

    name: ClassVar[str] = "random"

    def propose(
        self, context: SearchContext, current: Candidate, rows: Sequence[Row], step: int, rng: random.Random
    ) -> Candidate:
        candidate = current
        for n in range(rng.randint(1, MOST_EDITS)):
            candidate = self.edit(context, candidate, rng.choice(context.roles.names), "", MOST_EDITS * step + n)
        return candidate


class RoundRobin(_HillClimbing):
    """Roles in turn, each edited by what the score said about the minibatch."""

    name: ClassVar[str] = "round_robin"

    def propose(
        self, context: SearchContext, current: Candidate, rows: Sequence[Row], step: int, rng: random.Random
    ) -> Candidate:
        role = self.role(context, rows, step, rng)
        return self.edit(context, current, role, "\n".join(row.feedback or "" for row in rows), step)

    def role(self, context: SearchContext, rows: Sequence[Row], step: int, rng: random.Random) -> str:
        """Whose turn it is."""
        return context.roles.names[step % len(context.roles.names)]


class Blamed(RoundRobin):
    """The role that the feedback names most often; a random one when it names nobody."""

    name: ClassVar[str] = "blamed"

    def role(self, context: SearchContext, rows: Sequence[Row], step: int, rng: random.Random) -> str:
        named = Counter(role for row in rows for role, _ in hints(row.feedback or ""))
        return max(context.roles.names, key=lambda role: (named[role], rng.random()))


BASELINES: dict[str, type[Any]] = {cls.name: cls for cls in (RandomSearch, RoundRobin, Blamed)}
