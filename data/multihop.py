"""2WikiMultiHopQA, MuSiQue and Bamboogle over the Wikipedia tools: the further sets of arXiv 2507.01489.

Same tools and answer form as HotpotQA. Metrics are EM, cover-EM and F1, each a maximum of its own over the
answer and its aliases. The sets have no published splits: `test` is every row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from data.hub import HubFile
from data.wiki_task import SCORING, Item, WikiTask, load_wiki_task, read_rows, text_field
from metrics.errors import ConfigurationError
from metrics.hotpotqa import score
from metrics.multihop import score_musique


@dataclass(frozen=True)
class MultihopSet:
    """Where a set comes from, which of its fields are read, and how it is scored."""

    hub: HubFile
    columns: tuple[str, ...]
    full_size: int
    rule: Callable[[Any, Any], dict[str, float]]
    groups: tuple[str, ...] = ()
    scoring: str = SCORING


SETS = {
    "2wikimultihopqa": MultihopSet(
        HubFile("xanhho/2WikiMultihopQA", "612bc5039a457880d9e7d84c3b0a4cf154b70e4f", "dev.parquet"),
        ("_id", "id", "type", "question", "answer"),
        12576,
        score,
        ("type",),
    ),
    "musique": MultihopSet(
        HubFile("dgslibisey/MuSiQue", "c8f4f8c9465fb69d31a8eae894c3fd509c4ca321", "musique_ans_v1.0_dev.jsonl"),
        ("id", "question", "answer", "answer_aliases"),
        2417,
        score_musique,
        ("hops",),
        "hotpot_evaluate_v1, F1 of MuSiQue",
    ),
    "bamboogle": MultihopSet(
        HubFile("RUC-NLPIR/FlashRAG_datasets", "bcafb8dd07d453be3cbeeeb3f78be1841bddf92c", "bamboogle/test.jsonl"),
        ("id", "question", "answer", "golden_answers"),
        125,
        score,
    ),
}


def load(
    name: str,
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
    """One of the three sets, from the hub or from a file in its original format (options as in `load_task`)."""
    chosen = SETS[name]

    def items(path: str | None) -> tuple[list[Item], dict[str, Any]]:
        rows, origin = read_rows(path, chosen.hub, chosen.columns, dataset=name)
        return [_item(name, row, f"{path or name}, row {number}") for number, row in enumerate(rows)], origin

    return load_wiki_task(
        name,
        items,
        rule=chosen.rule,
        scoring=chosen.scoring,
        setting="evidence by search only",
        full_size=chosen.full_size,
        groups=chosen.groups,
        split=split,
        data_file=data_file,
        wiki=wiki,
        default_wiki="live",
        limit=limit,
        offset=offset,
        only=only,
        scenario=scenario,
        tool_result_budget=tool_result_budget,
        split_from_file=split_from_file,
    )


def _item(name: str, row: dict[str, Any], where: str) -> Item:
    row_id = text_field(row, ("_id", "id"), where)
    labels: dict[str, Any] = {"type": row["type"]} if row.get("type") else {}
    if name == "musique" and row_id[:1].isdigit():
        labels["hops"] = row_id[0]  # "3hop1__...": the id tells the number of hops
    return Item(row_id, text_field(row, ("question",), where), _golds(row, where), labels)


def _golds(row: dict[str, Any], where: str) -> tuple[str, ...]:
    """The answer, then `answer_aliases` and `golden_answers`, each text once."""
    texts: list[str] = []
    if row.get("answer") is not None:
        texts.append(text_field(row, ("answer",), where))
    for field in ("answer_aliases", "golden_answers"):
        values = row.get(field) or []
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise ConfigurationError(f"{where}: {field} is no list")
        texts += [str(value) for value in values]
    if not texts:
        raise ConfigurationError(f"{where}: the row has no answer")
    return tuple(dict.fromkeys(texts))
