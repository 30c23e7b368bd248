"""From single runs to numbers per cell and method, and to the statements that the benchmark is there to check."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.planted_world.settings import METHODS, NOISE, SINGLE_ROLE, Setting
from metrics.statistics import wilson_interval

CALLS = ("node_calls", "probe_calls", "judge_calls", "rewrite_calls")
COLUMNS = (
    "landscape",
    "topology",
    "method",
    "noise",
    "bias",
    "rewriter",
    "skill",
    "rho",
    "eta",
    "budget",
    "n",
    "solved",
    "solved_share",
    "solved_low",
    "solved_high",
    "to_optimum_median",
    "to_95_median",
    "start_true",
    "final_true",
    "area",
    "spent",
    *CALLS,
    "changed_in_search",
    "deployed_changed",
    "worse_than_start",
    "gate_regret",
    "seconds",
    "faster",
    "slower",
    "p_sign",
)
REFERENCE = "round_robin"  # the columns faster, slower and p_sign compare rollouts to the optimum with it, seed by seed


@dataclass(frozen=True)
class Group:
    """All seeds of one setting. `values`: the numbers of the table."""

    setting: Setting
    runs: tuple[Mapping[str, Any], ...]
    values: Mapping[str, Any]

    def share(self, holds: Callable[[Mapping[str, Any]], bool]) -> float:
        """Share of the runs for which something holds."""
        return sum(map(holds, self.runs)) / len(self.runs)


def summarise(results: Mapping[Setting, Mapping[str, Any]]) -> list[Group]:
    """One group per setting, in order of appearance. A median beyond the budget is infinite: most runs did not get
    there.
    """
    runs: dict[Setting, list[Mapping[str, Any]]] = {}
    for setting, result in results.items():
        runs.setdefault(setting.group, []).append(result)
    seeds: dict[Setting, dict[int, float | None]] = {}
    for setting, result in results.items():
        seeds.setdefault(setting.group, {})[setting.seed] = result["to_optimum"]
    return [_group(setting, found, _paired(setting, seeds)) for setting, found in runs.items()]


def _paired(setting: Setting, seeds: Mapping[Setting, Mapping[int, float | None]]) -> dict[str, Any]:
    """On how many seeds a method had the optimum sooner or later than the reference, and the exact sign test."""
    mine, theirs = seeds[setting], seeds.get(replace(setting, entry=REFERENCE, noise=NOISE), {})
    pairs = [(_censored(mine[seed]), _censored(theirs[seed])) for seed in mine if seed in theirs]
    faster, slower = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
    n = faster + slower
    tail = sum(math.comb(n, k) for k in range(min(faster, slower) + 1)) / 2**n
    return {"faster": faster, "slower": slower, "p_sign": min(1.0, 2 * tail)}


def _censored(rollouts: float | None) -> float:
    return math.inf if rollouts is None else rollouts


def _group(setting: Setting, runs: Sequence[Mapping[str, Any]], paired: Mapping[str, Any]) -> Group:
    n, solved = len(runs), sum(run["solved"] for run in runs)
    low, high = wilson_interval(solved, n)
    means = {
        name: statistics.fmean(run[name] for run in runs) for name in ("start_true", "final_true", "area", "spent")
    }
    means |= {name: statistics.fmean(run[name] for run in runs) for name in (*CALLS, "gate_regret", "seconds")}
    values = {
        **{name: value for name, value in setting.to_json().items() if name in COLUMNS},
        "method": setting.entry,
        "n": n,
        "solved": solved,
        "solved_share": solved / n,
        "solved_low": low,
        "solved_high": high,
        "to_optimum_median": _median(runs, "to_optimum"),
        "to_95_median": _median(runs, "to_95"),
        **means,
        "changed_in_search": sum(run["changed_in_search"] for run in runs),
        "deployed_changed": sum(run["deployed_changed"] for run in runs),
        "worse_than_start": sum(run["final_true"] < run["start_true"] for run in runs),
        **paired,
    }
    return Group(setting, tuple(runs), {name: values[name] for name in COLUMNS})


def _median(runs: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The median of censored values; None where there is nothing to reach."""
    if all(run["optimum"] <= run["start_true"] for run in runs):
        return None
    return statistics.median(_censored(run[name]) for run in runs)


