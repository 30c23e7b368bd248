"""What a job's search left behind (`optimization/`): candidates, curve, credit, rollouts and money."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metrics.report.files import document, mapping, number, records
from metrics.usage import sum_money

FOLDER = "optimization"
POINTS = 240  # of one line of a chart
USAGE = (
    "lm_calls", "cached_lm_calls", "prompt_tokens", "completion_tokens", "usd_billed", "usd_without_cache",
)  # fmt: skip


@dataclass
class Search:
    """The saved files of a search: log events, rollouts and replies in order, candidates by id, the outcome."""

    events: list[dict[str, Any]]
    rollouts: list[dict[str, Any]]
    replies: list[dict[str, Any]]
    candidates: dict[str, dict[str, Any]]
    outcome: dict[str, Any]
    names: dict[str, int] = field(default_factory=dict)

    def of(self, *events: str) -> list[dict[str, Any]]:
        """The events of these kinds, in order."""
        return [event for event in self.events if event.get("event") in events]

    def count(self, *events: str) -> int:
        """How many events of these kinds there are."""
        return len(self.of(*events))

    @property
    def spent(self) -> float:
        """Charged rollouts."""
        counted = number(mapping(mapping(self.outcome.get("stats")).get("counters")).get("spent"))
        if counted is not None:
            return counted
        logged = max((number(event.get("rollouts")) or 0.0 for event in self.events), default=0.0)
        return max(logged, float(sum(number(line.get("score")) is not None for line in self.rollouts)))

    @property
    def baseline(self) -> str | None:
        """The candidate that the search began with."""
        origins = {name: mapping(saved.get("about")).get("origin") for name, saved in self.candidates.items()}
        return next((name for name, origin in origins.items() if origin == "baseline"), None)

    @property
    def incumbent(self) -> str | None:
        """The last committed candidate."""
        committed = self.of("committed")
        return committed[-1].get("candidate") if committed else None


def read_search(folder: Path) -> Search:
    """Read what is there of a search; whatever is missing or torn is empty."""
    place = folder / FOLDER
    found = {path.stem: document(path) for path in sorted((place / "candidates").glob("*.json"))}
    return Search(
        events=records(place / "log.jsonl"),
        rollouts=sorted(records(place / "rollouts.jsonl"), key=lambda line: number(line.get("order")) or 0.0),
        replies=sorted(records(place / "replies.jsonl"), key=lambda line: number(line.get("rollouts")) or 0.0),
        candidates={name: value for name, value in found.items() if value.get("instructions")},
        outcome=document(place / "outcome.json"),
    )


def candidates_of(search: Search, selection: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Candidates in the order in which they were proposed, and the different texts of their instructions.

    A candidate's `instructions` are places in the list of texts. Its fate is the last that the log says of it.
    """
    texts: dict[str, int] = {}
    first: dict[str, Mapping[str, Any]] = {}
    fate: dict[str, tuple[str, str]] = {}
    scores: dict[str, list[dict[str, Any]]] = {}
    for event in search.events:
        name, kind = str(event.get("candidate")), event.get("event")
        if kind == "proposed":
            first.setdefault(name, event)
        elif kind == "evaluated":
            scores.setdefault(name, []).append({key: event.get(key) for key in ("split", "score", "rows", "rollouts")})
        elif kind in ("accepted", "rejected") and fate.get(name, ("",))[0] != "incumbent":
            fate[name] = (str(kind), str(event.get("reason") or ""))
        elif kind == "committed":
            fate[name] = ("incumbent", fate.get(name, ("", ""))[1])
    baseline = str(search.baseline)
    best = mapping(search.outcome.get("incumbent")).get("id") or search.incumbent
    deployed = mapping(selection.get("candidate")).get("id") if selection.get("deployed") == "incumbent" else None
    order = list(dict.fromkeys([baseline, *first, *scores, *sorted(search.candidates)]))
    found = []
    for name in order:
        saved = search.candidates.get(name)
        if saved is None:
            continue
        about = {**mapping(saved.get("about")), **first.get(name, {})}
        status, reason = fate.get(name, ("proposed", ""))
        if status == "incumbent" and name != best:
            status = "accepted"
        if name == baseline:
            status, reason = "baseline", ""
        elif name == deployed:
            status = "deployed"
        found.append(
            {
                "id": name,
                "parent": None if name == baseline else about.get("parent") or baseline,
                "origin": "baseline" if name == baseline else about.get("origin"),
                "changed": [str(each) for each in about.get("changed") or []],
                "rollouts": number(about.get("rollouts")),
                "status": status,
                "reason": reason,
                "scores": scores.get(name, []),
                "instructions": {
                    predictor: texts.setdefault(str(text), len(texts))
                    for predictor, text in mapping(saved.get("instructions")).items()
                },
                "demos": {predictor: len(demos) for predictor, demos in mapping(saved.get("demos")).items() if demos},
            }
        )
    return found, list(texts)


def curve_of(search: Search) -> dict[str, Any]:
    """Committed incumbents and validation trials over charged rollouts."""
    keys = ("rollouts", "score", "candidate", "rows")
    tried = [
        {key: event.get(key) for key in keys}
        for event in search.of("evaluated")
        if event.get("split") == "validation" and number(event.get("score")) is not None
    ]
    committed = [{key: event.get(key) for key in keys[:3]} for event in search.of("committed")]
    seed = number(mapping(search.outcome.get("stats")).get("seed_score"))
    if seed is None and committed:
        seed = number(committed[0]["score"])
    return {"committed": committed, "tried": tried, "seed_score": seed, "spent": search.spent}


