"""Plots as files: every one of a run, a job and several of them, and a clear word when matplotlib is missing."""

from __future__ import annotations

import sys

import pytest

import eval as command
from metrics.report import try_plots
from metrics.report.command import main
from optimize.run import main as optimize
from tests.support.report_folders import CONFIG, failed, row, write_run


@pytest.fixture(scope="module")
def matplotlib():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install '.[plots]'")


@pytest.mark.usefixtures("matplotlib")
def test_a_run_has_its_plots_as_png_and_svg(tmp_path, capsys):
    rows = [row(i, correct=i % 2 == 0, hops=2 + i % 3) for i in range(9)]
    config = {**CONFIG, "settings": {**CONFIG["settings"], "program": "costs $5 and $6_x^"}}
    folder = write_run(tmp_path / "run", [*rows, failed("lost")], config=config)
    assert main([str(folder), "--plots"]) == 0
    names = {f"{name}.{form}" for name in ("scores", "by-hops", "tokens-by-role") for form in ("png", "svg")}
    assert {path.name for path in (folder / "plots").iterdir()} == names
    assert all((folder / "plots" / name).read_bytes()[:4] in (b"\x89PNG", b"<?xm") for name in names)
    assert str(folder / "plots" / "scores.svg") in capsys.readouterr().out
    before = {name: (folder / "plots" / name).read_bytes() for name in names}
    main([str(folder), "--plots"])
    assert before == {name: (folder / "plots" / name).read_bytes() for name in names}


@pytest.mark.usefixtures("matplotlib")
def test_runs_beside_each_other_are_one_plot(tmp_path):
    folders = [write_run(tmp_path / name, [row(1), row(2, correct=name == "a")]) for name in ("a", "b")]
    assert main([*map(str, folders), "--plots", "--out", str(tmp_path / "both.html")]) == 0
    assert (tmp_path / "both-scores.png").exists() and (tmp_path / "both-scores.svg").exists()


@pytest.mark.usefixtures("matplotlib")
def test_no_legend_covers_what_is_drawn(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    save, seen = Figure.savefig, []

    def check(figure, path, **options):
        save(figure, path, **options)
        (axes,) = figure.axes
        if legend := axes.get_legend():
            box, inside = legend.get_window_extent(), axes.get_window_extent()
            seen.append(path.stem)
            assert box.y0 >= inside.y1 - 1 and box.x0 >= 0 and box.y1 <= figure.bbox.height, path.stem

    monkeypatch.setattr(Figure, "savefig", check)
    assert main([str(write_run(tmp_path / "run", [row(i) for i in range(5)])), "--plots"]) == 0
    job = tmp_path / "job"
    optimize(["--method", "mipro", "--budget", "40", "--quiet", "--out", str(job), "--plots"])
    assert {"tokens-by-role", "learning-curve", "tokens"} <= set(seen)


@pytest.mark.usefixtures("matplotlib")
def test_a_run_without_a_score_has_no_plot_of_it(tmp_path):
    folder = write_run(tmp_path / "run", [failed(1)])
    assert main([str(folder), "--plots"]) == 0
    assert not (folder / "plots" / "scores.png").exists()


def test_without_matplotlib_one_line_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    folder = write_run(tmp_path / "run", [row(1)])
    for call, arguments in ((main, [str(folder)]), (command.main, ["--out", str(tmp_path / "new")])):
        assert call([*arguments, "--plots"]) == 2
        assert capsys.readouterr().err == "error: --plots needs matplotlib: pip install 'hopteam[plots]'\n"
    assert not (tmp_path / "new").exists()  # said before anything is run
    try_plots(folder)
