"""How agents talk: three formats for every handoff, rendering for the receiver, and what is recorded.

A handoff is one text that one agent gives another: a stage's report, a delegation, a worker's report, a peer's message.
`freeform` is text; `semi_structured` are tag lines; `structured_soft` is a typed output field (`Report`) that DSPy
formats and parses. Nothing here rejects or repairs a message: a malformed one is passed on as text and counted.
The receiver gets the sender's own fields and nothing that the sender did not write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dspy.adapters.utils import parse_value

from programs.answers import strip_think
from programs.errors import ConfigurationError
from programs.neutral import encodable, encodable_data, neutralise_markers
from programs.report import FIELDS, Report, as_text, value_problems

FORMATS = ("freeform", "semi_structured", "structured_soft")
HANDOFF_LIMIT = 6_000  # characters of one handoff as the receiver sees it
CONTEXT_LIMIT = 24_000  # characters of all handoffs in one input field
NOTHING = "(none)"

_TAG = re.compile(r"^[ \t]*(?:[*_#>-]+[ \t]*)?\[(" + "|".join(FIELDS) + r")\][*_]*[ \t]*:?[ \t]*", re.IGNORECASE)
_TAG_LINE = re.compile(_TAG.pattern, re.IGNORECASE | re.MULTILINE)

_FORMS = {
    "freeform": "a short text: what you found, the value(s) found written out, and what is still open.",
    "semi_structured": (
        "tag lines, each tag at the start of a line, leaving out those you have nothing for:\n"
        "[STATUS] not_started, in_progress, completed or blocked\n"
        "[SUMMARY] what you did and found, in one or two sentences\n"
        "[EVIDENCE] the facts or tool results it rests on\n"
        "[CONFIDENCE] low, medium or high, and the reason\n"
        "[NEXT] what should be done next\n"
        "[ANSWER_CANDIDATE] the value you would answer with\n"
        "[TOOL_CHAIN] the tool calls that led there, in order"
    ),
    "structured_soft": (
        "a JSON object with these fields, leaving out those you have nothing for: status (not_started, in_progress, "
        "completed or blocked), summary (one or two sentences), evidence (list of facts or tool results it rests on), "
        "confidence (low, medium or high, and the reason), next (what should be done next), answer_candidate (the "
        "value you would answer with), tool_chain (list of the tool calls that led there)."
    ),
}


def check_format(communication: str) -> str:
    """The format's name; raises `ConfigurationError` for an unknown one."""
    if communication not in FORMATS:
        raise ConfigurationError(f"unknown communication format {communication!r}; choose from {', '.join(FORMATS)}")
    return communication


def report_form(communication: str) -> str:
    """What a reporting role is told about the form of its report (goes into its `answer_format` input)."""
    return _FORMS[check_format(communication)]


def report_type(communication: str) -> Any:
    """Type of the `report` output field: `Report` in structured_soft, text otherwise."""
    return Report if check_format(communication) == "structured_soft" else str


