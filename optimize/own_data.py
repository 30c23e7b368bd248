"""A user's own questions: a JSON or JSON-lines file, drawn into train, validation and test rows.

Each row is an object with `question` and `answer`, and optionally `id`, `answer_format` (what the answer must look
like) and `tools`: a dotted path `package.module:NAME` to a function, a `dspy.Tool`, or a list of them; `tools` may
also be given once for all rows. A JSON file is a list of rows, or an object with `rows` and such common fields.

    {"question": "Who ...?", "answer": "Ada Lovelace", "tools": "my_package.my_tools:TOOLS"}
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.splits import draw_splits, file_hash, ids_hash, splits_hash
from metrics.errors import ConfigurationError
from metrics.example import QuestionExample

NAME = "own"


@dataclass
class OwnTask:
    """Rows of a user's file (see `metrics.task.Task`): right when the answer equals the gold, case and punctuation
    aside.
    """

    name: str
    examples: list[QuestionExample]
    config: dict[str, Any]
    scoring: str = "exact-match"
    primary: str = "correct"
    refusal: str | None = None

    def score(
        self, example: QuestionExample, final_text: str, answer: str | None, last_tool_result: str
    ) -> dict[str, Any]:
        from programs.answers import as_answer_format

        form = as_answer_format(example.answer_format)
        given = answer if answer not in (None, "") else form.extract(final_text or "")
        right = given is not None and form.vote_key(str(given)) == form.vote_key(str(example.gold))
        return {"correct": right, "predicted_answer": given}

    def summarize(self, rows: Any) -> dict[str, Any]:
        return {}


def load_own_splits(path: str) -> dict[str, OwnTask]:
    """Train, validation and test of a user's file, in the published proportions; `ConfigurationError` says what is
    wrong.
    """
    rows = _rows(Path(path))
    examples = [_example(row, number) for number, row in enumerate(rows)]
    ids = [example.id for example in examples]
    if len(set(map(str, ids))) != len(ids):
        raise ConfigurationError(f"{Path(path).name}: ids occur more than once")
    if len(ids) < 3:
        raise ConfigurationError(f"{Path(path).name}: at least 3 rows are needed, one per split; it has {len(ids)}")
    by_id = dict(zip(ids, examples, strict=True))
    splits = draw_splits(ids)
    common = {"dataset": NAME, "data_sha256": file_hash(path), "splits_hash": splits_hash(splits)}
    return {
        name: OwnTask(
            NAME,
            [by_id[row_id] for row_id in chosen],
            {
                **common,
                "split": name,
                "n": len(chosen),
                "ids_hash": ids_hash(chosen),
                "split_origin": "drawn from the file",
                "split_conformant": False,
            },
        )
        for name, chosen in splits.items()
    }


def load_object(spec: str, what: str) -> Any:
    """The object that `package.module:NAME` names; `what` is the flag or field, for the message."""
    module_name, colon, attribute = spec.partition(":")
    if not colon or not module_name or not attribute:
        raise ConfigurationError(f"{what} takes package.module:NAME, got {spec!r}")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{what} {spec}: {error}") from None


def _rows(path: Path) -> list[dict[str, Any]]:
    common: dict[str, Any] = {}
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl":
            data: Any = [json.loads(line) for line in text.split("\n") if line.strip()]
        else:
            data = json.loads(text)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path.name}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"{path.name} is not JSON: {error}") from None
    if isinstance(data, Mapping):
        common = {key: data[key] for key in ("tools", "answer_format") if key in data}
        data = data.get("rows")
    if not isinstance(data, list) or not all(isinstance(row, Mapping) for row in data):
        raise ConfigurationError(f"{path.name} must be a list of objects with `question` and `answer`")
    return [{**common, **row} for row in data]


def _example(row: Mapping[str, Any], number: int) -> QuestionExample:
    if not isinstance(row.get("question"), str) or row.get("answer") in (None, ""):
        raise ConfigurationError(f"row {number}: `question` and `answer` are needed")
    tools = row.get("tools") or []
    if isinstance(tools, str):
        tools = load_object(tools, "tools")
    example = QuestionExample(
        gold=row["answer"],
        id=row.get("id", number),
        question=row["question"],
        tools=list(tools) if isinstance(tools, list | tuple) else [tools],
        answer_format=row.get("answer_format"),
        meta={},
    )
    return example.with_inputs("question", "tools", "answer_format")
