"""Filling a tool's arguments from what is known, by type and by the meaning of the parameter's name and description."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from programs.offline.dates import find_dates, iso, years_in
from programs.offline.lexicon import words as words_of
from programs.offline.plan import PlannedStep, is_computation
from programs.offline.request import Tool
from programs.offline.schemas import KIN_WORD, as_object, kind_of, options_of, shaped, types_of, wants_relation
from programs.offline.sources import UNITS, Source, position_in
from programs.offline.words import meaning, number_of, tokens

_VERBS = {"sum": ("add", "addition", "sum", "plus"), "difference": ("subtract", "subtraction", "difference", "minus"),
          "product": ("multiply", "multiplication", "product", "times"), "quotient": ("divide", "division", "quotient"),
          "power": ("power", "exponent", "exponentiate"), "square": ("square",), "cube": ("cube",),
          "root": ("sqrt", "root")}  # fmt: skip
_TEXTY = words_of(
    "text input word string phrase letter letters characters character value inputs words strings data name"
)
_JOINING = words_of("concatenate concatenator concat join combined string")
_SIGN = re.compile(r"\b(before|ago|earlier|prior|preceding|subtract\w*|minus)\b", re.IGNORECASE)


class Filler:
    """Fills the arguments of one planned step. `skip`: values that already failed for a parameter."""

    def __init__(
        self, step: PlannedStep, pool: Sequence[Source], asked: str, skip: dict[str, set[str]] | None = None
    ) -> None:
        self.step = step
        self.pool = list(pool)
        self.asked = asked
        self.skip = skip or {}
        self.taken: list[Source] = []
        self.compute = is_computation(step.tool)
        self.link = f"{step.chunk.text} {' '.join(step.chunk.names)}"

    def fill(self) -> tuple[dict[str, Any], list[str]]:
        """(arguments, required parameters that nothing could fill)."""
        tool = self.step.tool
        args: dict[str, Any] = {}
        missing: list[str] = []
        required = tool.required
        for name in sorted(required, key=lambda n: self._difficulty(n, tool.properties[n])):
            value = self._value(name, tool.properties[name], needed=True)
            if value is None:
                missing.append(name)
            else:
                args[name] = value
        if not required and tool.properties:
            self._fill_some(tool, args)
        for name, schema in tool.properties.items():
            if name not in required and name not in args and (value := self._optional(name, schema)) is not None:
                args[name] = value
        return {name: args[name] for name in tool.properties if name in args}, missing

    def _fill_some(self, tool: Tool, args: dict[str, Any]) -> None:
        """Nothing is required: give the first parameters that take a name or a result."""
        for name, schema in tool.properties.items():
            if len(args) < 2 and kind_of(schema) in ("string", "array") and not options_of(schema):
                value = self._value(name, schema, needed=True)
                if value is not None:
                    args[name] = value
                    break

    def _difficulty(self, name: str, schema: Any) -> int:
        """Choosy parameters first: what has a clear source of its own must not lose it to a general one."""
        if options_of(schema) or wants_relation(name, schema):
            return 0
        if set(tokens(name)) & {
            "position",
            "index",
            "days",
            "weeks",
            "months",
            "minutes",
            "hours",
            "years",
            "reference",
        }:
            return 1
        return 3 if set(tokens(name)) <= _TEXTY else 2

    # -- one parameter ---------------------------------------------------------------------------

    def _value(self, name: str, schema: Any, *, needed: bool) -> Any:
        schema = schema if isinstance(schema, dict) else {}
        kind = kind_of(schema)
        words = f"{name} {schema.get('description') or ''}"
        if options := options_of(schema):
            return self._choose(options, words, needed)
        if kind == "array":
            return self._array(name, schema)
        if kind == "object":
            return self._object(schema, needed)
        if kind == "boolean":
            return bool(schema.get("default", False)) if needed else None
        if kind in ("integer", "number"):
            return self._number(name, words, integer=kind == "integer")
        if (
            "number" in types_of(schema)
            or "integer" in types_of(schema)
            or (kind == "any" and self._wants_number(name))
        ):
            number = self._number(name, words, integer=False)
            return number if number is not None else self._text(name, words)
        return self._text(name, words)

    def _wants_number(self, name: str) -> bool:
        """A parameter without a type takes a number when its name or the latest result is one."""
        parts = set(tokens(name))
        latest = next((s for s in reversed(self.pool) if s.origin == "result"), None)
        return bool(parts & {"number", "n", "value", "count", "year", "amount"}) and bool(
            latest and latest.number is not None
        )

    def _optional(self, name: str, schema: Any) -> Any:
        """Optional parameters are set only when the question clearly decides them."""
        schema = schema if isinstance(schema, dict) else {}
        words = set(tokens(name))
        if options := options_of(schema):
            return self._choose(options, name, False)
        if wants_relation(name, schema) and (match := KIN_WORD.search(self.step.chunk.text)):
            return shaped(match[1].lower(), schema)
        units = {w.rstrip("s") for w in words} & set(UNITS)
        if (
            kind_of(schema) in ("integer", "number")
            and units
            and words & {"add", "to", "offset", "difference", "increment"}
        ):
            source = next((s for s in self.pool if s.unit and s.unit in units and s not in self.taken), None)
            return self._signed(source, name) if source else None
        if (
            kind_of(schema) == "object"
            and words & {"duration", "interval", "increment"}
            and any(s.unit for s in self.pool)
        ):
            return self._object(schema, False)
        if (
            kind_of(schema) == "string"
            and words & {"duration", "interval", "increment"}
            and not self.step.tool.required
        ):
            return self._text(name, name)
        return None

    def _choose(self, options: list[Any], words: str, needed: bool) -> Any:
        """The option whose words the link (or else the question) uses; the first one when it must be something."""
        best, best_score = None, 0.0
        link, asked = meaning(self.link), meaning(self.asked)
        for option in options:
            bag = meaning(str(option))
            score = sum(min(w, link.get(c, 0.0)) for c, w in bag.items()) + 0.3 * sum(
                min(w, asked.get(c, 0.0)) for c, w in bag.items()
            )
            score += 0.2 * any(t in tokens(self.link) for t in tokens(str(option)))
            for concept, verbs in _VERBS.items():
                if str(option).lower() in verbs and (concept in link or concept in asked):
                    score += 1.0 if concept in link else 0.5
            if unit := next((s.unit for s in self.pool if s.unit in UNITS), ""):
                score += 1.0 if str(option).lower().rstrip("s") == unit else 0.0
            if score > best_score + 1e-9:
                best, best_score = option, score
        if best_score >= (0.5 if needed else 0.9):
            return best
        return options[0] if needed else None

    def _text(self, name: str, words: str) -> str | None:
        if wants_relation(name, {"description": words}) and (match := KIN_WORD.search(self.step.chunk.text)):
            return match[1].lower()
        if set(tokens(name)) & {"operation", "operator"}:
            link = meaning(self.link)
            verb = next((v[0] for c, v in _VERBS.items() if c in link), None)
            return verb or next((v[0] for c, v in _VERBS.items() if c in meaning(self.asked)), None)
        wants_date = "date" in tokens(name) or (set(tokens(name)) & {"day", "datetime"} and "date" in tokens(words))
        if wants_date and (found := self._date(name)):
            return found
        if set(tokens(name)) & {"duration", "interval", "increment"}:
            source = next((s for s in self.pool if s.unit in UNITS), None)
            if source:
                return f"{source.value} {source.unit}{'s' if source.value != 1 else ''}"
        source = self._best(name, words, lambda s: not isinstance(s.value, dict))
        if source is None:
            return None
        self.taken.append(source)
        value = source.value[0] if isinstance(source.value, list) and source.value else source.value
        if isinstance(value, dict):
            value = next((v for v in value.values() if isinstance(v, str)), str(value))
        return str(value).strip()

    def _date(self, name: str) -> str | None:
        dated = [s for s in self.pool if s.origin in ("date", "result") and find_dates(s.text) and s not in self.taken]
        fresh = [s for s in dated if not s.used] or dated
        if not fresh:
            return None
        first = bool(set(tokens(name)) & {"start", "first", "from"})
        source = (fresh[0] if first else fresh[-1]) if len(fresh) > 1 else fresh[0]
        self.taken.append(source)
        return iso(source.text) or find_dates(source.text)[0].iso

    def _number(self, name: str, words: str, *, integer: bool) -> int | float | None:
        parts = set(tokens(name))
        fresh = any(s.origin == "result" and s.number is not None and not s.used for s in self.pool)
        place = position_in(self.link) if parts & {"position", "index", "nth", "n"} else None
        if place is not None and not fresh:
            return place
        if parts & {"exponent", "power"}:
            link = meaning(f"{self.link} {self.asked}")
            fixed = 2 if "square" in link else 3 if "cube" in link else None
            if fixed and not any(s.origin == "number" and not s.unit for s in self.pool):
                return fixed
        wants_unit = {w.rstrip("s") for w in parts} & set(UNITS)
        if wants_unit and parts & {
            "add",
            "to",
            "offset",
            "difference",
            "days",
            "weeks",
            "months",
            "years",
            "minutes",
            "hours",
        }:
            source = next((s for s in self.pool if s.unit in wants_unit and s not in self.taken), None)
            if source is None and "day" in wants_unit:
                source = next((s for s in self.pool if s.unit == "week"), None)
            if source:
                return self._signed(source, name)
        source = self._best(name, words, lambda s: _as_number(s, parts) is not None)
        if source is None:
            return None
        self.taken.append(source)
        value = _as_number(source, parts)
        return int(value) if integer and value is not None and float(value).is_integer() else value

    def _signed(self, source: Source, name: str) -> int | float:
        self.taken.append(source)
        value = source.number or 0
        if source.unit == "week" and "day" in {w.rstrip("s") for w in tokens(name)}:
            value *= 7
        negative = bool(_SIGN.search(self.link)) and not set(tokens(name)) & {"subtract", "before"}
        return -value if negative else value

    def _array(self, name: str, schema: dict[str, Any]) -> list[Any] | None:
        items = as_object(schema.get("items"))
        if options := options_of(items):
            chosen = self._choose(options, name, True)
            return [chosen]
        kind = kind_of(items)
        listed = [s for s in self.pool if s.origin == "result" and isinstance(s.value, list) and not s.used]
        if listed and (self.compute or kind in ("object", "number", "integer")):
            self.taken.append(listed[-1])
            return list(listed[-1].value)
        if kind in ("number", "integer") or (self.compute and set(tokens(name)) & {"numbers", "operands", "values"}):
            numbers = [s for s in self.pool if s.origin == "result" and s.number is not None and not s.used]
            literals = [
                s for s in self.pool if s.origin == "number" and s.unit != "in_name" and str(s.text) in self.link
            ]
            chosen = literals + numbers if re.search(r"\b(?:add|multipl)\w*", self.link) else numbers + literals
            if not chosen:
                chosen = [s for s in self.pool if s.number is not None and s.origin == "result"][-1:]
            self.taken += chosen
            return [s.number for s in chosen] or None
        if self.compute:
            fresh = [s for s in self.pool if s.origin == "result" and not s.used and not isinstance(s.value, dict)]
            several = set(tokens(self.step.tool.name)) & _JOINING
            chosen = fresh if several or "combined" in self.link else fresh[-1:]
            if chosen:
                self.taken += chosen
                return [str(s.value) if kind != "any" or not isinstance(s.value, int) else s.value for s in chosen]
        if text := self._text(name, f"{name} {schema.get('description') or items.get('description') or ''}"):
            return [text]
        return None

    def _object(self, schema: dict[str, Any], needed: bool) -> dict[str, Any] | None:
        properties = as_object(schema.get("properties"))
        found: dict[str, Any] = {}
        duration = next((s for s in self.pool if s.unit in UNITS), None)
        for name, inner in properties.items():
            words = set(tokens(name))
            if duration and words & {"value", "amount", "number", "quantity"}:
                found[name] = self._signed(duration, name)
            elif duration and words & {"unit", "units"}:
                options = [str(o) for o in options_of(inner)]
                found[name] = next((o for o in options if o.lower().rstrip("s") == duration.unit), f"{duration.unit}s")
            elif duration and {w.rstrip("s") for w in words} & {duration.unit}:
                found[name] = self._signed(duration, name)
            elif needed and name in (schema.get("required") or []):
                value = self._value(name, inner, needed=True)
                if value is not None:
                    found[name] = value
        return found or ({} if needed and not properties else None)

    # -- choosing --------------------------------------------------------------------------------

    def _best(self, name: str, words: str, fits: Any) -> Source | None:
        wanted = dict(meaning(name))
        for concept, weight in meaning(words).items():
            wanted[concept] = max(wanted.get(concept, 0.0), 0.4 * weight)
        barred = self.skip.get(name, set())
        scored = [
            (self._score(name, wanted, source), -position, source)
            for position, source in enumerate(self.pool)
            if source not in self.taken and fits(source) and source.text.casefold() not in barred
        ]
        if not scored:
            return None
        return max(scored, key=lambda item: item[:2])[2]

    def _score(self, name: str, wanted: dict[str, float], source: Source) -> float:
        parts = set(tokens(name))
        score = 1.6 * sum(min(weight, source.label.get(concept, 0.0)) for concept, weight in wanted.items())
        results = [s for s in self.pool if s.origin == "result"]
        latest = results[-1] if results else None
        texty = bool(parts & _TEXTY) and self.compute
        if source.origin == "result":
            score += 0.8 + (0.9 if source is latest else 0.0) + (0.0 if source.used else 0.7)
            pending = [s for s in results if not s.used]
            if (
                len(pending) > 1
                and self.compute
                and source is pending[0]
                and not parts & (_TEXTY - {"value", "values"})
            ):
                score += 0.95  # first come, first served: the two operands of a comparison keep their order
        elif source.origin == "name":
            score += 0.9 if source.text in self.step.chunk.names else 0.2
            score -= 0.9 if source.used else 0.0
            score -= 1.0 if self.compute and results else 0.0
            score -= 0.3 * any(
                other.origin == "name" and source.text in other.text and other is not source for other in self.pool
            )
        elif source.origin == "part":
            score += 0.9 - (0.7 if source.used else 0.0)
        elif source.origin == "phrase":
            depth = self.step.chunk.depth
            score += 1.0 - (0.9 if source.used else 0.0) + (0.5 if not results else -0.5)
            score += 0.8 if source.order in (depth, depth + 1) else 0.0
            own = set(tokens(source.text)) <= set(tokens(self.step.tool.name))
            score -= 0.8 if own and any(s.origin == "phrase" and s.order > source.order for s in self.pool) else 0.0
            score += (
                0.8 if re.search(rf"\b{re.escape(source.text)}\b", self.step.tool.description, re.IGNORECASE) else 0.0
            )
        elif source.origin == "number":
            score += 0.6 if source.unit != "in_name" else 0.1
            score += 0.8 if source.text in self.link else 0.0
            score -= (
                1.2 if source.unit in UNITS and not parts & {f"{source.unit}s", source.unit, "value", "amount"} else 0.0
            )
            score -= 2.0 if source.used else 0.0
            score += 2.5 if parts & {"reference", "threshold", "limit", "other"} else 0.0
            score -= 0.9 if any(s.number is not None and not s.used for s in results) and not parts & {
                "second", "number2", "value2", "b", "reference", "other", "subtrahend"} else 0.0  # fmt: skip
        elif source.origin == "letter":
            score += 2.0 if parts & {"letter", "letters", "character", "characters", "target", "char"} else -2.0
        if not texty and source.origin in ("result", "name"):
            person = bool(
                parts & {"person", "name", "full", "individual", "figure", "author", "actor", "people", "names"}
            )
            if person:
                score += 0.7 if source.is_person else 0.0
            if source.number is not None and not parts & {"number", "n", "year", "value", "input"} and not self.compute:
                score -= 2.5
            if not self.compute and "date" not in wanted and find_dates(source.text):
                score -= 2.5
        if texty and source.origin == "result" and parts & {"full"}:
            score += 0.8 if source.is_person else -0.8
        if "full" in parts and "name" in parts:
            score += 1.0 if source.is_person else -1.0
        return score


def _as_number(source: Source, parts: set[str]) -> int | float | None:
    if source.number is not None:
        return source.number
    if isinstance(source.value, list):
        return None
    if source.origin in ("result", "date"):
        years = years_in(source.text)
        if (parts & {"year", "years"} or find_dates(source.text)) and len(years) == 1:
            return int(years[0])
        found = re.findall(r"[-+]?\d[\d,]*(?:\.\d+)?", source.text)
        if len(found) == 1 and len(tokens(source.text)) <= 4:
            return number_of(found[0].rstrip(",."))
    return None
