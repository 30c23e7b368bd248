"""Plots for papers: PNG and SVG files, drawn by matplotlib (the extra `plots`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from metrics.errors import ConfigurationError
from metrics.report.files import is_job, number

PLOTS = "plots"
INK, SOFT, ACCENT, BAND = "#1c2024", "#6a727c", "#0d6672", "#bcdcdf"
TONES = ("#0d6672", "#8a4698", "#a3560f", "#2f5fb3", "#a83265", "#4a6f1e", "#755636", "#4a5568")
WIDTH, HEIGHT = 5.5, 3.2  # inches: one column of a paper
MOST = 20  # groups in one plot
STYLE: Any = {
    "font.size": 9, "axes.edgecolor": SOFT, "axes.labelcolor": INK, "text.color": INK, "xtick.color": SOFT,
    "ytick.color": SOFT, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#e3e0d8", "axes.axisbelow": True, "svg.hashsalt": "hopteam", "svg.fonttype": "none",
    "figure.constrained_layout.use": True, "legend.frameon": False,
}  # fmt: skip


def need_matplotlib() -> None:
    """ConfigurationError with the command that helps when matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigurationError("--plots needs matplotlib: pip install 'hopteam[plots]'") from None


def write_plots(folder: str | Path) -> list[Path]:
    """Draw a run's or a job's plots into `FOLDER/plots`, each as PNG (300 dpi) and SVG; their paths.

    A plot without data is not drawn. ConfigurationError: no matplotlib, no run or job, or nothing can be written.
    """
    need_matplotlib()
    path = Path(folder)
    if is_job(path):
        from metrics.report.job import job_data

        return _draw(_job_plots(job_data(path)), path / PLOTS)
    from metrics.report.run import run_page

    return _draw(_run_plots(run_page(path, with_traces=False).data), path / PLOTS)


def write_comparison_plots(folders: Sequence[Path], target: Path) -> list[Path]:
    """Draw several jobs or runs as one plot, `TARGET-scores` and, of jobs, `TARGET-curves`; their paths."""
    need_matplotlib()
    from metrics.report.comparison import comparison

    data = comparison(folders).data
    plots: dict[str, Plot] = {
        f"{target.name}-scores": (lambda axes: _forest(axes, data), _height(1.3 * len(data["entries"])))
    }
    if data["kind"] == "jobs" and any(entry["curve"]["committed"] for entry in data["entries"]):
        plots[f"{target.name}-curves"] = (lambda axes: _curves(axes, data["entries"]), HEIGHT)
    return _draw(plots, target.parent)


Plot = tuple[Callable[[Any], None], float]  # what draws into the axes, and the height in inches


def _height(rows: float) -> float:
    return 0.75 + 0.27 * rows


def _draw(plots: dict[str, Plot], folder: Path) -> list[Path]:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    written = []
    with matplotlib.rc_context(STYLE):  # figures of their own: nothing global, no window
        for name, (draw, height) in plots.items():
            figure = Figure(figsize=(WIDTH, height))
            FigureCanvasAgg(figure)
            draw(figure.add_subplot())
            for form, facts in (("png", {"Software": None}), ("svg", {"Date": None})):
                path = folder / f"{name}.{form}"
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                    figure.savefig(path, dpi=300, metadata=facts)
                except OSError as error:
                    raise ConfigurationError(f"cannot write {path}: {error.strerror or error}") from error
                written.append(path)
    return written


def _run_plots(data: dict[str, Any]) -> dict[str, Plot]:
    plots: dict[str, Plot] = {}
    if data["headline"]["interval"]:
        plots["scores"] = (lambda axes: _scores(axes, data), _height(2 + len(data["headline"]["beside"])))
    name = data["headline"]["name"]
    for group in data["groups"]:
        rows = min(len(group["entries"]), MOST)
        plots[f"by-{group['label']}"] = (partial(_group, group=group, name=name), _height(1 + rows))
    if roles := data["usage"]["roles"]:
        plots["tokens-by-role"] = (lambda axes: _tokens(axes, roles), _height(1 + len(roles)))
    return plots


def _scores(axes: Any, data: dict[str, Any]) -> None:
    head = data["headline"]
    rows = [(head["name"], head["score"], head["interval"])]
    rows += [(part["label"], part["score"], part["interval"]) for part in head["beside"] if part["interval"]]
    for place, (_, score, interval) in enumerate(rows):
        _point(axes, score, interval, place, ACCENT)
    if head["nothing"] is not None:
        axes.axvline(100 * head["nothing"], color=SOFT, linestyle=":", label="do nothing")
        _legend(axes)
    _names(axes, [name for name, _, _ in rows])
    axes.set_xlabel(f"score in percent, 95% interval (n = {head['n_scored']})")


def _group(axes: Any, group: dict[str, Any], name: str) -> None:
    entries = sorted(group["entries"], key=lambda entry: -entry["n"])[:MOST]
    for place, entry in enumerate(entries):
        _point(axes, entry["score"], entry["interval"], place, ACCENT)
    _names(axes, [f"{entry['name']} (n = {entry['n']})" for entry in entries])
    axes.set_xlabel(f"{name} in percent, 95% interval")
    axes.set_title(group["label"], loc="left")


def _tokens(axes: Any, roles: Sequence[dict[str, Any]]) -> None:
    names = [role["role"] or "(no role)" for role in roles]
    prompt = [role.get("prompt_tokens") or 0 for role in roles]
    places = range(len(roles))
    axes.barh(places, prompt, color=ACCENT, label="prompt")
    completion = [role.get("completion_tokens") or 0 for role in roles]
    axes.barh(places, completion, left=prompt, color=TONES[2], label="completion")
    _names(axes, names, limits=False)
    axes.set_xlabel("tokens")
    _legend(axes)