def credit_of(search: Search) -> list[dict[str, Any]]:
    """Numbers per role that a method computed: Shapley values, misalignment, blame."""
    found = []
    measured: list[dict[str, Any]] = []
    final = mapping(search.outcome.get("stats")).get("phi")
    entries = [(entry, entry) for entry in final] if final else [(e.get("phi"), e) for e in search.events]
    for phi, entry in entries:
        values = {role: value for role, value in mapping(phi).items() if role != "cycle" and number(value) is not None}
        if values and (not measured or measured[-1]["values"] != values):
            mark = mapping(entry).get("bottleneck") or mapping(entry).get("role")
            measured.append({"label": f"{len(measured) + 1}", "values": values, "mark": mark})
    if measured:
        note = (
            "Shapley value of each role per measurement: what it adds to the score, averaged over coalitions. "
            "Bold: the bottleneck."
        )
        found.append({"note": note, "unit": "number", "series": measured})
    layers: dict[Any, dict[str, list[float]]] = {}
    for entry in mapping(search.outcome.get("stats")).get("misalignment") or []:
        rate = number(mapping(entry).get("rate"))
        if rate is not None:
            layers.setdefault(entry.get("layer"), {}).setdefault(str(entry.get("role")), []).append(rate)
    if layers:
        series = [
            {"label": f"step {layer}", "values": {role: sum(rates) / len(rates) for role, rates in by_role.items()}}
            for layer, by_role in layers.items()
        ]
        note = "Misalignment: the share of samples in which the role did better and the team did worse."
        found.append({"note": note, "unit": "share", "series": series})
    blamed = [
        {
            "label": f"round {event.get('iteration', index + 1)}",
            "values": {role: len(said) for role, said in mapping(event.get("said")).items() if isinstance(said, list)},
        }
        for index, event in enumerate(search.of("blame"))
    ]
    if blamed:
        note = "Blame: complaints about a role, from the score and from its readers."
        found.append({"note": note, "unit": "count", "series": blamed})
    return found


def spending_of(search: Search, selection: Mapping[str, Any], tested: Mapping[str, Any]) -> dict[str, Any]:
    """Rollouts, calls, tokens and money: over the search, and in total by part and role."""
    task = _running((line.get("usage") for line in search.rollouts if number(line.get("score")) is not None), None)
    optimizer = _running(
        ([{"": _of_calls(line.get("usage"))}] for line in search.replies),
        [number(line.get("rollouts")) for line in search.replies],
    )
    counters = mapping(mapping(search.outcome.get("stats")).get("counters"))
    parts = [
        ("search", search.outcome.get("usage")),
        ("optimizer's model", search.outcome.get("optimizer_usage")),
        ("validation", selection.get("usage")),
        ("test", tested.get("usage")),
    ]
    by_role = mapping(mapping(search.outcome.get("usage")).get("by_role"))
    calls = ("rewrite_calls", "judge_calls", "probe_calls")
    return {
        "tokens": task["tokens"],
        "usd": task["usd"],
        "optimizer_tokens": optimizer["tokens"],
        "optimizer_usd": optimizer["usd"],
        "parts": [{"name": name, **_usage(usage)} for name, usage in parts if mapping(usage)],
        "roles": [{"name": role, **_usage(usage)} for role, usage in sorted(by_role.items())],
        "facts": [
            ["rollouts", f"{search.spent:g}" + (f" of {counters['limit']}" if counters.get("limit") else "")],
            ["lost to the infrastructure", counters.get("failed_rollouts") or None],
            ["predictor calls", _with_replayed(counters)],
            *([name.replace("_", " "), counters.get(name) or None] for name in calls),
            ["unusable replies", counters.get("parse_failures") or None],
        ],
    }


def _with_replayed(counters: Mapping[str, Any]) -> str | None:
    if "node_calls" not in counters:
        return None
    again = counters.get("cached_node_calls")
    return f"{counters['node_calls']:,}" + (f", {again:,} more answered by the replay cache" if again else "")


def _usage(usage: Any) -> dict[str, Any]:
    return {key: mapping(usage).get(key) for key in USAGE}


def _of_calls(calls: Any) -> dict[str, Any]:
    """The recorded calls of one reply as one usage entry."""
    known = [mapping(call) for call in (calls if isinstance(calls, list) else [])]
    return {
        "prompt_tokens": sum(call.get("prompt_tokens") or 0 for call in known),
        "completion_tokens": sum(call.get("completion_tokens") or 0 for call in known),
        "usd_billed": sum_money(0.0 if call.get("cached") else number(call.get("cost")) for call in known),
    }


def _running(usages: Iterable[Any], places: Sequence[float | None] | None) -> dict[str, list[list[float]]]:
    """Tokens and dollars added up, one point per entry, at its place (default: its number); few enough to draw.

    An unknown price ends the line of dollars: what follows is not known either.
    """
    tokens, usd = 0, 0.0
    lines: dict[str, list[list[float]]] = {"tokens": [], "usd": []}
    known = True
    for index, usage in enumerate(usages):
        x = float(index + 1) if places is None else places[index]
        if x is None:
            return {"tokens": [], "usd": []}
        for by_role in usage if isinstance(usage, list) else []:
            for part in mapping(by_role).values():
                tokens += (mapping(part).get("prompt_tokens") or 0) + (mapping(part).get("completion_tokens") or 0)
                paid = number(mapping(part).get("usd_billed"))
                known = known and paid is not None
                usd += paid or 0.0
        lines["tokens"].append([x, tokens])
        if known:
            lines["usd"].append([x, round(usd, 9)])
    return {name: _thin(points) for name, points in lines.items()}


def _thin(points: list[list[float]]) -> list[list[float]]:
    if len(points) <= POINTS:
        return points
    step = len(points) / POINTS
    kept = [points[int(index * step)] for index in range(POINTS)]
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]
