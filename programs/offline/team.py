"""What team members say to each other: delegations, reports, plans, audits, and the answer drawn from reports."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from programs.offline.observations import Observation, clip_result, notes, render, steps
from programs.offline.passages import kind_of
from programs.offline.question import Question, is_comparison, own_question, unfold
from programs.offline.request import Seen, Tool
from programs.offline.traits import Traits
from programs.offline.words import STOP, clip, tokens
from programs.offline.writing import Move, bare_value, in_form, phrase

_BLOCK = re.compile(r"^=== from (.+?) ===\s*$", re.MULTILINE)
_VALUE = re.compile(
    r"(?:^|\n|\. |\] ?)\W*(?:final value|value found|confirmed value|value|final answer|answer candidate|answer|result)"
    r"(?: is|:)\s*(.+?)(?=\.\s|\.?\n|\.?$| \(evidence)",
    re.IGNORECASE,
)
_TAG = re.compile(r"^\[(\w+)\]\s*(.*)$", re.MULTILINE)
_FAILED = re.compile(
    r"\b(?:could not find|not found|no report|unknown|nothing was found|cannot answer)\b", re.IGNORECASE
)
_FORKS = re.compile(
    r"\b(?:between|compared|combined|concatenation|product|average|common|than|both|and)\b|\bif\b|\bor\b|\d",
    re.IGNORECASE,
)
_PREPOSED = re.compile(r"\b(?:through|by|in|at|on|from|to|into|of|past|across)$", re.IGNORECASE)
_RELATIVE = re.compile(r"\b((?:in|on|for|from|at|to|by|with) which|that|which|where|when|whom|whose)\b")


@dataclass(frozen=True)
class Said:
    """One message of a team-mate: who, the value it names (None without one), whether evidence stands with it."""

    sender: str
    value: str | None
    evidence: bool
    text: str


def is_team_tool(tool: Tool) -> bool:
    """An agent as a tool: its one required argument is a question."""
    return tool.name.startswith("ask_") and "question" in tool.properties


def read_messages(text: str) -> list[Said]:
    """The messages of a `context` or `reports` input, oldest first."""
    marks = list(_BLOCK.finditer(text))
    blocks = [
        (mark[1].strip(), text[mark.end() : following.start() if following else len(text)].strip())
        for mark, following in zip(marks, [*marks[1:], None], strict=False)
    ]
    if not blocks and text.strip():
        blocks = [("team", text.strip())]
    return [Said(sender, value_in(body), _has_evidence(body), body) for sender, body in blocks]


def value_in(text: str) -> str | None:
    """The value that a report names; None when it names none or says that it failed."""
    tags = {key.lower(): value.strip() for key, value in _TAG.findall(text)}
    if tags.get("answer_candidate"):
        return bare_value(tags["answer_candidate"])
    if match := re.search(r"^answer_candidate: (.+)$", text, re.MULTILINE):
        return bare_value(match[1])
    plain = bare_value(text)
    if plain != text.strip():
        return None if _FAILED.search(plain) else plain
    found = _VALUE.findall(text)
    if found:
        value = found[-1].strip().strip("'\"`*")
        return None if _FAILED.search(value) else value
    if _FAILED.search(text) or len(tokens(text)) > 8 or "\n" in text.strip():
        return None
    return text.strip(" .") or None


def _has_evidence(text: str) -> bool:
    return bool(re.search(r"\bevidence\b|\bgave\b|\breturned\b|->|\[EVIDENCE\]|\bpage\b", text, re.IGNORECASE))


# -- reports ---------------------------------------------------------------------------------------


def write_report(seen: Seen, traits: Traits, value: Any, trail: tuple[Observation, ...], *, lead: str = "Value") -> Any:
    """A report in the asked format. With `evidence` it names value and results; without, only half of them name it."""
    chain = [f"{o.tool}({json.dumps(o.args, ensure_ascii=False)}) gave {clip_result(o.text)}" for o in trail[-4:]]
    names = list(dict.fromkeys(o.tool for o in steps(seen.get("trajectory"))))
    silent = value is None or ("evidence" not in traits and traits.slips("evidence", 0.2))
    if value is None:
        summary = "Could not find it" + (f" with {', '.join(names)}." if names else ".")
    elif silent:
        summary = f"Worked on it with {', '.join(names) or 'what is known'}; it went well."
    else:
        summary = f"{lead}: {render(value)}."
    evidence = chain if "evidence" in traits else []
    return report_in_form(seen, summary, None if silent else render(value), evidence, names, done=value is not None)


def report_in_form(
    seen: Seen,
    summary: str,
    value: str | None,
    evidence: list[str],
    chain: list[str],
    *,
    done: bool = True,
    next_: str = "",
) -> Any:
    """Freeform text, tag lines or a report object, as the request's form asks."""
    form, kind = _form_of_report(seen)
    fields = {
        "status": "completed" if done else "blocked",
        "summary": summary,
        "evidence": evidence,
        "confidence": ("high, tool results agree" if evidence else "medium, no evidence given")
        if value
        else "low, nothing found",
        "next": next_ or ("" if done else "ask in other words"),
        "answer_candidate": value or "",
        "tool_chain": chain,
    }
    if "Report" in kind or (seen.mode == "prose" and "a JSON object with these fields" in form):
        return json.dumps({key: val for key, val in fields.items() if val}, ensure_ascii=False)
    if "[SUMMARY]" in form or "tag lines" in form:
        flat = {key: "; ".join(val) if isinstance(val, list) else val for key, val in fields.items()}
        return "\n".join(f"[{key.upper()}] {val}" for key, val in flat.items() if val)
    text = summary
    if evidence:
        text += f" Evidence: {'; '.join(evidence)}."
    return text


