"""What a model wrote, read leniently: field sections, tool calls in the spellings that models use."""

from __future__ import annotations

import json
import re
from typing import Any

import dspy

from programs.json_text import MAX_DEPTH, find_json, is_deep, read_json
from programs.neutral import encodable, encodable_data

_HEADER = re.compile(r"^[\s>*_#`]{0,60}\[\[\s*##\s*(\w+)\s*##\s*\]\][*_`]*[ \t]*:?", re.MULTILINE)
_INLINE = re.compile(r"\[\[\s*##\s*(\w+)\s*##\s*\]\]")
_FENCE = re.compile(r"^```[\w-]*\s*\n(.*?)\n?```\s*$", re.DOTALL)
_TAGGED_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL | re.IGNORECASE)
_NAME_KEYS = ("name", "tool_name", "tool", "next_tool_name", "function_name", "action")
_ARGS_KEYS = ("args", "arguments", "tool_args", "parameters", "next_tool_args", "input", "action_input", "kwargs")
_NO_CALLS = frozenset({"", "none", "null", "[]", "{}", "n/a", "no", "()"})

UNPARSED = "partial_json"  # DSPy's key for arguments that are no JSON object; ours in text mode too


class UnreadableReply(ValueError):
    """The tool calls of a reply cannot be read; the message says what is wrong, for the model."""


def split_sections(text: str) -> dict[str, str]:
    """`[[ ## field ## ]]` sections by lower-case name, in any case and with markdown around; first one wins."""
    matches = list(_HEADER.finditer(text))
    if len(matches) == 1 and len(inline := list(_INLINE.finditer(text))) > 1:
        matches = inline  # everything on one line
    sections: dict[str, str] = {}
    for match, following in zip(matches, [*matches[1:], None], strict=False):
        body = text[match.end() : following.start() if following else len(text)].strip()
        sections.setdefault(match[1].lower(), body)
    return sections


def has_sections(text: str) -> bool:
    """True when the text holds at least one field marker at the start of a line."""
    return "##" in text and _HEADER.search(text) is not None


def unfence(text: str) -> str:
    """The content of a text that is one fenced code block; any other text as it is."""
    match = _FENCE.match(text.strip())
    return match[1].strip() if match else text


def read_calls(text: str) -> dspy.ToolCalls:
    """The tool calls of a `tool_calls` section; empty for blanks and words like None.

    Raises UnreadableReply when the text is neither empty nor a list of calls with names.
    """
    text = unfence(text).strip()
    if text.lower() in _NO_CALLS:
        return dspy.ToolCalls(tool_calls=[])
    tagged = _TAGGED_CALL.findall(text)
    if tagged:
        return _as_calls([_load(item) for item in tagged])
    return _as_calls(_load(text))


def _load(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError as error:
        reason = str(error)
    value = find_json(text)
    if not _looks_like_calls(value) and all(text.count(a) == text.count(b) for a, b in ("{}", "[]")):
        import json_repair  # trailing commas, single quotes; never a reply that was cut off

        start = min((i for i in (text.find("{"), text.find("[")) if i >= 0), default=len(text))
        try:
            value = json_repair.loads(text[start:])
        except (ValueError, RecursionError):
            value = None
        value = None if is_deep(value) else value
    if not _looks_like_calls(value):
        raise UnreadableReply(f"tool_calls is not valid JSON ({reason})")
    return value


def _looks_like_calls(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return bool(items) and all(isinstance(item, dict) and item for item in items)


def _as_calls(value: Any) -> dspy.ToolCalls:
    if isinstance(value, dict):
        listed = value.get("tool_calls", value.get("calls"))
        if listed is None and not _call_name(value) and not value.get("function"):
            if not value:
                return dspy.ToolCalls(tool_calls=[])
            raise UnreadableReply('a call needs "name" and "args"')
        value = [value] if listed is None else listed
        if isinstance(value, dict):
            value = [value]
    if isinstance(value, str):
        return read_calls(value)
    if not isinstance(value, list):
        raise UnreadableReply("tool_calls must be a list of calls")
    calls: list[Any] = []
    for item in value:
        if isinstance(item, list):  # a list of lists, one per tagged block
            calls.extend(_as_calls(item).tool_calls)
        else:
            calls.append(make_call(item))
    return dspy.ToolCalls(tool_calls=calls)


def make_call(item: Any) -> Any:
    """One `ToolCalls.ToolCall` from any usual spelling; arguments that are no object are kept for the error text."""
    if not isinstance(item, dict):
        raise UnreadableReply(f"a call must be a JSON object, got {type(item).__name__}")
    inner = item.get("function")
    source = inner if isinstance(inner, dict) else item
    name = _call_name(source) or _call_name(item) or (inner if isinstance(inner, str) else "")
    if not name:
        raise UnreadableReply('a call needs a "name"')
    arguments = next((source[key] for key in _ARGS_KEYS if key in source), None)
    identifier = item.get("id") or item.get("call_id")
    return dspy.ToolCalls.ToolCall(
        id=identifier if isinstance(identifier, str) else None, name=encodable(name), args=as_arguments(arguments)
    )


def as_arguments(arguments: Any) -> dict[str, Any]:
    """Arguments as an object; text that is not one is kept under `partial_json` for an honest error message."""
    if arguments is None:
        return {}
    if isinstance(arguments, str):
        if not arguments.strip():
            return {}
        try:
            parsed = read_json(arguments)
        except ValueError:
            return {UNPARSED: encodable(arguments)}
        return as_arguments(parsed)
    if is_deep(arguments):  # parsed by the provider's client
        return {UNPARSED: "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)}
    if isinstance(arguments, dict):
        return encodable_data(arguments)
    return {UNPARSED: json.dumps(arguments, ensure_ascii=False, default=str)}


def _call_name(item: dict[str, Any]) -> str:
    for key in _NAME_KEYS:
        name = item.get(key)
        if isinstance(name, str) and name.strip():
            return name.strip()
    return ""


def calls_in_prose(text: str) -> tuple[dspy.ToolCalls, dict[str, Any]] | None:
    """Calls that a model wrote without field markers (`<tool_call>` blocks, JSON), with the JSON's other fields.

    None when the text holds no JSON object that looks like a call or like the reply's fields.
    """
    tagged = _TAGGED_CALL.findall(text)
    try:
        if tagged:
            return _as_calls([_load(item) for item in tagged]), {}
        value = find_json(unfence(text)) if "{" in text or "[" in text else None
        if isinstance(value, dict) and ("tool_calls" in value or "answer" in value or "report" in value):
            calls = value.get("tool_calls")
            return (_as_calls(calls) if calls else dspy.ToolCalls(tool_calls=[])), value
        if isinstance(value, dict) and _call_name(value) and any(key in value for key in _ARGS_KEYS):
            return _as_calls(value), {}
        if isinstance(value, list) and value and all(isinstance(v, dict) and _call_name(v) for v in value):
            return _as_calls(value), {}
    except UnreadableReply:
        return None
    return None
