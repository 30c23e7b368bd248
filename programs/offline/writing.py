"""Writing the final answer in the form that is asked for, and replies in the format of the request."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from programs.offline.dates import in_words, iso
from programs.offline.observations import render
from programs.offline.request import OutputField, Seen
from programs.offline.traits import Traits
from programs.offline.words import chance, numbers_in

_PERSON = re.compile(r"^[A-ZÀ-ÞÅÄÖŠŽÇ][\w.'’-]*(?: [\w.'’-]+){0,4} [A-ZÀ-ÞÅÄÖŠŽÇ][\w'’-]+$")
_FRAMES = (
    "The answer to the question is {}.",
    "Based on what was found, it is {}.",
    "It turns out that {} is the answer.",
)


@dataclass
class Move:
    """What to reply: tool calls, or the final text; `fields` holds further output fields."""

    thought: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    final: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)


def phrase(value: Any, traits: Traits, *, person: bool = False) -> str:
    """A value as this model writes it under the directives that it was given (see the table in offline_lm)."""
    if isinstance(value, list | dict) and "check" not in traits:
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = render(value)
    if found := iso(text):
        text = found if "iso" in traits else in_words(found)
    elif person and "names" not in traits and _PERSON.match(text) and traits.slips("names", 0.5):
        text = text.split()[-1]
    if "capitals" in traits:
        text = text.upper()
    if "verbose" in traits or traits.slips("bare", 0.5):
        frame = _FRAMES[int(chance("frame", traits.question) * len(_FRAMES))]
        text = frame.format(text)
    return text


def in_form(text: str, form: str) -> str:
    """The answer in the shape that the form asks for: tags, an `Answer:` line, or as it is."""
    if re.search(r"<answer>", form, re.IGNORECASE):
        return f"<answer>{text}</answer>"
    if re.search(r"`?Answer: ?", form):
        return f"Answer: {text}"
    return text


def bare_value(text: str) -> str:
    """The value inside a written answer: without tags, labels and the frames above."""
    text = text.strip()
    tagged = re.findall(r"[<(]answer[>)](.*?)(?:[<(]/answer[>)]|$)", text, re.IGNORECASE | re.DOTALL)
    marked = tagged or re.findall(r"^\W*(?:final )?answer\W*:\s*(.+)$", text, re.IGNORECASE | re.MULTILINE)
    text = marked[-1].strip() if marked else text
    for frame in _FRAMES:
        before, after = frame.split("{}")
        if text.startswith(before) and text.endswith(after):
            return text[len(before) : len(text) - len(after)]
    return text


def reply_text(seen: Seen, move: Move) -> str:
    """The reply's text in the format that the request asks for."""
    values = _values(seen, move)
    if seen.mode == "json":
        return json.dumps(values, ensure_ascii=False)
    if seen.mode == "prose":
        return move.final if move.final is not None else move.thought
    if seen.mode == "plain":
        return move.final or ""
    parts = [f"[[ ## {name} ## ]]\n{_field_text(value)}" for name, value in values.items()]
    return "\n\n".join([*parts, "[[ ## completed ## ]]"]) + "\n"


def _values(seen: Seen, move: Move) -> dict[str, Any]:
    values: dict[str, Any] = {}
    names = [out.name for out in seen.outputs]
    final_field = "answer" if "answer" in names else names[-1] if names else ""
    for out in seen.outputs:
        if out.name in move.fields:
            values[out.name] = move.fields[out.name]
        elif out.name == "tool_calls":
            calls = [] if seen.native else [{"name": name, "args": args} for name, args in move.calls]
            values[out.name] = {"tool_calls": calls}
        elif out.name in ("thought", "reasoning", "rationale", "analysis"):
            values[out.name] = move.thought or "Done."
        elif out.name == final_field and move.final is not None:
            values[out.name] = _typed(out, move.final)
        elif out.name == final_field and move.calls:
            values[out.name] = "" if seen.mode != "json" else None
        else:
            values[out.name] = _neutral(out)
    return values


def _typed(out: OutputField, text: Any) -> Any:
    """A final text as the field's type wants it: the value in it where there is one, else the type's neutral value."""
    kind = out.type.lower()
    value = bare_value(text) if isinstance(text, str) else text
    if kind == "bool":
        return str(value).casefold() in ("yes", "true")
    if kind in ("int", "float"):
        found = numbers_in(str(value)) or [_neutral(out)]
        return int(found[0]) if kind == "int" else float(found[0])
    if kind.startswith("literal["):
        options = re.findall(r"'([^']*)'|\"([^\"]*)\"", out.type)
        return next((a or b for a, b in options if (a or b).casefold() in str(value).casefold()), _neutral(out))
    if kind.startswith("list"):
        return [value]
    return _neutral(out) if kind.startswith("dict") else text


def _neutral(out: OutputField) -> Any:
    kind = out.type.lower()
    if "bool" in kind:
        return False
    if "float" in kind:
        return 0.5
    if kind.startswith("int"):
        return 0
    if kind.startswith("list"):
        return []
    if kind.startswith("dict"):
        return {}
    if match := re.search(r"literal\[['\"]?([^'\",\]]+)", out.type, re.IGNORECASE):
        return match[1]
    return ""


def _field_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def short(text: str, words: int = 12) -> str:
    """The first words of a text, for thoughts."""
    parts = text.split()
    return " ".join(parts[:words]) + (" ..." if len(parts) > words else "")
