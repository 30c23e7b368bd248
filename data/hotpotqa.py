"""HotpotQA (Yang et al. 2018, arXiv 1809.09600) over the Wikipedia tools, and the packaged sample in its form.

Questions are those of the `distractor` validation split; its context paragraphs are never read, let alone
shown: agents retrieve evidence themselves. Eval ids are the first 100 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

from data.hub import HubFile
from data.wiki_task import Item, WikiTask, load_wiki_task, read_rows, text_field
from metrics.errors import ConfigurationError
from metrics.hotpotqa import score

HUB = HubFile(
    repo="hotpotqa/hotpot_qa",
    revision="1908d6afbbead072334abe2965f91bd2709910ab",
    path="distractor/validation-00000-of-00001.parquet",
)
COLUMNS = ("id", "_id", "question", "answer", "type", "level")
FULL_SIZE = 7405
SAMPLE_FILE = "hotpotqa_sample.jsonl"


def load(
    name: str = "hotpotqa",
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
) -> WikiTask:
    """The task `hotpotqa` (hub, or a file in the original format) or `hotpotqa-sample` (packaged).

    Options as in `data.registry.load_task`; `wiki` defaults to `live`, for the sample to its own mini-wiki.
    Raises ConfigurationError for what does not fit.
    """
    sample = name == "hotpotqa-sample"
    return load_wiki_task(
        name,
        _sample_items if sample else _items,
        rule=score,
        setting="packaged questions over a mini-wiki" if sample else "distractor questions, evidence by search only",
        full_size=None if sample else FULL_SIZE,
        groups=("type", "level"),
        split=split,
        data_file=data_file,
        wiki=wiki,
        default_wiki="mini" if sample else "live",
        limit=limit,
        offset=offset,
        only=only,
        scenario=scenario,
        tool_result_budget=tool_result_budget,
        split_from_file=split_from_file,
    )


def _items(data_file: str | None) -> tuple[list[Item], dict[str, Any]]:
    rows, origin = read_rows(data_file, HUB, COLUMNS, dataset="hotpotqa")
    where = data_file or "hotpotqa"
    return [_item(row, f"{where}, row {number}") for number, row in enumerate(rows)], origin


def _sample_items(data_file: str | None) -> tuple[list[Item], dict[str, Any]]:
    if data_file:
        raise ConfigurationError("hotpotqa-sample is packaged: use --dataset hotpotqa with --data-file")
    file = str(resources.files("data.samples").joinpath(SAMPLE_FILE))
    items, origin = _items(file)
    return items, {"data_file": SAMPLE_FILE, "data_sha256": origin["data_sha256"]}


def _item(row: dict[str, Any], where: str) -> Item:
    return Item(
        id=text_field(row, ("id", "_id"), where),
        question=text_field(row, ("question",), where),
        golds=(text_field(row, ("answer",), where),),
        labels={name: row[name] for name in ("type", "level") if row.get(name) is not None},
    )
