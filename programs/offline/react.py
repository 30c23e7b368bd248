"""Requests of `dspy.ReAct`, read as those of our own acting roles: tools, steps so far, and the reply's three fields.

ReAct lists its tools in the instruction and keeps its trajectory as `[[ ## tool_name_0 ## ]]` sections; the engine
then works on both as it does everywhere.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from programs.offline.request import Seen, Tool, stock_tool

if TYPE_CHECKING:
    from programs.offline.writing import Move

FINISH = "finish"
_TOOL_LINE = re.compile(
    r"^\(\d+\) (\w+(?:, whose description is <desc>.*</desc>)?\. +It takes arguments \{.*\}\.)$", re.MULTILINE
)
_SECTION = re.compile(r"^\[\[ ## (thought|tool_name|tool_args|observation)_(\d+) ## \]\][ \t]*\n?", re.MULTILINE)


def acts_by_name(seen: Seen) -> bool:
    """Whether the reply names one tool and its arguments in fields of their own."""
    return {"next_tool_name", "next_tool_args"} <= {out.name for out in seen.outputs}


def as_own(seen: Seen) -> Seen:
    """The request with its tools found and its steps in our trajectory's form; any other request as it is."""
    if acts_by_name(seen) and not seen.tools:
        seen = replace(seen, tools=tuple(tool for tool in _tools(seen.instruction) if tool.name != FINISH))
    if _SECTION.search(trajectory := seen.inputs.get("trajectory", "")):
        seen = replace(seen, inputs={**seen.inputs, "trajectory": _steps(trajectory)})
    return seen


def as_fields(move: Move) -> Move:
    """A move as ReAct's fields: its first call, or `finish` when it has something to say."""
    name, args = move.calls[0] if move.calls else (FINISH, {})
    move.fields |= {"next_thought": move.thought or "Done.", "next_tool_name": name, "next_tool_args": args}
    return move


def _tools(instruction: str) -> list[Tool]:
    return [tool for text in _TOOL_LINE.findall(instruction) if (tool := stock_tool(text))]


def _steps(trajectory: str) -> str:
    steps: dict[int, dict[str, str]] = {}
    marks = list(_SECTION.finditer(trajectory))
    for mark, following in zip(marks, [*marks[1:], None], strict=False):
        text = trajectory[mark.end() : following.start() if following else len(trajectory)].strip()
        steps.setdefault(int(mark[2]), {}).setdefault(mark[1], text)
    lines = []
    for number, step in sorted(steps.items()):
        name, args = step.get("tool_name", ""), step.get("tool_args", "{}")
        try:
            args = json.dumps(json.loads(args), ensure_ascii=False)
        except ValueError:
            continue
        if name != FINISH:
            shown = step.get("observation", "").replace("\n", "\n  ")
            lines.append(f"step {number + 1}: {name}({args}) -> {shown}")
    return "\n".join(lines)