def _form_of_report(seen: Seen) -> tuple[str, str]:
    """(form, type) of the report that is asked for: a field beside an answer says its own form."""
    own = next((out for out in seen.outputs if out.name == "report"), None)
    if own is not None and any(out.name == "answer" for out in seen.outputs):
        return own.desc, own.type
    return seen.get("answer_format"), seen.outputs[-1].type if seen.outputs else ""


# -- the asking roles ------------------------------------------------------------------------------


class Asker:
    """A manager or planner: asks team-mates sub-questions and ends with the value that they lead to."""

    def __init__(self, seen: Seen, traits: Traits) -> None:
        self.seen = seen
        self.traits = traits
        self.question: Question = unfold(seen.get("question"))
        self.done = steps(seen.get("trajectory"))
        self.final_call = any(note.startswith("final call:") for note in notes(seen.get("trajectory")))
        names = [tool.name for tool in seen.tools]
        self.finder = next((n for n in names if "tool_caller" in n), names[0] if names else "")
        self.reasoner = next((n for n in names if "reasoner" in n), self.finder)

    def move(self) -> Move:
        value, call = self._walk()
        if call and not self.final_call and self.seen.tools:
            tool, text = call
            return Move(thought=f"Delegate: {clip(text, 80)}", calls=[(tool, self._arguments(tool, text))])
        trail = [f"{clip(_asked(o), 90)} -> {value_in(o.text) or 'no value'}" for o in self.done]
        if self.seen.outputs and self.seen.outputs[-1].name == "answer":
            final = in_form(
                phrase(value, self.traits, person=_is_person(self.question)), self.seen.get("answer_format")
            )
            return Move(
                thought="Every hop is known.",
                final=final if value is not None else in_form("unknown", self.seen.get("answer_format")),
            )
        closing = self._closing(value, trail)
        return Move(thought="Every hop is known.", final=closing)

    def _closing(self, value: str | None, trail: list[str]) -> Any:
        summary = f"Final value: {value}." if value is not None else "Could not find it."
        shown = trail if "evidence" in self.traits else []
        return report_in_form(self.seen, summary, value, shown, [], done=value is not None)

    def _arguments(self, tool: str, text: str) -> dict[str, Any]:
        schema = next((t for t in self.seen.tools if t.name == tool), None)
        described = str((schema.properties.get("question") or {}).get("description") or "") if schema else ""
        if "[SUMMARY]" in described:
            text = f"[SUMMARY] {text}\n[NEXT] report the value"
        return {"question": text}

    def _walk(self) -> tuple[str | None, tuple[str, str] | None]:
        """(value so far, next delegation or None): the links from the inside out, the whole question when stuck."""
        whole = self.question.text
        asked = {_asked(o): value_in(o.text) for o in self.done}
        if whole in asked or (len(self.done) >= 1 and "hasty" in self.traits):
            last = value_in(self.done[-1].text) if self.done else None
            return asked.get(whole) or last or self._last_value(), None
        patient = "delegate" in self.traits or "chain" in self.traits
        if self._is_forked() or not seen_chain(self.question):
            return self._last_value(), (self.finder, whole)
        value: str | None = None
        for position in range(len(self.question.chunks) - 1, -1, -1):
            text = sub_question(self.question, position, value)
            if text not in asked:
                if value is not None and not patient and self.traits.slips("delegate", 0.4, sampled=False):
                    return value, None  # takes the first thing found for the answer
                return value, (self.finder if position else self._last_helper(), text)
            value = asked[text]
            if value is None:
                return None, (self.finder, whole)
        return value, None

    def _last_helper(self) -> str:
        return self.finder

    def _last_value(self) -> str | None:
        return next((v for o in reversed(self.done) if (v := value_in(o.text))), None)

    def _is_forked(self) -> bool:
        text = self.question.text
        named = {name for chunk in self.question.chunks for name in chunk.names}
        words = text
        for name in named:
            words = words.replace(name, " ")
        joined = any(" and " in name for name in named) and bool(re.search(r"\b(?:sum|total|lengths|heights)\b", text))
        return is_comparison(self.question) or len(named) != 1 or joined or bool(_FORKS.search(words))


