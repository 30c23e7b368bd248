"""What one run of an agent gave, and how final outputs are read as text."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from programs.answers import is_empty_answer, strip_think
from programs.neutral import encodable


@dataclass
class LoopResult:
    """What one run of the loop gave.

    `answer`: the extracted answer (or the report), None when there is none; `final_text`: the final message as
    written, `report`: the same as the output field gave it; `last_tool_result`: the last tool result before it;
    `steps`: JSON-safe turns; `n_delegations`: calls of agents; `exhausted`: the turns were used up; `forced`: the
    final call was made; `stopped`: why the loop ended without a final message (`turns`, `no_answer`,
    `budget_calls` ...), None when it ended with one; `truncated`: replies cut off at the token limit; `error`:
    {kind, type, message} when the final call itself failed for a reason that is no infrastructure.
    """

    role: str
    index: int = 0
    round: int = 1
    answer: Any = None
    final_text: str = ""
    last_tool_result: str = ""
    steps: list[dict[str, Any]] = field(default_factory=list)
    n_lm_calls: int = 0
    n_tool_calls: int = 0
    n_delegations: int = 0
    turns: int = 0
    exhausted: bool = False
    forced: bool = False
    stopped: str | None = None
    parse_errors: int = 0
    tool_args_errors: int = 0
    truncated: int = 0
    masked: bool = False
    error: dict[str, str] | None = None
    report: Any = None
    tool_names: dict[str, str] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The agent's entry in a prediction's trajectory; plain JSON."""
        plain = {
            key: getattr(self, key)
            for key in (
                "final_text", "last_tool_result", "n_lm_calls", "n_tool_calls", "n_delegations", "turns",
                "exhausted", "forced", "stopped", "parse_errors", "tool_args_errors", "truncated",
            )
        }  # fmt: skip
        record = {"agent": {"role": self.role, "index": self.index, "round": self.round}, "steps": self.steps, **plain}
        if self.masked:
            record["masked"] = True
        if self.error:
            record["error"] = self.error
        if self.tool_names:
            record["tool_names"] = self.tool_names
        return record


def is_nothing(final: Any) -> bool:
    """True for None, blanks, words like None, and a typed report that was left empty."""
    return is_empty_answer(final) or bool(getattr(final, "is_empty", False))


def final_text_of(final: Any) -> str:
    """A final output (text, None, or a typed report) as the text that was written."""
    if final is None:
        return ""
    if isinstance(final, str):
        return encodable(strip_think(final).strip())
    raw = getattr(final, "raw", None)
    if isinstance(raw, str) and raw:
        return raw
    return json.dumps(final.format() if hasattr(final, "format") else final, ensure_ascii=False, default=str)
