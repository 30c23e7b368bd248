"""ToolHop (Ye et al. 2025, arXiv 2501.02506): multi-hop questions over Python tools, and our packaged sample.

A program sees the question, the tools and the answer form. Sub-questions, sources, domain and answer types stay
here: they reach no example, no prompt and no optimizer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data.splits import choose_rows, shipped_ids
from data.toolhop_rows import check_row, read_raw_rows
from data.toolhop_tools import DEFAULT_RESULT_CHARS, build_tools
from metrics.errors import ConfigurationError
from metrics.example import QuestionExample
from metrics.task import AnswerFormat
from metrics.text import plural
from metrics.toolhop import SCORING, extract_answer, has_answer_form, score, vote_key

BUDGET_VARIABLE = "TOOLHOP_TOOL_RESULT_CHAR_BUDGET"
FULL_SIZE = 995
SCENARIOS = ("free", "mandatory", "direct")
_MIN_RESULT_CHARS = 100

ANSWER_FORM = (
    "A date as YYYY-MM-DD, a name as Firstname Lastname, a number in digits without leading zeros. "
    "As short as possible: the value itself, no sentence around it. "
    "Wrap it in tags, with nothing after them: <answer>VALUE</answer>"
)
MANDATORY = "Take every step with a tool, and the answer from a tool's result: nothing from memory."


@dataclass
class ToolHopTask:
    """Rows of ToolHop ready to run (see `metrics.task.Task`); the headline is the official verdict.

    `refusal` says why no row may run (the file's code has no permission). `notices` are lines for the user.
    """

    name: str
    examples: list[QuestionExample]
    config: dict[str, Any]
    labels: dict[Any, dict[str, Any]] = field(repr=False)  # id -> domain, hops: for reports only
    refusal: str | None = None
    notices: list[str] = field(default_factory=list)
    scoring: str = SCORING
    primary: str = "correct"

    def score(
        self, example: QuestionExample, final_text: str, answer: str | None, last_tool_result: str
    ) -> dict[str, Any]:
        """Both verdicts of one row (see `metrics.toolhop.score`); the answer counts where the text has no tag."""
        text = final_text if answer is None or has_answer_form(final_text) else answer
        return score(example.gold, text, last_tool_result)

    def summarize(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Where the two rules differ, what earned credit, and means by domain and by hops."""
        official_only = sum(bool(row.get("correct")) > bool(row.get("strict_correct")) for row in rows)
        strict_only = sum(bool(row.get("correct")) < bool(row.get("strict_correct")) for row in rows)
        return {
            "official_only_share": round(official_only / len(rows), 6) if rows else None,
            "strict_only_share": round(strict_only / len(rows), 6) if rows else None,
            "credited_by": {
                name: sum(row.get("credited_by") == name for row in rows)
                for name in ("literal", "substring", "tool_result", "none")
            },
            "by_domain": self._by(rows, "domain"),
            "by_hops": self._by(rows, "hops"),
            "score_label": self._label(len(rows)),
        }

    def _by(self, rows: Sequence[Mapping[str, Any]], label: str) -> dict[str, dict[str, Any]]:
        groups: dict[Any, list[Mapping[str, Any]]] = {}
        for row in rows:
            groups.setdefault(self.labels.get(row.get("id"), {}).get(label), []).append(row)
        return {
            str(value): {
                "n": len(members),
                "accuracy": _mean(members, "correct"),
                "strict_accuracy": _mean(members, "strict_correct"),
            }
            for value, members in sorted(groups.items(), key=lambda item: str(item[0]))
        }

    def _label(self, n: int) -> str:
        """What the numbers may be called: a part of the benchmark is called a part."""
        if self.name != "toolhop":
            return f"{self.name}: {plural(n, 'packaged question')} of our own, not a published benchmark"
        if self.config["split"] == "test" and self.config["split_conformant"] and n == self.config["n_split"]:
            return f"ToolHop, the {n} published eval ids, {self.config['setting']}"
        if n == FULL_SIZE:
            return f"ToolHop, all {n} questions, {self.config['setting']}"
        return f"{n} of the {FULL_SIZE} questions of ToolHop, {self.config['setting']}: not the score of the eval ids"


def load(
    name: str = "toolhop",
    *,
    split: str = "test",
    data_file: str | None = None,
    wiki: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    only: Sequence[str | int] | None = None,
    scenario: str | None = None,
    tool_result_budget: int | None = None,
    split_from_file: bool = False,
) -> ToolHopTask:
    """The task `toolhop` (hub, or a file in the original format) or `toolhop-sample` (packaged).

    Options as in `data.registry.load_task`. `scenario`: `free` (default), `mandatory` (every step and the
    answer must come from a tool) or `direct` (no tools). `tool_result_budget`: characters of a tool result,
    default `TOOLHOP_TOOL_RESULT_CHAR_BUDGET` or 6000. Raises ConfigurationError for what does not fit.
    """
    sample = name == "toolhop-sample"
    if wiki is not None:
        raise ConfigurationError(f"--wiki does not apply: {name} has no Wikipedia tools")
    if scenario is not None and scenario not in SCENARIOS:
        raise ConfigurationError(f"unknown scenario {scenario!r}: choose one of {', '.join(SCENARIOS)}")
    if split_from_file and not data_file:
        raise ConfigurationError("--split-from-file draws splits of a file: give it with --data-file")
    scenario = scenario or "free"
    budget = result_budget(tool_result_budget)
    rows, origin = read_raw_rows(name, data_file)
    rows = [check_row(row, number, origin["data_file"]) for number, row in enumerate(rows)]
    choice = choose_rows(
        rows,
        lambda row: row["id"],
        dataset=name,
        splits=shipped_ids(name),
        split=split,
        split_from_file=split_from_file,
        only=only,
        offset=offset,
        limit=limit,
        source=Path(data_file).name if data_file else f"the rows of {name}",
    )
    refusal, walls, notices = _permission(sample, scenario)
    if "hub" in origin and not origin["published_file"]:
        notices.append(f"{origin['hub']} at {origin['revision']} is not the published file: results may differ")
    form = AnswerFormat(
        text=f"{ANSWER_FORM}\n{MANDATORY}" if scenario == "mandatory" else ANSWER_FORM,
        extract=extract_answer,
        vote_key=vote_key,
        has_form=has_answer_form,
    )
    examples = [_example(row, form, scenario, budget, refusal) for row in choice.rows]
    repaired = sum(bool(example.meta.get("schema_repaired")) for example in examples)
    if repaired:
        notices.append(
            f"tool schemas of {plural(repaired, 'row')} were repaired (type names that JSON Schema does not have)"
        )
    config = {
        "dataset": name,
        "setting": scenario,
        **origin,
        **choice.config,
        "scoring": SCORING,
        "tool_result_budget": budget,
        "answer_form": form.text,
        "dataset_code": "refused" if refusal else "run" if walls else "not run",
        "sandbox": walls,
        "schemas_repaired": repaired,
    }
    labels = {row["id"]: {"domain": str(row.get("domain")).lower(), "hops": _n_tools(row)} for row in choice.rows}
    return ToolHopTask(name, examples, config, labels, refusal, notices)


def _permission(sample: bool, scenario: str) -> tuple[str | None, dict[str, Any] | None, list[str]]:
    """(refusal, what the sandbox enforces, lines for the user); nothing is started where no code will run."""
    if scenario == "direct":
        return None, None, []
    from data.sandbox import check_execution_allowed, describe_walls, walls

    refusal = check_execution_allowed(sample)
    if refusal is not None:
        return refusal, None, [f"refused: {refusal}"]
    report = walls()
    return None, report, [describe_walls(report)]


def _example(
    row: Mapping[str, Any], form: AnswerFormat, scenario: str, budget: int, refusal: str | None
) -> QuestionExample:
    tools = build_tools(row, row_key=str(row["id"]), result_chars=budget, refusal=refusal)
    renamed = {tool.name: tool.own_name for tool in tools if tool.name != tool.own_name}
    repairs = {tool.name: list(tool.repairs) for tool in tools if tool.repairs}
    meta: dict[str, Any] = {"hops": len(tools)}
    if renamed:
        meta["tool_names"] = renamed
    if repairs:
        meta.update(schema_repaired=True, schema_repairs=repairs)
    example = QuestionExample(
        gold="" if row.get("answer") is None else str(row["answer"]),
        id=row["id"],
        question=row["question"],
        tools=[] if scenario == "direct" else tools,
        answer_format=form,
        meta=meta,
    )
    return example.with_inputs("question", "tools", "answer_format")


def result_budget(given: int | None, environ: Mapping[str, str] | None = None) -> int:
    """Characters of one tool result that the model sees: the given number, else the variable, else 6000."""
    environ = os.environ if environ is None else environ
    value, source = given, "--tool-result-budget"
    text = environ.get(BUDGET_VARIABLE, "").strip()
    if value is None and text:
        source = BUDGET_VARIABLE
        if not text.isdecimal():
            raise ConfigurationError(f"{BUDGET_VARIABLE} must be a whole number, got {text!r}")
        value = int(text)
    if value is None:
        return DEFAULT_RESULT_CHARS
    if value < _MIN_RESULT_CHARS:
        raise ConfigurationError(f"{source} {value}: a tool result needs at least {_MIN_RESULT_CHARS} characters")
    return value


def _n_tools(row: Mapping[str, Any]) -> int:
    return len(row.get("tools") or ())


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [float(row[name]) for row in rows if row.get(name) is not None]
    return round(sum(values) / len(values), 6) if values else None
