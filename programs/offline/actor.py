"""An agent with tools: the next call of the chain, or the answer when the chain is done."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from programs.offline.arguments import Filler
from programs.offline.names import names_in
from programs.offline.observations import Observation, notes, render, steps, suggestions, wants_missing
from programs.offline.plan import PlannedStep, is_computation, make_plan
from programs.offline.question import COMPARE, Question, is_comparison, own_question, unfold
from programs.offline.request import Seen, Tool
from programs.offline.sources import Source, gather, result_source
from programs.offline.traits import Traits
from programs.offline.words import meaning, number_of
from programs.offline.writing import short

_LEAST = re.compile(r"\b(older|oldest|earlier|first|smaller|smallest|shorter|fewer|less|lower|least)\b", re.IGNORECASE)
MAX_TRIES = 3  # calls of one planned step before the agent goes on without it


@dataclass(frozen=True)
class Result:
    """Where a chain stands at its end: the value, whether every step succeeded, and the steps behind it."""

    value: Any
    complete: bool
    trail: tuple[Observation, ...] = ()
    person: bool = False


class ToolAgent:
    """Works a question with tools, one request at a time; everything is derived anew from the request."""

    def __init__(self, seen: Seen, traits: Traits) -> None:
        self.seen = seen
        self.traits = traits
        self.question: Question = unfold(own_question(seen.get("question")))
        trajectory = seen.get("trajectory")
        self.notes = notes(trajectory)
        self.seen_steps = steps(trajectory)
        self.final_call = any(note.startswith("final call:") for note in self.notes)
        self.plan = self._plan(seen.tools)

    # -- what to do --------------------------------------------------------------------------------

    def next_call(self) -> tuple[str, dict[str, Any], str] | None:
        """(tool, arguments, thought) of the next step, None when the chain is done or cannot go on."""
        if self.final_call or not self.seen.tools:
            return None
        if compared := self._compare_call():
            return compared
        known = list(self.seen_steps)
        for step in self.plan:
            tried = [o for o in known if o.tool == step.tool.name]
            if any(not o.error for o in tried):
                continue
            found = None
            if not tried or ("retry" in self.traits and len(tried) < MAX_TRIES):
                found = self._arguments(step, tried)
            if found is not None:
                return step.tool.name, found, self._thought(step, tried)
        return None

    def result(self) -> Result:
        """The value that the steps so far lead to."""
        if (decided := self._comparison_result()) is not None:
            return decided
        good = [o for o in self.seen_steps if not o.error]
        if not good:
            return Result(None, False)
        by_name = {step.tool.name: step for step in self.plan}
        planned = [o for o in good if o.tool in by_name]
        ranked = sorted(planned, key=lambda o: [s.tool.name for s in self.plan].index(o.tool)) or good
        last = ranked[-1]
        source = result_source(last, by_name.get(last.tool))
        complete = all(any(o.tool == s.tool.name and not o.error for o in good) for s in self.plan)
        value = self._polish(source)
        if self.mental is not None and complete:
            value = _in_the_head(self.mental, value)
        return Result(value, complete, tuple(ranked), source.is_person)

    # -- planning ----------------------------------------------------------------------------------

    def _plan(self, tools: tuple[Tool, ...]) -> list[PlannedStep]:
        self.mental: PlannedStep | None = None
        plan = make_plan(self.question, tools)
        if "hasty" in self.traits:
            return plan[:1]
        if len(plan) >= 3 and self.traits.slips("chain", 0.8, sampled=False):
            plan = [plan[0], plan[-1]]  # jumps from the first thing found to the last thing asked
        if len(plan) >= 2 and is_computation(plan[-1].tool) and self.traits.slips("use_tools", 0.25):
            self.mental = plan.pop()
        return plan

    def _arguments(self, step: PlannedStep, tried: list[Observation]) -> dict[str, Any] | None:
        """Arguments that were not tried yet, None when nothing new comes to mind."""
        pool = gather(self.question, self.seen_steps, self.plan)
        skip: dict[str, set[str]] = {}
        if tried:
            last = tried[-1]
            fixed = self._corrected(step, last)
            if fixed and all(fixed != o.args for o in tried):
                return fixed
            for observation in tried:
                for name, value in observation.args.items():
                    if isinstance(value, str) and name in step.tool.required:
                        skip.setdefault(name, set()).add(value.casefold())
        args, missing = Filler(step, pool, self.question.text, skip).fill()
        if missing and not tried:
            for name in missing:  # nothing fits: the schema's default or an example beats giving up
                schema = step.tool.properties.get(name) or {}
                if "default" in schema:
                    args[name] = schema["default"]
                elif example := re.search(
                    r"e\.g\.,? ['\"`]?([\w .-]{2,30}?)['\"`.,)]", str(schema.get("description") or "")
                ):
                    args[name] = number_of(example[1]) if number_of(example[1]) is not None else example[1]
        if any(args == o.args for o in tried) or (not args and step.tool.required):
            return None
        return args

    def _corrected(self, step: PlannedStep, failed: Observation) -> dict[str, Any] | None:
        """The failed call with a value that its error text suggests, or with the argument that it misses."""
        for name, value in failed.args.items():
            if isinstance(value, str) and name in step.tool.required:
                for name_suggested in suggestions(failed.text, value)[:1]:
                    return {**failed.args, name: name_suggested}
        lacking = [
            name for name in wants_missing(failed.text) if name in step.tool.properties and name not in failed.args
        ]
        if lacking:
            forced = Tool(
                step.tool.name, step.tool.description, {**step.tool.parameters, "required": [*failed.args, *lacking]}
            )
            pool = gather(self.question, self.seen_steps, self.plan)
            args, _ = Filler(PlannedStep(forced, step.chunk, step.fit), pool, self.question.text).fill()
            return args or None
        return None

    def _thought(self, step: PlannedStep, tried: list[Observation]) -> str:
        if tried:
            return f"The call of {step.tool.name} failed; I correct it by the error text."
        return f"Next: {short(step.chunk.text) or step.tool.name}."

    # -- comparisons with one lookup tool ------------------------------------------------------------

    def _compared_names(self) -> list[str]:
        if not is_comparison(self.question) or len([s for s in self.plan if not is_computation(s.tool)]) != 1:
            return []
        return [span.text for span in names_in(self.question.text, join_weak=False)][:4]

    def _compare_call(self) -> tuple[str, dict[str, Any], str] | None:
        names = self._compared_names()
        lookup = next((s for s in self.plan if not is_computation(s.tool)), None)
        if len(names) < 2 or lookup is None or "chain" not in self.traits:
            return None
        done = {str(v) for o in self.seen_steps if o.tool == lookup.tool.name for v in o.args.values()}
        for name in names:
            if name not in done:
                pool = [Source(name, "name", meaning(name), name)]
                args, missing = Filler(lookup, pool, self.question.text).fill()
                if not missing and name in [str(v) for v in args.values()]:
                    return lookup.tool.name, args, f"Next: {name}."
        return None

    def _comparison_result(self) -> Result | None:
        names = self._compared_names()
        if len(names) < 2:
            return None
        found: list[tuple[str, Source, Observation]] = []
        for name in names:
            for observation in self.seen_steps:
                if not observation.error and name in [str(v) for v in observation.args.values()]:
                    found.append((name, result_source(observation, None), observation))
                    break
        if len(found) < 2:
            return None
        trail = tuple(o for _, _, o in found)
        text = self.question.text
        keyed = [(number, name) for name, source, _ in found if (number := source.number) is not None]
        ranked = sorted(keyed, key=lambda item: item[0])
        by_age = any("age" in meaning(observation.tool) for observation in trail)
        ages = re.search(r"\b(older|younger)\b", text, re.IGNORECASE) if by_age else None
        least = ages[1].lower() == "younger" if ages else bool(_LEAST.search(text) and COMPARE.search(text))
        if re.match(r"(?:are|were|is|was|do|does|did|have|has)\b", text, re.IGNORECASE):
            if " than " in text and len(keyed) == 2:
                first, second = keyed[0][0], keyed[1][0]
                return Result("yes" if (first < second if least else first > second) else "no", True, trail)
            same = len({source.text.casefold() for _, source, _ in found}) == 1
            return Result("yes" if same else "no", True, trail)
        if len(keyed) < len(found):
            return None
        return Result(ranked[0 if least else -1][1], True, trail)

    def _polish(self, source: Source) -> Any:
        """Last touches that the question asks for and no tool did: the case of letters, one part of an object."""
        value = source.value
        if isinstance(value, str):
            if re.search(r"\blowercase\b", self.question.text, re.IGNORECASE) and len(value) <= 20:
                return value.lower()
            if re.search(r"\b(?:uppercase|capital letters)\b", self.question.text, re.IGNORECASE) and len(value) <= 20:
                return value.upper()
        return value


def _in_the_head(step: PlannedStep, value: Any) -> Any:
    """A computation done without the tool: roughly right is wrong (numbers off by one, texts left as they are)."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else number_of(render(value))
    if number is None:
        return value
    return number + 1
