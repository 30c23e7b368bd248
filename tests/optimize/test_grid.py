"""The experiment grid as data, conformance, and running a grid of jobs that can be restarted."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from metrics.errors import ConfigurationError
from optimize.conformance import Cell, check_cell, departures, grid_cells
from optimize.grid import main, read_grid, run_grid
from optimize.options import build_parser, default_folder


def test_the_grid_of_the_protocol():
    main_cells = [c for c in grid_cells("hivemind")]
    assert len(main_cells) == 8 and {c.team_size for c in main_cells} == {4}
    gepa = set(grid_cells("gepa"))
    assert len(gepa) == 8 + 4 * 3 + 3 * 2
    assert Cell("hotpotqa", "sequential", 10) in gepa and Cell("toolhop", "sequential", 10) not in gepa
    assert Cell("hotpotqa", "centralized", 4, "structured_soft") in gepa
    assert not any(c.program == "independent" and c.communication for c in gepa)


def test_cells_outside_the_grid_need_permission_and_the_samples_do_not():
    check_cell("gepa", Cell("toolhop", "sequential"), False)
    check_cell("gepa", Cell("toolhop-sample", "anything", 3), False)
    with pytest.raises(ConfigurationError, match="--allow-any-cell"):
        check_cell("gepa", Cell("toolhop", "sequential", 8), False)
    check_cell("gepa", Cell("toolhop", "sequential", 8), True)


def test_every_departure_from_the_protocol_is_named():
    settings = {
        "method": "gepa", "dataset": "toolhop", "program": "sequential", "team_size": 4, "communication": "freeform",
        "budget": 600, "seed": 0, "data": {"split_conformant": True}, "embedded": False,
    }  # fmt: skip
    assert departures(settings) == []
    for change, word in (
        ({"budget": 599}, "budget"),
        ({"seed": 3}, "seed"),
        ({"team_size": 8}, "grid"),
        ({"data": {"split_conformant": False}}, "splits"),
        ({"embedded": True}, "embedded"),
    ):
        assert len(departures({**settings, **change})) == 1 and word in departures({**settings, **change})[0]


GRID = """
out = "{out}"
[defaults]
model = "offline"
[grid]
method = ["identity", "gepa"]
dataset = ["toolhop-sample"]
program = ["sequential"]
seed = [0, 1]
"""


def test_a_grid_runs_what_is_missing_and_goes_on_after_an_interruption(tmp_path, capsys):
    path = tmp_path / "grid.toml"
    path.write_text(GRID.format(out=tmp_path / "runs"))
    jobs = read_grid(path)
    assert jobs[0].folder.relative_to(tmp_path / "runs").as_posix() == "identity/toolhop-sample/sequential/0"
    command = jobs[3].command()
    assert command[command.index("--method") + 1] == "gepa" and "--resume" in command and "--quiet" in command
    ran = []

    def run(command, **_):
        folder = command[command.index("--out") + 1]
        ran.append(folder)
        if len(ran) == 2:
            return SimpleNamespace(returncode=1, stderr="first line\nthe reason")
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "result.json").write_text(json.dumps({"test": {"complete": True}}))
        return SimpleNamespace(returncode=0, stderr="")

    said = []
    assert run_grid(jobs, 1, said.append, run) == 1
    assert len(ran) == 4 and any("the reason" in line for line in said)
    assert run_grid(jobs, 2, said.append, run) == 0
    assert len(ran) == 5, "only the job that failed runs again"
    assert main([str(path), "--dry-run"]) == 0
    assert "4 jobs: 4 done, 0 interrupted, 0 missing" in capsys.readouterr().out


@pytest.mark.parametrize("status", [130, -2])
def test_an_interrupted_job_is_called_that_unless_it_had_finished(tmp_path, status):
    path = tmp_path / "grid.toml"
    path.write_text(GRID.format(out=tmp_path / "runs"))
    jobs, said = read_grid(path)[:2], []

    def run(command, **_):
        if len(said) == 1:  # the second one: it was about to leave
            jobs[1].folder.mkdir(parents=True)
            (jobs[1].folder / "result.json").write_text(json.dumps({"test": {"complete": True}}))
        return SimpleNamespace(returncode=status, stderr="")

    assert run_grid(jobs, 1, said.append, run) == 1
    assert said == [f"interrupted: {jobs[0].folder}: the same grid again goes on", f"done: {jobs[1].folder}"]
    assert [job.state for job in jobs] == ["missing", "done"]


def test_the_standard_grid_and_mistakes_in_a_file(tmp_path, capsys):
    path = tmp_path / "grid.toml"
    path.write_text('[grid]\nstandard = true\nmethod = "gepa"\n')
    assert len(read_grid(path)) == 26 * 3
    for text, word in (
        ("[grid]\nseed = [0]\n", "method"), ("[grids]\n", "unknown"), ("x = [", "TOML"),
        ("grid = 3\n", "the tables [defaults] and [grid]"), ("[grid]\nmethod = []\n", "no job"),
        ('[grid]\nstandard = true\nprogram = "single"\n', "program cannot be given"),
        ('[grid]\nmethod = "gepa"\nmodel = ["a/b", "a/c"]\n', "differ in model only"),
    ):  # fmt: skip
        path.write_text(text)
        assert main([str(path)]) == 2 and word in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('method = ["gepa", "gepo"]', "unknown method 'gepo'"),
        ('method = "gepa"\nteam_size = 2', "unknown key team_size; is team-size meant?"),
        ('method = "gepa"\nseed = ["one"]', "argument --seed: invalid int value: 'one'"),
        ('method = "gepa"\nbudget = 8', "it needs at least"),
        ('method = "gepa"\noption = ["minibatch=many"]', "--option minibatch takes a whole number, got many"),
        ('method = "gepa"\nprogram = "nobody"', "nobody"),
        ('method = "gepa"\nprogram = "single"\nteam-size = 4', "single"),
    ],
)
def test_what_a_run_would_refuse_is_refused_before_anything_starts(tmp_path, capsys, line, said):
    path = tmp_path / "grid.toml"
    path.write_text(f'[defaults]\ndataset = "toolhop-sample"\n[grid]\n{line}\n')
    for flags in ([], ["--dry-run"]):
        assert main([str(path), *flags]) == 2
        error = capsys.readouterr().err.strip()
        assert error.startswith("error: ") and said in error and len(error.splitlines()) == 1
        assert "gep" in error, "the job is named"


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        ([], "gepa/toolhop-sample/centralized/0"),
        (["--program", "single"], "gepa/toolhop-sample/single/0"),
        (["--team-size", "2", "--feedback", "blame", "--seed", "3"], "gepa+blame/toolhop-sample/centralized-r2/3"),
        (["--program", "my_mod:Team", "--data-file", "q.jsonl"], "gepa/own/my_mod.Team/0"),
        (["--option", "minibatch=2", "--metric", "strict"], "gepa/toolhop-sample/centralized-strict-minibatch-2/0"),
    ],
)
def test_a_run_and_a_grid_name_a_folder_alike(tmp_path, words, folder):
    assert default_folder(build_parser().parse_args(["--method", "gepa", *words])).as_posix() == f"runs/{folder}"
    flags = {"method": "gepa", **{words[i][2:]: words[i + 1] for i in range(0, len(words), 2)}}
    path = tmp_path / "grid.toml"
    path.write_text("[grid]\n" + "".join(f"{key} = {json.dumps([value])}\n" for key, value in flags.items()))
    assert [job.folder.as_posix() for job in read_grid(path)] == [f"runs/{folder}"]
