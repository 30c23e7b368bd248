"""The results as a table for the terminal, as Markdown, and as plots."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.planted_world.settings import METHODS, NOISE
from benchmarks.planted_world.summary import CALLS, Group, Statement, rollouts

HEADS = ("cell", "method", "solved", "to optimum", "true score", "rollouts", "node", "judge", "rewriter", "deployed")


def line(group: Group) -> list[str]:
    """One row of a table."""
    v, s = group.values, group.setting
    judge = "" if s.noise == NOISE else " (judge: noise)" if math.isinf(s.noise) else f" (judge ±{s.noise:g})"
    judge += f" ({s.bias} bias)" if s.bias != "none" else ""
    judge += f" ({s.rewriter} rewriter)" if s.rewriter != "helpful" else ""
    flat = v["to_optimum_median"] is None
    return [
        f"{s.landscape} {s.topology}",
        f"{s.entry}{judge}",
        "-" if flat else f"{v['solved']}/{v['n']}",
        rollouts(v["to_optimum_median"], s.budget),
        f"{v['start_true']:.2f} → {v['final_true']:.2f}",
        f"{v['spent']:.0f}",
        f"{v['node_calls'] + v['probe_calls']:.0f}",
        f"{v['judge_calls']:.0f}",
        f"{v['rewrite_calls']:.0f}",
        f"{v['deployed_changed']}/{v['n']}",
    ]


def terminal(groups: Sequence[Group]) -> Any:
    """The table for a terminal; a blank line between cells."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for n, head in enumerate(HEADS):
        table.add_column(head, justify="left" if n < 2 else "right", no_wrap=True)
    last = ""
    for group in sorted_by_cell(groups):
        cell, *cells = line(group)
        if last and cell != last:
            table.add_row()
        table.add_row("" if cell == last else cell, *cells)
        last = cell
    return table


def markdown(groups: Sequence[Group], statements: Sequence[Statement]) -> str:
    """The results as documents show them: two tables of cells by methods, what was run beside them, the statements."""
    usual = [g for g in groups if g.setting.entry in METHODS and g.setting.noise == NOISE]
    beside = [g for g in sorted_by_cell(groups) if g not in usual]
    n = max((len(g.runs) for g in groups), default=0)
    parts = [f"Runs that end with the optimum, of {n}, and the median of rollouts until the search had it:", ""]
    parts += [*_matrix(usual, _outcome), "", "Mean model calls of a run (team, judge and rewriter together):", ""]
    parts += _matrix(usual, lambda g: f"{sum(g.values[name] for name in CALLS):.0f}")
    if beside:
        parts += ["", "| beside the grid | " + " | ".join(HEADS[2:]) + " |", "|---|" + "---|" * len(HEADS[2:])]
        parts += [f"| {' '.join(line(g)[:2])} | " + " | ".join(line(g)[2:]) + " |" for g in beside]
    said = [f"- {s.text}: {s.measured or 'not run'}{_verdict(s)}" for s in statements]
    return "\n".join([*parts, "", *said]) + "\n"


def _matrix(groups: Sequence[Group], show: Callable[[Group], str]) -> list[str]:
    entries = [name for name in METHODS if any(g.setting.entry == name for g in groups)]
    cells: dict[str, dict[str, str]] = {}
    for group in sorted_by_cell(groups):
        cells.setdefault(line(group)[0], {})[group.setting.entry] = show(group)
    rows = ["| | " + " | ".join(entries) + " |", "|---|" + "---|" * len(entries)]
    rows += [f"| {cell} | " + " | ".join(found.get(e, "") for e in entries) + " |" for cell, found in cells.items()]
    return rows


def _outcome(group: Group) -> str:
    values = group.values
    if values["to_optimum_median"] is None:
        return f"deploys {values['deployed_changed']}"
    return f"{values['solved']} · {rollouts(values['to_optimum_median'], group.setting.budget)}"


def _verdict(statement: Statement) -> str:
    return "" if statement.holds is None else " (holds)" if statement.holds else " (**missed**)"


def sorted_by_cell(groups: Sequence[Group]) -> list[Group]:
    """Groups of one cell together, in order of first appearance."""
    cells = list(dict.fromkeys((g.setting.landscape, g.setting.topology) for g in groups))
    return sorted(groups, key=lambda g: cells.index((g.setting.landscape, g.setting.topology)))


def plot(groups: Sequence[Group], path: Path) -> None:
    """Two rows of panels per cell: share of runs that have the optimum against rollouts, and true score against all
    model calls.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cells: dict[str, list[Group]] = {}
    for group in sorted_by_cell(groups):
        if group.setting.noise == NOISE and group.values["to_optimum_median"] is not None:
            cells.setdefault(f"{group.setting.landscape} {group.setting.topology}", []).append(group)
    names = list(dict.fromkeys(g.setting.entry for found in cells.values() for g in found))
    colors = {name: pyplot.get_cmap("tab20")(n % 20) for n, name in enumerate(names)}
    across = min(4, max(1, len(cells)))
    down = 2 * math.ceil(len(cells) / across)
    figure, axes = pyplot.subplots(down, across, figsize=(3.6 * across, 2.6 * down), squeeze=False)
    for axis in axes.flat:
        axis.set_visible(False)
    for n, (cell, found) in enumerate(cells.items()):
        above, below = axes[2 * (n // across)][n % across], axes[2 * (n // across) + 1][n % across]
        _solved_curve(above, cell, found, colors)
        _score_by_calls(below, found, colors)
    handles = [pyplot.Line2D([], [], color=colors[name], label=name) for name in names]
    figure.legend(handles=handles, loc="lower center", ncols=min(8, len(names)), frameon=False)
    figure.tight_layout(rect=(0, 0.03 + 0.01 * (len(names) // 8), 1, 1))
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _solved_curve(axis: Any, cell: str, groups: Sequence[Group], colors: dict[str, Any]) -> None:
    axis.set_visible(True)
    axis.set_title(cell, fontsize=9)
    for group in groups:
        reached = sorted(run["to_optimum"] for run in group.runs if run["to_optimum"] is not None)
        x = [0.0, *reached, float(group.setting.budget)]
        y = [0.0, *((n + 1) / len(group.runs) for n in range(len(reached))), len(reached) / len(group.runs)]
        axis.step(x, y, where="post", color=colors[group.setting.entry], linewidth=1.4)
    axis.set_ylim(-0.03, 1.03)
    axis.set_xlabel("rollouts", fontsize=7)
    axis.set_ylabel("share with the optimum", fontsize=7)
    axis.tick_params(labelsize=7)


def _score_by_calls(axis: Any, groups: Sequence[Group], colors: dict[str, Any]) -> None:
    axis.set_visible(True)
    for group in groups:
        calls = sum(group.values[name] for name in CALLS)
        axis.plot(calls, group.values["final_true"], "o", color=colors[group.setting.entry], markersize=5)
    axis.set_xlabel("model calls (team, judge, rewriter)", fontsize=7)
    axis.set_ylabel("true score", fontsize=7)
    axis.tick_params(labelsize=7)
