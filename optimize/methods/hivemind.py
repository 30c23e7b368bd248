"""`hivemind`: find the role that holds the team back by its Shapley value, and give it lessons (arXiv 2512.06432).

A cycle: run coalitions of roles on a few training rows; the role with the smallest contribution is the bottleneck; a
reflection over the whole team's failures and successes writes lessons for it; the lessons stay when the team's score
on the acceptance rows rises. Masks, pruning and reuse are in `optimize.coalitions`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal

import dspy

from metrics.errors import ConfigurationError
from optimize import seeds
from optimize.blame import FAILED
from optimize.candidates import Candidate
from optimize.clip import PROMPT, clip
from optimize.coalitions import (
    MOST_PLAYERS,
    Credit,
    CreditMode,
    Game,
    MaskMode,
    Plan,
    assess,
    make_plan,
    resolve_mode,
    standard_error,
)
from optimize.context import SearchContext
from optimize.guard import problem_with
from optimize.methods.base import Method
from optimize.methods.presets import check_at_least, check_choice, settle
from optimize.records import Records, graph_of
from optimize.rewriter import TEMPERATURE
from optimize.rows import Row
from optimize.stops import StopSearch
from optimize.work import NOTHING, blocks, work_text

HEADING = "Lessons from earlier runs:"
SHOWN = 6  # failures, and successes, in a reflection
LESSON = 300  # characters
MARGIN = 1e-9
SHARE = 6  # a cycle takes at most one part in six of the budget, where sampling can see to that
LEAST_ROWS = 2
IDLE_TURNS = 3  # of every role without a new run, after which the search ends
_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d+[.)])\s+")


class WriteLessons(dspy.Signature):
    """A team of language models solves tasks; each member works by an instruction. One member holds the team back.
    Look at what it wrote in runs that failed and in runs that succeeded, and write lessons for it.

    Write three to six lessons, one per line, each starting with `- `: short, general rules for what this member should
    do or avoid. Say nothing that the instruction says already, and repeat none of the rejected lessons.
    """

    role: str = dspy.InputField()
    current_instruction: str = dspy.InputField()
    contribution: str = dspy.InputField(desc="what the member contributes to the team's score")
    failures: str = dspy.InputField(desc="runs that failed")
    successes: str = dspy.InputField(desc="runs that succeeded")
    rejected_lessons: str = dspy.InputField(desc="lessons that were tried and did not help")
    lessons: str = dspy.OutputField(desc="lines `- lesson`")


class HiveMind(Method):
    """Options and their defaults:

    `coalition_rows` 5: training rows per cycle. `accept_rows` 10: validation rows that decide, fixed for the search.
    `mask_mode` auto: `prune` (coalitions without a path are worth 0 and are not run), `placeholder` (masked roles leave
    a neutral message), `bypass` (they pass on what they were sent); `auto` prunes where that can tell roles apart.
    `score` phi: what is compared, `phi` or `adjusted` for the role's place (mask mode `auto` decides both).
    `credit` auto: `exact`, `permutation`, or what `max_coalitions` 40 and a sixth of the budget allow.
    `max_cycles` 0: as many measurements as the budget holds. `lessons_kept` 6: per role, the newest. `remeasure` False:
    credit is measured again after an acceptance, or when all roles had their turn: a small contribution does not mean
    that a role can be improved, and a rejection changes nobody's contribution; True measures before every proposal.
    `fixed` (): roles that are always active and get every third proposal instead of competing. `players` roles: or
    `prompts`, where a coalition has the improved prompts of its members and the others' first ones, nothing is masked.

    Presets: `paper` (prune, phi, remeasure), `peer` (placeholder, phi, remeasure, 5 acceptance rows).
    """

    name: ClassVar[str] = "hivemind"
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {"mask_mode": "prune", "score": "phi", "remeasure": True},
        "peer": {"mask_mode": "placeholder", "score": "phi", "remeasure": True, "accept_rows": 5},
    }
    coalition_rows: int = 5
    accept_rows: int = 10
    mask_mode: MaskMode = "auto"
    score: str = "phi"
    credit: CreditMode = "auto"
    max_coalitions: int = 40
    max_cycles: int = 0
    lessons_kept: int = 6
    remeasure: bool = False
    fixed: Sequence[str] = ()
    players: str = "roles"

    def __init__(
        self,
        metric: Any = None,
        *,
        preset: Literal["paper", "peer"] | None = None,
        coalition_rows: int | None = None,
        accept_rows: int | None = None,
        mask_mode: MaskMode | None = None,
        score: Literal["phi", "adjusted"] | None = None,
        credit: CreditMode | None = None,
        max_coalitions: int | None = None,
        max_cycles: int | None = None,
        lessons_kept: int | None = None,
        remeasure: bool | None = None,
        fixed: Sequence[str] | None = None,
        players: Literal["roles", "prompts"] | None = None,
        **common: Any,
    ) -> None:
        super().__init__(metric, **common)
        settle(self, preset, locals())
        check_choice("mask_mode", self.mask_mode, ("auto", "prune", "placeholder", "bypass"))
        check_choice("score", self.score, ("phi", "adjusted"))
        check_choice("credit", self.credit, ("auto", "exact", "permutation"))
        check_choice("players", self.players, ("roles", "prompts"))
        check_at_least(1, coalition_rows=self.coalition_rows, accept_rows=self.accept_rows)
        check_at_least(1, max_coalitions=self.max_coalitions, lessons_kept=self.lessons_kept)
        check_at_least(0, max_cycles=self.max_cycles)

    def minimum_budget(self, context: SearchContext) -> int:
        """One cycle with a single order of the players on two rows, and the acceptance rows twice."""
        if not context.roles.names:
            return 0
        rows = min(LEAST_ROWS, self.coalition_rows, len(context.train))
        return 2 * self._n_accept(context) + self._n_players(context) * rows

    def advised_budget(self, context: SearchContext) -> int:
        n = self._n_players(context)
        runs = n if self.credit == "permutation" else min(self.max_coalitions, 2**n - 1)
        return self._n_accept(context) + 3 * (runs * self.coalition_rows + self._n_accept(context))

    def expected_calls(self, context: SearchContext) -> int:
        """A measurement is followed by up to a proposal for every role, one call each."""
        players, roles, accept = self._n_players(context), len(context.roles.names), self._n_accept(context)
        rows = max(1, min(self.coalition_rows, len(context.train)))
        fits = (context.ledger.limit // SHARE - accept) // rows
        runs = max(players, min(self.max_coalitions, fits, 2 ** min(players, MOST_PLAYERS) - 1))
        per_measurement = 1 if self.remeasure else roles
        cycle = runs * rows + per_measurement * accept
        return max(1, round(per_measurement * (context.ledger.limit - accept) / max(1, cycle)))

    def _n_accept(self, context: SearchContext) -> int:
        return min(self.accept_rows, len(context.validation))

    def _n_players(self, context: SearchContext) -> int:
        graph = context.roles.graph
        return sum(graph.counts.get(r, 1) if graph is not None else 1 for r in context.roles.names)

    def run(self, context: SearchContext) -> Candidate:
        """Cycles until the budget does not hold another one."""
        if not context.roles.names:
            return context.baseline
        if unknown := sorted(set(self.fixed) - set(context.roles.names)):
            raise ConfigurationError(f"fixed roles {unknown} do not exist; there are {', '.join(context.roles.names)}")
        log, records = context.log, Records(context)
        accept_rows = seeds.draw(context.validation, self.accept_rows, context.seed, self.name, "accept")
        current = context.baseline
        best = records.trial(current, accept_rows, "validation")
        if best is None:
            raise StopSearch("infrastructure" if context.ledger.remaining else "budget")
        log.commit(current, best)
        graph = graph_of(context, records.fetch(current, accept_rows))
        # Agents of a single prompt need not be told apart: there is only one bottleneck to choose.
        several = len(context.roles.names) > 1
        game = Game.of(context, graph, self.fixed, agents=several and self.players == "roles")
        mode, score = resolve_mode(self.mask_mode, self.score, game) if self.players == "roles" else ("prompts", "phi")
        lessons = {role: lessons_in(context.roles.text(current, role)) for role in context.roles.names}
        rejected: dict[str, list[str]] = {role: [] for role in context.roles.names}
        tried: dict[str, int] = {}  # role -> number of its last proposal
        waiting: set[str] = set()  # roles whose lessons were rejected since the last measurement
        credit: Credit | None = None
        idle, spent = 0, context.ledger.spent  # proposals since something new was run
        for number in itertools.count(1):
            if context.ledger.spent != spent:
                idle, spent = 0, context.ledger.spent
            elif idle >= IDLE_TURNS * len(context.roles.names):
                log.stop_reason = "no new lessons"  # every row and every lesson is known: it would go on for ever
                break
            idle += 1
            if credit is None:
                credit, stop = self.measure(records, game, mode, current, len(log.extra.setdefault("phi", [])) + 1)
            else:
                stop = "budget" if context.ledger.remaining < len(accept_rows) else ""
            if credit is None or stop or best >= 1:
                log.stop_reason = "perfect" if best >= 1 else stop
                break
            phi = credit.by_role(credit.phi)
            role = self.fixed_turn(number) or bottleneck(credit, score, tried, waiting)
            tried[role] = number
            log.note("bottleneck", role=role, phi=phi, score=score, mode=mode, total=credit.total)
            log.extra["phi"][-1].setdefault("bottleneck", role)

            new = self.reflect(context, role, current, phi, credit.full, lessons[role], rejected[role])
            kept = [*lessons[role], *new][-self.lessons_kept :]
            candidate = self.with_role_lessons(context, current, role, kept) if new else None
            accepted = False
            if candidate is None:
                log.refused(context.roles.predictors[role][0], "no new lessons")
            else:
                log.proposed(candidate, origin="lessons", parent=current, role=role, lessons=new)
                found = records.trial(candidate, accept_rows, "validation")
                accepted = found is not None and found > best + MARGIN
                log.decided(candidate, accepted, "invalid" if found is None else f"{found:g} against {best:g}")
            if accepted and candidate is not None and found is not None:
                current, best = candidate, found
                lessons[role] = kept
                rejected = {role: [] for role in rejected}  # under another assignment they may help
                log.commit(current, best)
            else:
                rejected[role] = [*rejected[role], *new][-self.lessons_kept :]
                waiting.add(role)
            if accepted or self.remeasure or waiting >= set(phi):
                credit, waiting = None, set()
        log.extra["lessons"] = lessons
        return log.incumbent

    def measure(
        self, records: Records, game: Game, mode: str, current: Candidate, cycle: int
    ) -> tuple[Credit | None, str]:
        """The credit of the current team on fresh training rows, or (None, why there is none)."""
        context = records.context
        if self.max_cycles and cycle > self.max_cycles:
            return None, "cycles"
        plan = self.plan(context, game, mode, cycle)
        rows = self.rows(context, plan, cycle)
        credit = assess(records, plan, current, rows) if rows else None
        if credit is None:
            return None, "infrastructure" if rows and context.ledger.remaining else "budget"
        phi = credit.by_role(credit.phi)
        errors = {role: standard_error(credit.role_rows(role)) for role in phi}
        context.log.note("credit", cycle=cycle, phi=phi, coalitions=len(plan.runs), rows=len(credit.full))
        context.log.extra["phi"].append({**phi, "cycle": cycle, "standard_errors": _finite(errors)})
        return credit, ""

    def plan(self, context: SearchContext, game: Game, mode: str, cycle: int) -> Plan:
        """The coalitions of a cycle; all of them where they take a small part of the budget."""
        rows = min(self.coalition_rows, len(context.train))
        fits = (context.ledger.limit // SHARE - self._n_accept(context)) // rows
        cap = self.max_coalitions if self.credit == "exact" else max(1, min(self.max_coalitions, fits))
        return make_plan(game, mode, credit=self.credit, cap=cap, rng=context.rng("orders", cycle), groups=rows)

    def rows(self, context: SearchContext, plan: Plan, cycle: int) -> list[Any]:
        """The training rows of a cycle, as many as its planned cost leaves room for; none when it does not fit."""
        wanted = min(self.coalition_rows, len(context.train))
        left = context.ledger.remaining - self._n_accept(context)
        fits = max((n for n in range(wanted + 1) if plan.cost(n) <= left), default=0)
        if fits < min(LEAST_ROWS, wanted):
            return []
        return seeds.draw(context.train, fits, context.seed, self.name, "rows", cycle)

    def fixed_turn(self, number: int) -> str | None:
        """Every third proposal belongs to the fixed roles, in turn."""
        return self.fixed[(number // 3 - 1) % len(self.fixed)] if self.fixed and number % 3 == 0 else None

    def reflect(
        self,
        context: SearchContext,
        role: str,
        current: Candidate,
        phi: Mapping[str, float],
        seen: Sequence[Row],
        lessons: Sequence[str],
        rejected: Sequence[str],
    ) -> list[str]:
        """New lessons for a role; none when the reply holds none."""
        ranked = sorted(phi, key=lambda r: -phi[r])
        place = "not measured"
        if role in phi:
            place = f"{phi[role]:.3f} of the team's score, rank {ranked.index(role) + 1} of {len(ranked)}"
        failed = [row for row in seen if (row.score or 0.0) < FAILED]
        right = [row for row in seen if (row.score or 0.0) >= FAILED]
        reply = context.ask(
            WriteLessons,
            temperature=TEMPERATURE,
            role=role,
            current_instruction=clip(context.roles.text(current, role), PROMPT),
            contribution=place,
            failures=blocks([_run_text(row, role) for row in failed[:SHOWN]]),
            successes=blocks([_run_text(row, role) for row in right[:SHOWN]]),
            rejected_lessons="\n".join(f"- {lesson}" for lesson in rejected) or NOTHING,
        )
        known = {_plain(lesson) for lesson in lessons}
        found = parse_lessons(reply.lessons) if reply is not None else []
        return [lesson for lesson in found if _plain(lesson) not in known][: self.lessons_kept]

    def with_role_lessons(
        self, context: SearchContext, current: Candidate, role: str, lessons: Sequence[str]
    ) -> Candidate | None:
        """The candidate with these lessons for a role; None when it breaks the contract or changes nothing."""
        seed = context.roles.texts(context.baseline, role)
        texts = [with_lessons(text, lessons) for text in seed]
        if any(problem_with(text, own) for text, own in zip(texts, seed, strict=True)):
            return None
        candidate = context.roles.with_text(current, role, *texts)
        return candidate if candidate.id != current.id else None


def bottleneck(credit: Credit, score: str, tried: Mapping[str, int], waiting: Collection[str] = ()) -> str:
    """The role with the smallest score, of those that do not wait. Roles within one standard error of it are tied with
    it: among them the one that was tried longest ago, then the smaller score, then role order. A place that is owed
    nothing is no bottleneck.
    """
    scale = credit.scales(score)
    phi = {role: value for role, value in credit.by_role(credit.phi).items() if role not in waiting}
    roles = [role for role in phi if scale[role]] or list(phi)
    values = {role: phi[role] * scale[role] for role in roles}
    rows = {role: [v * scale[role] for v in credit.role_rows(role)] for role in roles}
    least = min(roles, key=lambda r: (values[r], roles.index(r)))

    def tied(role: str) -> bool:
        gap = standard_error([a - b for a, b in zip(rows[role], rows[least], strict=True)])
        return values[role] - values[least] <= MARGIN + (gap if gap == gap else 0.0)

    level = {role: round(values[role] / MARGIN) for role in roles}
    return min(filter(tied, roles), key=lambda r: (tried.get(r, 0), level[r], roles.index(r)))


def lessons_in(text: str) -> list[str]:
    """The lessons that an instruction ends with, from an earlier search."""
    return parse_lessons(text.split(f"\n\n{HEADING}\n", 1)[1]) if f"\n\n{HEADING}\n" in text else []


def with_lessons(text: str, lessons: Sequence[str]) -> str:
    """An instruction with these lessons as its last part, in place of any that it had."""
    seed = text.split(f"\n\n{HEADING}\n", 1)[0]
    return f"{seed}\n\n{HEADING}\n" + "\n".join(f"- {lesson}" for lesson in lessons) if lessons else seed


def parse_lessons(text: Any) -> list[str]:
    """The lines of the last block of a reply, without bullets and repetitions; bulleted lines only where there are
    any.
    """
    parts = [part for part in re.split(r"\n\s*\n", str(text or "")) if part.strip()]
    with_bullets = [part for part in parts if any(map(_BULLET.match, part.splitlines()))]
    lines = (with_bullets or parts or [""])[-1].splitlines()
    bulleted = [line for line in lines if _BULLET.match(line)]
    plain = [_BULLET.sub("", line).strip() for line in bulleted or lines]
    unique: dict[str, str] = {}
    for line in plain:
        if re.search(r"\w", line):
            unique.setdefault(_plain(line), clip(line, LESSON))
    return list(unique.values())


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")


def _run_text(row: Row, role: str) -> str:
    return (
        f"task: {clip(str(row.example.question), 300)}\n"
        f"wrote: {clip(work_text(row, role, 400), 400)}\n"
        f"outcome: {row.feedback or row.score}"
    )
