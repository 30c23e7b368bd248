"""A user's own questions: a JSON-lines, JSON or parquet file, drawn into train, validation and test rows.

Each row is an object with `question` and `answer` (a text, a number, or a list of accepted ones), and optionally `id`,
`answer_format` (what the answer must look like) and `tools`: a dotted path `package.module:NAME` to a function, a
`dspy.Tool`, or a list of them; or a list of such paths. A JSON file is a list of rows, or an object with `rows` and a
common `tools` and `answer_format`.

    {"question": "Who ...?", "answer": "Ada Lovelace", "tools": "my_package.my_tools:TOOLS"}
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data.hub import data_files, file_rows
from data.splits import choose_rows, file_hash
from metrics.errors import ConfigurationError
from metrics.exact_match import score
from metrics.example import QuestionExample

NAME = "own"
COLUMNS = ("id", "question", "answer", "answer_format", "tools")


@dataclass
class OwnTask:
    """Rows of a user's file (see `metrics.task.Task`): right when the answer equals an accepted one, case and
    punctuation aside.
    """

    name: str
    examples: list[QuestionExample]
    config: dict[str, Any]
    scoring: str = "exact-match"
    primary: str = "correct"
    notices: list[str] = field(default_factory=list)

    def score(
        self, example: QuestionExample, final_text: str, answer: str | None, last_tool_result: str
    ) -> dict[str, Any]:
        return score(example.accepted, final_text, answer)

    def summarize(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {}


def load(
    name: str = NAME,
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
) -> OwnTask:
    """A split of a user's file; splits are always drawn from it, in the published proportions.

    Options as in `data.registry.load_task`; `scenario="direct"` offers no tools. Raises ConfigurationError that says
    what is wrong.
    """
    if not data_file:
        raise ConfigurationError("--dataset own needs the file with your questions: --data-file QUESTIONS.jsonl")
    if wiki is not None or tool_result_budget is not None:
        flag = "--wiki" if wiki is not None else "--tool-result-budget"
        raise ConfigurationError(f"{flag} does not apply to questions of your own: their tools are yours")
    source = Path(data_file).name
    examples = [_example(row, f"{source}, row {number}", number) for number, row in enumerate(_rows(data_file))]
    if len(examples) < 3 and split in ("train", "validation"):
        raise ConfigurationError(f"{source}: at least 3 rows are needed, one per split; it has {len(examples)}")
    choice = choose_rows(
        examples,
        lambda example: str(example.id),
        dataset=name,
        split=split,
        split_from_file=True,
        only=only,
        offset=offset,
        limit=limit,
        source=source,
    )
    for example in examples if scenario == "direct" else ():
        example.tools = []
    config = {"dataset": name, "data_file": data_file, "data_sha256": file_hash(data_file), **choice.config}
    if scenario:
        config["setting"] = scenario
    part = f"the {split} split: {config['n_split']} of {len(examples)} rows of {source}"
    return OwnTask(name, choice.rows, config, notices=[part] if split != "all" else [])


def load_object(spec: str, what: str) -> Any:
    """The object that `package.module:NAME` names; `what` is the flag or field, for the message."""
    module_name, colon, attribute = spec.partition(":")
    if not colon or not module_name or not attribute:
        raise ConfigurationError(f"{what} takes package.module:NAME, got {spec!r}")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last, so that no file there hides a module of ours or of a library
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # the module is the user's: anything may happen in it
        raise ConfigurationError(f"{what} {spec}: {type(error).__name__}: {error}") from error


def _rows(path: str) -> list[dict[str, Any]]:
    """The rows, with what is common to all of them put in."""
    common = _object_form(path)
    if common is None:
        return file_rows(path, COLUMNS)
    rows = common.get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise ConfigurationError(f"{Path(path).name}: `rows` must be a list of objects with `question` and `answer`")
    return [{**{key: common[key] for key in ("tools", "answer_format") if key in common}, **row} for row in rows]


def _object_form(path: str) -> dict[str, Any] | None:
    """The file as one JSON object with `rows`, None when it is of another form."""
    first, *more = data_files(path)
    if more or first.suffix != ".json":
        return None
    try:
        found = json.loads(first.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return None  # the message of `file_rows` says it
    return found if isinstance(found, dict) and "rows" in found else None


def _example(row: Mapping[str, Any], where: str, number: int) -> QuestionExample:
    if not isinstance(row.get("question"), str) or row.get("answer") in (None, ""):
        raise ConfigurationError(f"{where}: `question` and `answer` are needed")
    row_id = number if row.get("id") is None else row["id"]
    if isinstance(row_id, bool) or not isinstance(row_id, int | str):
        raise ConfigurationError(f"{where}: the id must be a number or a text, got {row_id!r}")
    if not isinstance(row.get("answer_format"), str | None):
        raise ConfigurationError(f"{where}: `answer_format` must be a sentence, got {row['answer_format']!r}")
    accepted = _accepted(row["answer"], where)
    example = QuestionExample(
        gold=accepted[0],
        accepted=accepted,
        id=row_id,
        question=row["question"],
        tools=_tools(row.get("tools") or [], where),
        answer_format=row.get("answer_format"),
        meta={},
    )
    return example.with_inputs("question", "tools", "answer_format")


def _accepted(answer: Any, where: str) -> list[Any]:
    """The accepted answers, the first of them being the one that is shown."""
    answers = answer if isinstance(answer, list) else [answer]
    if not answers or any(item in (None, "") or isinstance(item, list | Mapping) for item in answers):
        raise ConfigurationError(
            f"{where}: `answer` must be a text, a number, or a list of accepted ones, got {answer!r}"
        )
    return answers


def _tools(given: Any, where: str) -> list[Any]:
    """The functions behind a dotted path or a list of paths; a path may lead to a list."""
    tools: list[Any] = []
    for path in given if isinstance(given, list) else [given]:
        if not isinstance(path, str):
            raise ConfigurationError(
                f"{where}: `tools` must be package.module:NAME of a function or of a list of functions, or a list of "
                f"such names, got {path!r}"
            )
        found = load_object(path, f"{where}: tools")
        tools += found if isinstance(found, list | tuple) else [found]
    if odd := [tool for tool in tools if not callable(tool)]:
        raise ConfigurationError(f"{where}: `tools` must name functions, {given!r} leads to {odd[0]!r}")
    return tools