def seen_chain(question: Question) -> bool:
    """More than one link, the innermost with a name: something to delegate link by link."""
    return len(question.chunks) > 1 and bool(question.innermost.names)


def _asked(observation: Observation) -> str:
    return own_question(str(observation.args.get("question") or ""))


def sub_question(question: Question, position: int, value: str | None) -> str:
    """One link as a question of its own, with the value found before put in."""
    chunk = question.chunks[position]
    if value is None:
        return f"{_opening(chunk.source)} {_without_wh(chunk.source)}?"
    text = chunk.source
    if match := re.match(
        r"(when|where|how \w+|(?:in )?what year|which \w+) ?(was|were|is|did|does|has)?\s*(.*)$", text, re.IGNORECASE
    ):
        rest = match[3].strip()
        lead = match[1][0].upper() + match[1][1:]
        lead = f"In {lead[0].lower()}{lead[1:]}" if lead.lower() == "what year" else lead
        if not rest:
            return f"{lead} {match[2] or 'is'} {value}?"
        if _PREPOSED.search(rest):
            return f"{lead} {match[2] or ''} {rest} {value}?".replace("  ", " ")
        if rest.split()[0] in (
            "born",
            "founded",
            "opened",
            "published",
            "released",
            "built",
            "established",
            "educated",
        ):
            return f"{lead} was {value} {rest}?"
        return f"{lead} {match[2] or 'is'} the {rest} of {value}?"
    if match := _RELATIVE.search(text):
        return f"What is the {text[: match.end()]} {value} {text[match.end() :].strip()}?".replace("  ", " ")
    if match := re.match(r"who (\w+ed|wrote|won|built|led|set|married)\b(.*)$", text):
        return f"Who {match[1]}{match[2]} {value}?"
    body = _without_wh(text)
    if _PREPOSED.search(body):
        return f"{_opening(text)} {body} {value}?"
    return f"{_opening(text)} {body} of {value}?"


def _opening(text: str) -> str:
    low = text.lower()
    if low.startswith(("how ", "when", "where")):
        return text.split()[0].capitalize()
    kind = kind_of(text)
    return "Who is the" if kind == "person" else "What is the"