@dataclass(frozen=True)
class Handoff:
    """One message: `sender`/`receiver` as `{role, index, round}`, its text as written, its own fields, its problems."""

    sender: dict[str, Any]
    text: str
    communication: str
    fields: dict[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    kind: str = "report"
    receiver: dict[str, Any] | None = None

    @property
    def parse_ok(self) -> bool:
        return not self.problems

    @property
    def body(self) -> str:
        """The message as the receiver sees it: own fields re-rendered, markers neutralised, within the limit."""
        if not self.fields:
            return cut(neutralise(self.text), HANDOFF_LIMIT)
        template = "{}: {}" if self.communication == "structured_soft" else "[{}] {}"
        lines = []
        for name, value in _fit(self.fields, HANDOFF_LIMIT).items():
            label = name.upper() if self.communication == "semi_structured" else name
            lines.append(value if name == "text" else template.format(label, value))
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """JSON-safe record."""
        record = {"from": dict(self.sender), "kind": self.kind, "text": self.text, "parse_ok": self.parse_ok}
        if self.receiver is not None:
            record["to"] = dict(self.receiver)
        return {**record, **({"fields": dict(self.fields)} if self.fields else {}), "errors": list(self.problems)}


def parse_handoff(
    report: Any,
    communication: str,
    *,
    role: str,
    index: int = 0,
    round: int = 1,
    kind: str = "report",
    receiver: dict[str, Any] | None = None,
) -> Handoff:
    """What an agent wrote (text, `Report`, None) as a handoff in the given format. Never raises on a model's text."""
    sender = {"role": role, "index": index, "round": round}
    if communication == "structured_soft" and isinstance(report, str) and report.strip():
        report = _read_report(report)
    if isinstance(report, Report):
        text, fields, problems = report.raw or "", report.own_fields(), report.problems
        if fields:
            text = json.dumps(report.format(), ensure_ascii=False)
    else:
        text, fields, problems = as_text(report), {}, []
    if not text.strip():
        problems = ["empty report"]
    elif communication == "semi_structured":
        fields, problems = parse_tags(text)
    text, fields = encodable(text), encodable_data(fields)
    return Handoff(sender, text, check_format(communication), fields, tuple(problems), kind, receiver)


def _read_report(text: str) -> Report:
    """The object somewhere in a text, or the text itself."""
    try:
        return parse_value(text, Report)
    except (ValueError, RecursionError):  # nested too deeply to be read
        return Report.model_validate(text)


def handoffs_from(result: Any, communication: str, **more: Any) -> list[Handoff]:
    """What an agent's run (a `LoopResult`) hands over: one handoff, or none when it was masked or never called."""
    if not result.n_lm_calls:
        return []
    who = {"role": result.role, "index": result.index, "round": result.round}
    return [parse_handoff(result.report, communication, **who, **more)]


def delegation_args(communication: str) -> dict[str, dict[str, Any]]:
    """Arguments of an agent tool, as JSON Schema properties: `question`, and what the format adds to it."""
    check_format(communication)
    text = "a complete question or task that stands on its own"
    if communication == "semi_structured":
        text += ", as tag lines: [SUMMARY] what is asked, [EVIDENCE] the values it needs, [NEXT] what to report back"
    args: dict[str, dict[str, Any]] = {"question": {"type": "string", "description": text}}
    if communication == "structured_soft":
        values = {"type": "array", "items": {"type": "string"}, "description": "values it needs, copied exactly"}
        args["evidence"] = {**values, "default": []}
        args["next"] = {"type": "string", "description": "what to report back", "default": ""}
    return args


def parse_delegation(
    args: dict[str, Any], communication: str, *, role: str, receiver: dict[str, Any], round: int = 1
) -> Handoff:
    """A delegation, written as the arguments of an agent tool, as a handoff."""
    question, more = str(args.get("question") or ""), {k: v for k, v in args.items() if k != "question" and v}
    if communication != "structured_soft":
        return parse_handoff(question, communication, role=role, round=round, kind="delegation", receiver=receiver)
    problems = [] if isinstance(more.get("evidence", []), list) else ["evidence is not a list"]
    if not isinstance(more.get("next", ""), str):
        problems.append("next is not text")
    fields = {name: as_text(value) for name, value in {"question": question, **more}.items()} if more else {}
    text = json.dumps({"question": question, **more}, ensure_ascii=False, default=str) if more else question
    sender = {"role": role, "index": 0, "round": round}
    text, fields = encodable(text), encodable_data(fields)
    return Handoff(sender, text, communication, fields, tuple(problems), "delegation", receiver)


def parse_tags(text: str) -> tuple[dict[str, str], list[str]]:
    """Own fields and problems of a semi-structured text. Text before the first tag is kept with it.

    Without any tag there are no fields: the whole text is the message, and the problem is counted.
    """
    fields: dict[str, list[str]] = {}
    problems: list[str] = []
    before: list[str] = []
    current = before
    for line in text.strip().splitlines():
        if match := _TAG.match(line):
            name = match.group(1).casefold()
            if name in fields:
                problems.append(f"[{name.upper()}] twice")
            current = fields.setdefault(name, [])
            line = line[match.end() :]
        current.append(line)
    found = {name: "\n".join(fields[name]).strip() for name in FIELDS if name in fields}
    if not found:
        return {}, ["no tag lines"]
    if loose := "\n".join(before).strip():
        problems.append("text outside the tags")
        found = {"text": loose, **found}
    found = {name: value for name, value in found.items() if value}
    if not found:
        return {}, ["no values behind the tags"]
    return found, problems + value_problems(found)


def neutralise(text: str) -> str:
    """Text without what could pass for our markers: field headers, control and tag lines, message headers, thoughts."""
    text = neutralise_markers(strip_think(text))
    text = _TAG_LINE.sub(lambda match: match.group(0).replace("[", "(").replace("]", ")"), text)
    text = re.sub(r"^([ \t]*)=== (.*?)===[ \t]*$", r"\1--- \2---", text, flags=re.MULTILINE)
    return re.sub(r"^(note: |(?:step|thought) \d+: )", r" \1", text, flags=re.MULTILINE).strip()


def cut(text: str, limit: int) -> str:
    """About `limit` characters at most: whole paragraphs (else lines), the last kept, with a note of what is gone."""
    if len(text) <= limit:
        return text
    for separator in ("\n\n", "\n"):
        parts = text.split(separator)
        kept: list[str] = []
        size = 0
        while parts and size + len(parts[-1]) + len(separator) <= limit:
            size += len(parts[-1]) + len(separator)
            kept.insert(0, parts.pop())
        if kept:
            rest = separator.join(kept)
            return f"[{len(text) - len(rest)} characters before this left out]{separator}{rest}"
    return f"[{len(text) - limit} characters before this left out]\n{text[-limit:]}"


def _fit(fields: dict[str, str], limit: int) -> dict[str, str]:
    """The fields, neutralised, the longest cut until all together are within the limit."""
    clean = {name: neutralise(value) for name, value in fields.items()}
    while sum(map(len, clean.values())) > limit:
        longest = max(clean, key=lambda name: len(clean[name]))
        others = sum(len(value) for name, value in clean.items() if name != longest)
        shorter = cut(clean[longest], max(limit - others, limit // len(clean)))
        if len(shorter) >= len(clean[longest]):
            break
        clean[longest] = shorter
    return clean


def render(handoffs: Iterable[Handoff], *, own: tuple[str, int] | None = None, limit: int = CONTEXT_LIMIT) -> str:
    """The text of one receiver's input field: every message under a header with its sender, oldest first.

    `own`: (role, index) of the receiver, whose own earlier message is headed "you". Agents of a replicated role keep
    one name for every receiver (`debater 2`). Over `limit` characters the oldest messages are left out, with a note.
    """
    handoffs = list(handoffs)
    if not handoffs:
        return NOTHING
    replicated = {h.sender["role"] for h in handoffs if h.sender.get("index")}
    blocks = []
    for handoff in handoffs:
        sender = handoff.sender
        name = sender["role"]
        if name in replicated:
            name += f" {sender.get('index', 0) + 1}"
        if own == (sender["role"], sender.get("index", 0)):
            name += " (you)"
        if handoff.kind == "delegation" and handoff.receiver:
            name += f" to {handoff.receiver['role']}"
        blocks.append(f"=== from {name} ===\n{handoff.body or NOTHING}")
    kept: list[str] = []
    size = 0
    while blocks and (not kept or size + len(blocks[-1]) <= limit):
        size += len(blocks[-1]) + 2
        kept.insert(0, blocks.pop())
    note = [f"[{len(blocks)} earlier messages left out]"] if blocks else []
    return "\n\n".join([*note, *kept])


def summarise(handoffs: Sequence[Handoff], communication: str) -> dict[str, Any]:
    """The record of one question: every handoff as its sender wrote it, and how many could be parsed.

    Keys: communication, n, parse_ok, parse_rate (None without handoffs), errors (one text per problem), handoffs.
    """
    good = sum(h.parse_ok for h in handoffs)
    return {
        "communication": communication,
        "n": len(handoffs),
        "parse_ok": good,
        "parse_rate": good / len(handoffs) if handoffs else None,
        "errors": [f"{h.sender['role']}: {problem}" for h in handoffs for problem in h.problems],
        "handoffs": [h.as_dict() for h in handoffs],
    }
