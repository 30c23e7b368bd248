"""Run folders for tests of reports, written by hand: any row and any trace, also ones that no run would write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIG = {
    "format": 1,
    "primary": "correct",
    "embedded": False,
    "settings": {
        "dataset": "words", "program": "single", "model": "stub/words", "scoring": "mas-promptbench", "seed": 0,
        "data": {"dataset": "words", "split": "test", "n": 3, "ids_hash": "abc", "setting": "free"},
    },
}  # fmt: skip


def row(row_id: Any, **changes: Any) -> dict[str, Any]:
    """A finished row, right unless told otherwise."""
    return {
        "id": row_id, "question": f"question {row_id}", "gold_answer": "Oslo", "predicted_answer": "Oslo", "hops": 2,
        "correct": True, "strict_correct": True, "credited_by": "literal", "error": None, "exhausted": False,
        "forced": False, "stopped": None, "n_lm_calls": 2, "n_tool_calls": 1, "prompt_tokens": 100,
        "completion_tokens": 20, "n_cached_lm_calls": 0, "usd_billed": 0.01, "usd_without_cache": 0.02,
        "usage_by_role": {"solver": {"lm_calls": 2, "prompt_tokens": 100, "completion_tokens": 20}},
        "seed": 1, "latency_s": 1.5, **changes,
    }  # fmt: skip


def failed(row_id: Any, message: str = "no route to host") -> dict[str, Any]:
    """A row that the infrastructure lost."""
    error = {"kind": "model", "type": "LMTransportError", "message": message}
    return row(row_id, error=error, correct=None, strict_correct=None, credited_by=None, predicted_answer=None)


def trace(row_id: Any, said: str = "Oslo", **changes: Any) -> dict[str, Any]:
    """The trace of one model call with a tool call."""
    agent = {"role": "solver", "index": 0, "round": 1}
    reply = f"[[ ## thought ## ]]\nhm\n\n[[ ## answer ## ]]\n{said}"
    texts = {"s": "You are a solver.", "u": "Where is it?", "r": reply}
    call = {
        "agent": agent, "start_s": 0.0, "seconds": 1.0, "model": "stub/words", "prompt_tokens": 100,
        "completion_tokens": 20, "cached": False, "usd_without_cache": 0.02, "finish_reason": "stop",
        "messages": [{"role": "system", "text": ["s"]}, {"role": "user", "text": ["u"]}], "reply": [{"text": ["r"]}],
    }  # fmt: skip
    return {
        "format": 1, "id": row_id, "question": f"question {row_id}", "answer": said, "final_text": said,
        "last_tool_result": "", "calls": [call], "tools": [], "texts": texts, "agents": [], "reports": [],
        "votes": [], "usage_by_role": {"solver": {"lm_seconds": 1.0}}, **changes,
    }  # fmt: skip


def write_run(folder: Path, rows: list[Any], traces: dict[str, Any] | None = None, **files: Any) -> Path:
    """A run folder of these rows, killed unless `summary` is given; texts of `traces` are written as they are.

    JSON is written by Python's own encoder, which keeps lone surrogates and NUL as escapes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "traces").mkdir(exist_ok=True)
    (folder / "results.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    (folder / "config.json").write_text(json.dumps(files.pop("config", CONFIG)))
    for name, value in (traces or {}).items():
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / "traces" / f"{name}.json").write_text(text)
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


HOSTILE = (
    "<script>window.hacked = 1</script></script><script>window.hacked = 2</script>"
    "<!--<script><img src=x onerror='window.hacked=3'><svg onload=window.hacked=4>"
    "{{7*7}} ${1} &amp; &#60; \u2028\u2029 \x00\x07 \u202egnp.exe \ud800 \udfff 😀 שלום ]]>"
)