def _job_plots(data: dict[str, Any]) -> dict[str, Plot]:
    plots: dict[str, Plot] = {}
    if data["curve"]["committed"] or data["curve"]["tried"]:
        plots["learning-curve"] = (lambda axes: _learning(axes, data), HEIGHT)
    if data["test"] and data["test"]["deployed"]["interval"]:
        plots["test"] = (lambda axes: _test(axes, data["test"]), _height(2))
    if data["spending"]["tokens"]:
        plots["tokens"] = (lambda axes: _spending(axes, data, "tokens"), HEIGHT)
    if any(value for _, value in data["spending"]["usd"]):
        plots["dollars"] = (lambda axes: _spending(axes, data, "usd"), HEIGHT)
    if data["credit"]:
        plots["credit"] = (lambda axes: _credit(axes, data["credit"][0]), HEIGHT)
    return plots


def _learning(axes: Any, data: dict[str, Any]) -> None:
    curve = data["curve"]
    tried = [(point["rollouts"], 100 * point["score"]) for point in curve["tried"]]
    if tried:
        axes.plot(*zip(*tried, strict=True), "o", mfc="none", mec=TONES[2], ms=4, label="candidates on validation")
    if curve["seed_score"] is not None:
        axes.axhline(100 * curve["seed_score"], color=SOFT, linestyle="--", label="baseline")
    _step(axes, curve, ACCENT, "best so far")
    axes.set_xlim(0, data["budget"] or None)
    axes.set_ylim(0, 1.06 * axes.get_ylim()[1])
    axes.set_xlabel("charged rollouts")
    axes.set_ylabel("score in percent")
    _legend(axes)


def _step(axes: Any, curve: dict[str, Any], tone: str, label: str) -> None:
    known = [(p["rollouts"], 100 * p["score"]) for p in curve["committed"] if number(p["score"]) is not None]
    if known:
        known.append((curve["spent"], known[-1][1]))
        axes.step(*zip(*known, strict=True), where="post", color=tone, label=label)


def _curves(axes: Any, entries: Sequence[dict[str, Any]]) -> None:
    for index, entry in enumerate(entries):
        _step(axes, entry["curve"], TONES[index % len(TONES)], entry["label"])
    axes.set_ylim(0, 1.06 * axes.get_ylim()[1])
    axes.set_xlabel("charged rollouts")
    axes.set_ylabel("score in percent")
    _legend(axes)


def _test(axes: Any, test: dict[str, Any]) -> None:
    for place, (side, tone) in enumerate((("baseline", SOFT), ("deployed", ACCENT))):
        _point(axes, test[side]["score"], test[side]["interval"], place, tone)
    _names(axes, ["baseline", "deployed"])
    axes.set_xlabel(f"test score in percent, 95% interval (n = {test['n_scored']})")


def _spending(axes: Any, data: dict[str, Any], what: str) -> None:
    for key, tone, label in ((what, ACCENT, "task model"), (f"optimizer_{what}", TONES[2], "optimizer's model")):
        if data["spending"][key]:
            axes.plot(*zip(*data["spending"][key], strict=True), color=tone, label=label)
    axes.set_xlabel("charged rollouts")
    axes.set_ylabel("tokens" if what == "tokens" else "US dollars")
    axes.set_ylim(0, 1.06 * axes.get_ylim()[1])
    _legend(axes)


def _credit(axes: Any, credit: dict[str, Any]) -> None:
    roles = list(dict.fromkeys(role for entry in credit["series"] for role in entry["values"]))
    places = range(len(credit["series"]))
    for index, role in enumerate(roles):
        values = [entry["values"].get(role) for entry in credit["series"]]
        axes.plot(places, values, "o-", ms=3, color=TONES[index % len(TONES)], label=role)
    axes.set_xticks(list(places), [entry["label"] for entry in credit["series"]])
    axes.set_ylabel("credit")
    _legend(axes)


def _forest(axes: Any, data: dict[str, Any]) -> None:
    names = [entry["label"] for entry in data["entries"]]
    for place, entry in enumerate(data["entries"]):
        if data["kind"] == "runs":
            _point(axes, entry["score"], entry["interval"], place, ACCENT)
        elif entry["test"]:
            for side, shift, tone in (("baseline", -0.13, SOFT), ("deployed", 0.13, ACCENT)):
                _point(axes, entry["test"][side]["score"], entry["test"][side]["interval"], place + shift, tone)
    _names(axes, names)
    axes.set_xlabel("score in percent, 95% interval")
    if data["kind"] == "jobs":
        axes.plot([], [], "o", color=SOFT, ms=5, label="baseline")
        axes.plot([], [], "o", color=ACCENT, ms=5, label="deployed")
        _legend(axes)


def _point(axes: Any, score: Any, interval: Any, place: float, tone: str) -> None:
    if score is None:
        return
    if interval:
        axes.plot([100 * edge for edge in interval], [place, place], color=tone, alpha=0.4, linewidth=3)
    axes.plot([100 * score], [place], "o", color=tone, ms=5)


def _legend(axes: Any) -> None:
    """Above the axes, where it covers no data; as many columns as the labels leave room for."""
    labels = axes.get_legend_handles_labels()[1]
    columns = max(1, 64 // (max(map(len, labels), default=0) + 6))
    axes.legend(
        loc="lower right", bbox_to_anchor=(1, 1), ncols=min(len(labels), columns) or 1, borderaxespad=0, fontsize=8
    )


def _names(axes: Any, names: Sequence[str], *, limits: bool = True) -> None:
    """Rows from top to bottom; `$` stands for itself and not for mathematics."""
    axes.set_yticks(range(len(names)), [str(name).replace("$", r"\$")[:48] for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    if limits:
        axes.set_xlim(-1, 101)