def _without_wh(text: str) -> str:
    return re.sub(r"^(?:who|what|which|when|where|how)\s+(?:is\s+|was\s+)?(?:the\s+)?", "", text, flags=re.IGNORECASE)


def _is_person(question: Question) -> bool:
    return bool(re.match(r"who\b", question.text, re.IGNORECASE))


# -- stages without tools and aggregators ----------------------------------------------------------


def write_plan(seen: Seen) -> Any:
    """The links of the question as numbered hops (planner, parser, dependency mapper and the like)."""
    question = unfold(own_question(seen.get("question")))
    lines = []
    for number, chunk in enumerate(reversed(question.chunks), start=1):
        source = chunk.source if number == 1 else f"{chunk.text} of the result of hop {number - 1}"
        lines.append(f"Hop {number}: find {source} ({kind_of(chunk.text)}).")
    names = ", ".join(span.text for span in question.names) or "none"
    return report_in_form(seen, f"Names: {names}. {' '.join(lines)}", None, [], [], next_="hop 1")


def review(seen: Seen, traits: Traits) -> Any:
    """Filter or audit of the evidence: the best supported value of the context with what supports it."""
    messages = read_messages(seen.get("context"))
    best = best_message(messages, traits)
    if best is None or best.value is None:
        return (
            write_plan(seen)
            if not any(m.value for m in messages)
            else report_in_form(seen, "No value is supported.", None, [], [])
        )
    evidence = [clip(best.text, 300)] if "evidence" in traits else []
    return report_in_form(seen, f"Value: {best.value}.", best.value, evidence, [])


def best_message(messages: list[Said], traits: Traits) -> Said | None:
    """Which message to believe: with `compare`, evidence and agreement decide; without, the last one with a value."""
    named = [m for m in messages if m.value]
    if not named:
        return messages[-1] if messages else None
    if "compare" not in traits and "evidence" not in traits:
        return named[-1]
    counts = Counter(m.value.casefold() for m in named if m.value)
    ranked = max(
        enumerate(named),
        key=lambda item: (
            "final value" in item[1].text.lower() or "final answer" in item[1].text.lower(),
            item[1].evidence,
            counts[(item[1].value or "").casefold()],
            item[0],
        ),
    )
    return ranked[1]


def aggregate(seen: Seen, traits: Traits) -> Move:
    """The final answer from reports."""
    messages = read_messages(seen.get("reports") or seen.get("context"))
    best = best_message(messages, traits)
    if best is None or best.value is None:
        text = _salvage(messages)
        final = phrase(text, traits) if text else "unknown"
        return Move(thought="The reports name no value.", final=in_form(final, seen.get("answer_format")))
    person = _is_person(unfold(seen.get("question")))
    final = in_form(phrase(best.value, traits, person=person), seen.get("answer_format"))
    return Move(thought=f"{best.sender} gives the value.", final=final)


def _salvage(messages: list[Said]) -> str:
    """The last result that any report quotes, when none names a value."""
    for message in reversed(messages):
        if found := re.findall(r"(?:gave|returned|->)\s+\"?([^\";\n]{1,80})", message.text):
            return found[-1].strip(" .")
    return ""


def peer_answer(seen: Seen, traits: Traits) -> str | None:
    """What a debater takes from its peers' messages in a later round: None to work it out itself."""
    messages = read_messages(seen.get("context"))
    own = next((m for m in messages if m.sender.endswith("(you)")), None)
    others = [m for m in messages if m is not own and m.value]
    if not others and (own is None or own.value is None):
        return None
    if "compare" in traits:
        pool = [m for m in messages if m.value]
        counts = Counter(_key(m.value) for m in pool)
        best = max(
            enumerate(pool), key=lambda item: (counts[_key(item[1].value)], item[1] is own, item[1].evidence, -item[0])
        )
        return best[1].value
    if others and traits.slips("compare", 0.5):
        return others[0].value  # follows the first voice heard
    return own.value if own and own.value else others[0].value


def _key(value: str | None) -> str:
    return " ".join(t for t in tokens(value or "") if t not in STOP)