def to_csv(groups: Sequence[Group]) -> str:
    """The table as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for group in groups:
        writer.writerow(["" if v is None else f"{v:.6g}" if isinstance(v, float) else v for v in group.values.values()])
    return out.getvalue()


# -- what is expected ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    """An expectation. `holds` is None when its runs are missing."""

    text: str
    measured: str
    holds: bool | None

    def to_json(self) -> dict[str, Any]:
        return {"statement": self.text, "measured": self.measured, "holds": self.holds}


def check(groups: Sequence[Group]) -> list[Statement]:
    """The expected statements, as far as their runs are there."""
    found = _Found(groups)
    return [
        *_handoff(found),
        _order(found),
        *_trap(found),
        *(_weakest(found, shape) for shape in ("star", "desk")),
        _flat(found),
        *(_noise(found, landscape) for landscape in ("AND", "HANDOFF")),
    ]


class _Found:
    """Groups by cell, entry and judge noise."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = {
            (g.setting.landscape, g.setting.topology, g.setting.entry, g.setting.noise): g
            for g in groups
            if g.setting.bias == "none" and g.setting.rewriter == "helpful"
        }

    def get(self, landscape: str, shape: str, entry: str, noise: float = NOISE) -> Group | None:
        return self.groups.get((landscape, shape, entry, noise))

    def all(self, landscape: str, shape: str, entries: Sequence[str]) -> dict[str, Group]:
        return {e: g for e in entries if (g := self.get(landscape, shape, e)) is not None}


def _handoff(found: _Found) -> list[Statement]:
    statements = []
    for noise in (0.0, NOISE):
        group = found.get("HANDOFF", "chain4", "mapro", noise)
        text = f"HANDOFF with 4 roles: MAPRO solves > 80% at judge noise {noise:g}"
        statements.append(_compared(text, group, lambda g: g.values["solved_share"], lambda share: share > 0.8))
    single = found.all("HANDOFF", "chain4", SINGLE_ROLE)
    shares = {entry: group.values["solved_share"] for entry, group in single.items()}
    text = "HANDOFF with 4 roles: every single-role method solves < 10%"
    measured = ", ".join(f"{entry} {share:.0%}" for entry, share in shares.items())
    holds = all(share < 0.1 for share in shares.values()) if len(shares) == len(SINGLE_ROLE) else None
    return [*statements, Statement(text, measured, holds)]


def _order(found: _Found) -> Statement:
    text = "AND with 4 roles: blamed roles and MAPRO before round robin, round robin before random (median rollouts)"
    groups = found.all("AND", "chain4", ("mapro", "blamed", "round_robin", "random"))
    at = {entry: group.values["to_optimum_median"] for entry, group in groups.items()}
    measured = ", ".join(f"{entry} {rollouts(value, 600)}" for entry, value in at.items())
    if len(at) < 4:
        return Statement(text, measured, None)
    holds = max(at["mapro"], at["blamed"]) < at["round_robin"] < at["random"]
    return Statement(text, measured, holds)


def _trap(found: _Found) -> list[Statement]:
    def adopted(group: Group) -> float:
        return group.share(lambda run: run["decoy"]["search"])

    joint, local = (found.get("TRAP", "chain3", entry) for entry in ("maspo", "maspo-local"))
    return [
        _compared("TRAP: MASPO's joint scoring adopts a decoy in < 5% of the runs", joint, adopted, lambda x: x < 0.05),
        _compared("TRAP: local scoring alone adopts a decoy in > 50%", local, adopted, lambda x: x > 0.5),
    ]


def _weakest(found: _Found, shape: str) -> Statement:
    group = found.get("WEAKLINK", shape, "hivemind")
    text = f"WEAKLINK on the {shape}: the first role that HiveMind updates is the planted one in >= 80%"
    if group is None:
        return Statement(text, "", None)
    updated = group.share(lambda run: run["first_updated"] == run["weak"])
    tried = group.share(lambda run: run["first_chosen"] == run["weak"])
    return Statement(text, f"{updated:.0%} (tried first: {tried:.0%})", updated >= 0.8)


def _flat(found: _Found) -> Statement:
    text = "FLAT: no method deploys a changed program in more than 5% after the gate"
    groups = found.all("FLAT", "chain4", METHODS)
    shares = {entry: group.share(lambda run: run["deployed_changed"]) for entry, group in groups.items()}
    holds = max(shares.values()) <= 0.05 if len(shares) == len(METHODS) else None
    return Statement(text, f"at most {max(shares.values()):.0%}" if shares else "", holds)


def _noise(found: _Found, landscape: str) -> Statement:
    text = f"{landscape} with 4 roles: a judge of pure noise leaves MAPRO no worse than the baseline"
    group = found.get(landscape, "chain4", "mapro", math.inf)
    if group is None:
        return Statement(text, "", None)
    before, after = group.values["start_true"], group.values["final_true"]
    worse = group.values["worse_than_start"]
    return Statement(
        text, f"true score {before:.3f} -> {after:.3f}, {worse} of {len(group.runs)} runs worse", after >= before
    )


def _compared(
    text: str, group: Group | None, value: Callable[[Group], float], holds: Callable[[float], bool]
) -> Statement:
    if group is None:
        return Statement(text, "", None)
    measured = value(group)
    return Statement(text, f"{measured:.0%} of {len(group.runs)}", holds(measured))


def rollouts(median: float | None, budget: int) -> str:
    """A median of rollouts as text."""
    return "-" if median is None else f">{budget}" if math.isinf(median) else f"{median:g}"
