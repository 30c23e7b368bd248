"""The task that HotpotQA and the further multi-hop sets share: a question, two Wikipedia tools, a short answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from data.hub import HubFile, file_rows, hub_rows
from data.splits import choose_rows, file_hash, shipped_ids
from data.wiki_sources import check_source, describe_source, resolve_spec
from data.wikipedia_tools import PAGE_CHARS, wikipedia_tools
from metrics.errors import ConfigurationError
from metrics.example import QuestionExample
from metrics.hotpotqa import extract_answer, vote_key
from metrics.task import AnswerFormat
from metrics.text import plural

ANSWER_FORM = (
    "After your reasoning, end with exactly one line `Answer: <short-form>`: yes or no for a yes/no question, "
    'a bare year for "when", a full name for "who", a place name for "where", otherwise the shortest name or '
    "phrase that answers. No explanation on that line."
)
SHORT_ANSWER = AnswerFormat(text=ANSWER_FORM, extract=extract_answer, vote_key=vote_key)
SCORING = "hotpot_evaluate_v1"  # the published script; with aliases, each score a maximum of its own
SCENARIOS = ("free", "mandatory", "direct")
_MIN_PAGE_CHARS = 200


@dataclass(frozen=True)
class Item:
    """One row of any of the sets: `golds` is the answer followed by its aliases, `labels` goes into reports."""

    id: str
    question: str
    golds: tuple[str, ...]
    labels: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class WikiTask:
    """A split of a set over the Wikipedia tools (see `metrics.task.Task`); the headline is exact match."""

    name: str
    examples: list[QuestionExample]
    config: dict[str, Any]
    accepted: dict[str, tuple[str, ...]] = field(repr=False)  # id -> answer and aliases
    rule: Callable[[Any, Any], dict[str, float]] = field(repr=False)
    full_size: int | None = None  # rows of the published set, None for our own sample
    groups: tuple[str, ...] = ()  # labels by which means are reported
    scoring: str = SCORING
    primary: str = "em"

    def score(
        self, example: QuestionExample, final_text: str, answer: str | None, last_tool_result: str
    ) -> dict[str, Any]:
        """Scores of one row, `predicted_answer` (None when there is none) and `no_answer`."""
        predicted = extract_answer(answer if answer is not None else final_text)
        golds = list(self.accepted.get(example.id) or (example.gold,))
        return {**self.rule(golds, predicted), "predicted_answer": predicted, "no_answer": predicted is None}

    def summarize(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Means over extracted answers and by label; `score_label` says what the numbers may be called."""
        extracted = [row for row in rows if not row.get("no_answer")]
        summary: dict[str, Any] = {
            "n_extracted": len(extracted),
            "em_extracted": _mean(extracted, "em"),
            "f1_extracted": _mean(extracted, "f1"),
            "score_label": self._label(len(rows)),
        }
        for label in self.groups:
            values = sorted({str(row.get(label)) for row in rows if row.get(label) is not None})
            summary[f"by_{label}"] = {value: _group(rows, label, value) for value in values}
        return summary

    def _label(self, n: int) -> str:
        """The name of a published benchmark is kept for its full set: a part of it is called a part."""
        if self.full_size is None:
            return f"{self.name}: {plural(n, 'packaged question')} of our own, not a published benchmark"
        if n == self.full_size:
            return f"{self.name} score over the full set of {n} questions"
        return f"{n} of the {self.full_size} questions of {self.name}: not the score of the full set"


def load_wiki_task(
    name: str,
    rows: Callable[[str | None], tuple[list[Item], dict[str, Any]]],
    *,
    rule: Callable[[Any, Any], dict[str, float]],
    scoring: str = SCORING,
    setting: str,
    full_size: int | None,
    groups: tuple[str, ...],
    split: str,
    data_file: str | None,
    wiki: str | None,
    default_wiki: str,
    limit: int | None,
    offset: int,
    only: Sequence[str | int] | None,
    scenario: str | None,
    tool_result_budget: int | None,
    split_from_file: bool,
) -> WikiTask:
    """Choose the rows, make the tools over the Wikipedia source, and state both in the configuration.

    `rows(data_file)` reads all rows and says where they come from. With the scenario `direct` there are no tools and
    no source is opened; `mandatory` is the program's business. Raises ConfigurationError.
    """
    scenario = scenario or "free"
    if scenario not in SCENARIOS:
        raise ConfigurationError(f"unknown scenario {scenario!r}: choose one of {', '.join(SCENARIOS)}")
    page_chars = _page_chars(tool_result_budget)
    spec = resolve_spec(wiki, default_wiki)
    if scenario != "direct":
        check_source(spec)
    items, origin = rows(data_file)
    choice = choose_rows(
        items,
        lambda item: item.id,
        dataset=name,
        splits=shipped_ids(name),
        split=split,
        split_from_file=split_from_file,
        only=only,
        offset=offset,
        limit=limit,
        source=data_file or f"the rows of {name}",
    )
    tools = [] if scenario == "direct" else wikipedia_tools(spec, page_chars)
    config = {
        "dataset": name,
        "setting": "direct, no search" if scenario == "direct" else setting,
        "scenario": scenario,
        **origin,
        **choice.config,
        "scoring": scoring,
        "wiki": describe_source(spec) if tools else None,
        "page_chars": page_chars,
        "answer_form": ANSWER_FORM,
    }
    return WikiTask(
        name=name,
        examples=[_example(item, tools) for item in choice.rows],
        config=config,
        accepted={item.id: item.golds for item in choice.rows},
        rule=rule,
        scoring=scoring,
        full_size=full_size,
        groups=groups,
    )


def read_rows(
    data_file: str | None, hub: HubFile, columns: Sequence[str], *, dataset: str
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Raw rows of the user's file or of the hub, and what a configuration states about their origin."""
    if data_file:
        return file_rows(data_file, columns), {"data_file": data_file, "data_sha256": file_hash(data_file)}
    rows = hub_rows(hub, columns, dataset=dataset)
    return rows, {"hub": hub.repo, "revision": hub.revision, "hub_file": hub.path}


def text_field(row: Mapping[str, Any], names: Sequence[str], where: str) -> str:
    """The first of the fields that the row has, as text; ConfigurationError when it has none."""
    for name in names:
        value = row.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
    raise ConfigurationError(f"{where}: the row has no {' or '.join(names)}")


def _example(item: Item, tools: list[Any]) -> QuestionExample:
    example = QuestionExample(
        gold=item.golds[0],
        id=item.id,
        question=item.question,
        tools=tools,
        answer_format=SHORT_ANSWER,
        meta=dict(item.labels),
    )
    return example.with_inputs("question", "tools", "answer_format")


def _page_chars(budget: int | None) -> int:
    if budget is None:
        return PAGE_CHARS
    if budget < _MIN_PAGE_CHARS:
        raise ConfigurationError(f"--tool-result-budget {budget}: a page needs at least {_MIN_PAGE_CHARS} characters")
    return min(PAGE_CHARS, budget)


def _group(rows: Sequence[Mapping[str, Any]], label: str, value: str) -> dict[str, Any]:
    members = [row for row in rows if str(row.get(label)) == value]
    return {"n": len(members), "em": _mean(members, "em"), "f1": _mean(members, "f1")}


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [float(row[name]) for row in rows if row.get(name) is not None]
    return round(sum(values) / len(values), 6) if values else None
