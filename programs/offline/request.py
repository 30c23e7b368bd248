"""What a request shows: the instruction, input fields, tools, demos and wanted output fields.

The engine reads requests like any model would: DSPy's chat format (`[[ ## field ## ]]`), its JSON format, native
tool calling (`request.tools`), and plain text without any fields.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_MARKER = re.compile(r"^\[\[ ## (\w+) ## \]\][ \t]*\n?", re.MULTILINE)
_FIELD_LINE = re.compile(r"^\d+\. `(\w+)` \((.*?)\):[ \t]?(.*)$", re.MULTILINE)
_OBJECTIVE = re.compile(r"^(?:In adhering to this structure, your|Your) objective is:", re.MULTILINE | re.IGNORECASE)
_RESPOND = re.compile(r"^Respond with (?:the corresponding output fields|a JSON object)", re.MULTILINE)
_PROSE_FINAL = re.compile(r"reply with the (\w+) itself")
_NATIVE_NOTE = re.compile(r"^Call tools for what you need to know", re.MULTILINE)
_STOCK_TOOL = re.compile(
    r"(\w+)(?:, whose description is <desc>(.*?)</desc>)?\. +It takes arguments (\{.*\})\.?$", re.DOTALL
)


@dataclass(frozen=True)
class Tool:
    """A callable as the request describes it. `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, Any]

    @property
    def properties(self) -> dict[str, Any]:
        found = self.parameters.get("properties")
        if not isinstance(found, dict):
            return {}
        return {str(name): schema if isinstance(schema, dict) else {} for name, schema in found.items()}

    @property
    def required(self) -> list[str]:
        found = self.parameters.get("required")
        return [str(n) for n in found if str(n) in self.properties] if isinstance(found, list) else []


@dataclass(frozen=True)
class OutputField:
    """A wanted output: name, type as the prompt writes it, description."""

    name: str
    type: str = "str"
    desc: str = ""


@dataclass(frozen=True)
class Seen:
    """Everything the engine may use.

    `mode` is how to reply: `fields` (markers), `json` (one object), `prose` (the final message itself) or `plain` (a
    request without fields). `native`: tool calls go out as calls, not as a field.
    """

    mode: str
    instruction: str
    inputs: dict[str, str]
    outputs: tuple[OutputField, ...]
    tools: tuple[Tool, ...]
    demos: tuple[tuple[str, str], ...]  # (user text, assistant text)
    text: str  # the last user message as it stands
    seed: int | None
    temperature: float | None
    native: bool = False

    def get(self, name: str, default: str = "") -> str:
        value = self.inputs.get(name, default)
        return "" if value.strip() in ("(none)", "(no steps yet)", "(no tools in this call)") else value

    @property
    def latent(self) -> str:
        """The request's own randomness: its seed when it samples, nothing when it is greedy."""
        return str(self.seed) if self.seed is not None and self.temperature else ""


def read(request: Any) -> Seen:
    """Read an `lm15.Request`. Never raises on odd text: what cannot be read is simply not there."""
    system = _joined(request.system)
    turns = [(message.role, _message_text(message)) for message in request.messages]
    last = max((i for i, (role, _) in enumerate(turns) if role == "user"), default=len(turns) - 1)
    text = turns[last][1] if turns else ""
    earlier = turns[:last]
    demos = tuple(
        (earlier[i][1], earlier[i + 1][1])
        for i in range(len(earlier) - 1)
        if earlier[i][0] == "user" and earlier[i + 1][0] == "assistant"
    )
    config = request.config
    ask: dict[str, Any] = dict(
        seed=config.seed, temperature=config.temperature, demos=demos, native=bool(request.tools)
    )
    tools = tuple(
        Tool(tool.name, getattr(tool, "description", None) or "", getattr(tool, "parameters", None) or {})
        for tool in request.tools
    )
    inputs, outputs, instruction, is_json = _fields(system)
    if not inputs and not outputs:
        merged = system.strip() if system else text
        return Seen("plain", merged, {}, (), tools, text=text, **ask)
    values = _sections(text, inputs)
    if not tools and values.get("tools"):
        tools = _tools_of(values["tools"])
    if is_json:
        mode = "json"
    elif outputs:
        mode = "fields"
    else:
        mode = "prose"
        match = _PROSE_FINAL.search(system)
        outputs = (OutputField(match[1] if match else "answer"),)
        instruction = _NATIVE_NOTE.split(instruction)[0].strip()
    return Seen(mode, instruction, values, outputs, tools, text=text, **ask)


def _joined(parts: Any) -> str:
    if parts is None:
        return ""
    return parts if isinstance(parts, str) else "".join(getattr(part, "text", "") or "" for part in parts)


def _message_text(message: Any) -> str:
    return "".join(getattr(part, "text", "") or "" for part in message.parts)


@lru_cache(maxsize=512)
def _fields(system: str) -> tuple[tuple[str, ...], tuple[OutputField, ...], str, bool]:
    """(input names, output fields, instruction, JSON format?) of a system message; cached, as roles repeat theirs."""
    start = system.find("Your input fields are:")
    middle = system.find("Your output fields are:")
    if start < 0 and middle < 0:
        return (), (), "", False
    end = system.find("All interactions will be structured", max(start, middle))
    end = len(system) if end < 0 else end
    inputs = tuple(match[1] for match in _FIELD_LINE.finditer(system[max(start, 0) : middle if middle >= 0 else end]))
    outputs: tuple[OutputField, ...] = ()
    if middle >= 0:
        outputs = tuple(OutputField(m[1], m[2], m[3].strip()) for m in _FIELD_LINE.finditer(system[middle:end]))
    objective = _OBJECTIVE.search(system, max(start, middle, 0))
    body = system[objective.end() :] if objective else ""
    instruction = "\n".join(line.strip() for line in body.strip().splitlines())
    return inputs, outputs, instruction, "Outputs will be a JSON object" in system


def _sections(text: str, names: tuple[str, ...]) -> dict[str, str]:
    """Values of the declared input fields. Only declared names count, each once, in the declared order."""
    values: dict[str, str] = {}
    order = {name: position for position, name in enumerate(names)}
    found: list[re.Match[str]] = []
    for match in _MARKER.finditer(text):
        rank = order.get(match[1])
        if rank is not None and (not found or rank > order[found[-1][1]]):
            found.append(match)
    for match, following in zip(found, [*found[1:], None], strict=False):
        value = text[match.end() : following.start() if following else len(text)]
        if following is None and (respond := list(_RESPOND.finditer(value))):
            value = value[: respond[-1].start()]
        values[match[1]] = value.strip()
    return values


@lru_cache(maxsize=512)
def _tools_of(block: str) -> tuple[Tool, ...]:
    """Tools of a text-mode block: one JSON object per line, or DSPy's own list of sentences."""
    tools: list[Tool] = []
    try:
        listed = json.loads(block)
    except ValueError:
        listed = [line for line in block.splitlines() if line.strip()]
    for item in listed if isinstance(listed, list) else [listed]:
        if tool := _tool_of(item):
            tools.append(tool)
    return tuple(tools)


def _tool_of(item: Any) -> Tool | None:
    if isinstance(item, str):
        try:
            item = json.loads(item)
        except ValueError:
            return stock_tool(item)
    if isinstance(item, dict) and isinstance(item.get("function"), dict):
        item = item["function"]
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        return None
    parameters = item.get("parameters")
    return Tool(item["name"], str(item.get("description") or ""), parameters if isinstance(parameters, dict) else {})


def stock_tool(text: str) -> Tool | None:
    """DSPy's own rendering: `name, whose description is <desc>...</desc>. It takes arguments {...}`."""
    match = _STOCK_TOOL.search(text.strip())
    if not match:
        return None
    import ast

    try:
        args = ast.literal_eval(match[3])
    except (ValueError, SyntaxError):
        args = {}
    args = args if isinstance(args, dict) else {}
    required = [name for name, schema in args.items() if not (isinstance(schema, dict) and "default" in schema)]
    return Tool(match[1], (match[2] or "").strip(), {"type": "object", "properties": args, "required": required})


def sections_of(text: str) -> dict[str, str]:
    """All `[[ ## field ## ]]` sections of a text (a demo's reply, a recorded message)."""
    found = list(_MARKER.finditer(text))
    return {
        match[1]: text[match.end() : following.start() if following else len(text)].strip()
        for match, following in zip(found, [*found[1:], None], strict=False)
    }
