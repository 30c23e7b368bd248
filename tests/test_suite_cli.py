"""`python eval.py --suite agent-as-tool`: the paper's table from ordinary runs, beside the published numbers."""

from __future__ import annotations

import json
import os
import re
from importlib import resources
from pathlib import Path

import pytest

import eval as command
from data.suites import load_suite, suite_names
from programs import build_program

REAL = os.environ.get("HOPTEAM_REAL_DATA")
SETS = ("bamboogle", "hotpotqa", "2wikimultihopqa", "musique")
SYSTEMS = ("direct", "direct_search", "chat_agent-direct", "chat_agent", "search_r1", "agent_as_tool")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(capsys):
    def run(*arguments):
        status = command.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def folder(tmp_path):
    """The four sets as files and folders, with our own packaged questions in them."""
    text = resources.files("data.samples").joinpath("hotpotqa_sample.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    ids = json.loads(resources.files("data").joinpath("ids", "hotpotqa_eval_ids.json").read_text(encoding="utf-8"))
    hotpotqa = [{**rows[i % len(rows)], "id": row_id} for i, row_id in enumerate(ids)]
    root = tmp_path / "sets"
    for name, chosen in {
        "hotpotqa.jsonl": hotpotqa,
        "bamboogle.jsonl": [{**row, "golden_answers": [row["answer"]]} for row in rows[:6]],
        "musique/part.jsonl": rows[6:12],
        "2wikimultihopqa/a.jsonl": rows[12:13],
        "2wikimultihopqa/b.jsonl": rows[13:18],
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in chosen), encoding="utf-8")
    return root


def suite(folder, *more):
    return ["--suite", "agent-as-tool", "--data-file", folder, "--wiki", "mini", "--limit", 2, *more]


def cells(table):
    return {cell["run"]: cell for cell in table["cells"] if cell["run"]}


def test_the_published_table_is_complete_and_names_programs_that_exist():
    assert suite_names() == ["agent-as-tool"]
    chosen = load_suite("agent-as-tool")
    assert tuple(chosen.datasets) == SETS
    assert [cell.key for cell in chosen.cells()] == [f"{name}/{system}" for name in SETS for system in SYSTEMS]
    assert all(len(system.published[name]) == 2 for system in chosen.systems for name in SETS)
    published = {system.label: system.published for system in chosen.systems}
    assert published["Agent-as-tool tuned + search"]["bamboogle"] == [63.2, 75.2]
    assert published["Search-R1 + search"]["hotpotqa"] == [47.2, 64.2]
    assert published["CAMEL + search"]["2wikimultihopqa"] == [35.0, 69.4]
    assert published["Direct IO"]["musique"] == [4.8, 9.0]
    for system in chosen.systems:
        if system.program:
            build_program(system.program, **system.options)


def test_every_cell_is_a_run_and_the_table_stands_beside_the_published_one(call, folder):
    status, out, err = call(*suite(folder, "--out", "table"))
    assert status == 0, err
    assert out.splitlines()[-1] == "table/suite.json"
    table = json.loads(Path("table/suite.json").read_text())
    assert set(cells(table)) == {f"{name}/{system}" for name in SETS for system in SYSTEMS}
    assert table["complete"] and len(table["cells"]) == 28
    for key, cell in cells(table).items():
        summary = json.loads((Path("table") / key / "summary.json").read_text())
        assert (cell["measured"]["em"], cell["measured"]["cover_em"]) == (summary["em"], summary["cover_em"])
        assert summary["n"] == summary["n_scored"] == 2 and summary["program"] == cell["program"]
        assert summary["data"]["scenario"] == cell["options"].get("scenario", "free")
        uses_tools = cell["program"] not in ("direct",) and not cell["options"]
        assert (summary["tool_calls"] > 0) == uses_tools
    assert "[24/24] MuSiQue: Agent-as-tool base + search (agent_as_tool)" in err
    assert out.count("not a language model") == 2, "at the top and at the bottom"
    assert "corpus" not in out and "Wikipedia, mini" in out and "web search" in out
    assert out.count("untrained here") == 4 and out.count("needs fine-tuning") == 4
    row = next(line for line in out.splitlines() if line.strip().startswith("Direct IO + search"))
    em, cem, n, errors, bar, *theirs = row.split()[-7:]
    measured = cells(table)["bamboogle/direct_search"]["measured"]
    assert (float(em), float(cem), n, errors) == (100 * measured["em"], 100 * measured["cover_em"], "2", "0")
    assert (bar, theirs) == ("|", ["29.6", "42.4"])
    for name in SETS:
        assert cells(table)[f"{name}/direct"]["measured"]["ids_hash"][:12] in out
    assert "2 of the 125 questions of bamboogle" in out
    status, out, _ = call("--compare", "table/musique/direct", "table/musique/agent_as_tool")
    assert status == 0 and "[2] agent_as_tool offline" in out


def test_a_suite_goes_on_where_it_was_and_marks_what_is_missing(call, folder, monkeypatch):
    _, whole, _ = call(*suite(folder, "--out", "table"))
    status, _, err = call(*suite(folder, "--out", "table"))
    assert status == 2 and "--resume to go on or --overwrite" in err
    stamps = {path: path.stat().st_mtime_ns for path in Path("table").rglob("results.jsonl")}
    lost = Path("table/2wikimultihopqa/chat_agent")
    kept = (lost / "results.jsonl").read_bytes().splitlines(keepends=True)[0]
    (lost / "results.jsonl").write_bytes(kept)
    (lost / "summary.json").unlink()
    status, out, _ = call(*suite(folder, "--out", "table", "--resume"))
    assert status == 0 and out == whole
    changed = {path for path, stamp in stamps.items() if path.stat().st_mtime_ns != stamp}
    assert changed == {lost / "results.jsonl"} and len((lost / "results.jsonl").read_bytes().splitlines()) == 2
    status, _, err = call(*suite(folder, "--out", "table", "--resume", "--seed", 1))
    assert status == 2 and "settings differ" in err


def test_a_suite_finds_its_folder_again(call, folder):
    _, out, _ = call(*suite(folder, "--quiet"))
    path = Path(out.strip())
    assert path.parts[:3] == ("results", "suites", "agent-as-tool")
    assert call(*suite(folder, "--quiet", "--resume"))[1] == out
    status, out, _ = call(*suite(folder, "--resume", "--json"))
    assert status == 0 and json.loads(out) == json.loads(path.read_text())


def test_a_source_that_is_down_is_errors_and_no_zeros(call, folder, tmp_path, monkeypatch):
    from data.wiki_corpus import CorpusSource
    from metrics.errors import InfrastructureError

    def down(self, query, top_k):
        raise InfrastructureError("no route to the wiki", "wikipedia")

    monkeypatch.setattr(CorpusSource, "search", down)
    status, out, err = call(*suite(folder, "--out", "table"))
    assert status == 1 and "the suite ends here (every question failed); --resume goes on" in err
    table = json.loads(Path("table/suite.json").read_text())
    assert list(cells(table)) == ["bamboogle/direct", "bamboogle/direct_search"]
    broken = cells(table)["bamboogle/direct_search"]["measured"]
    assert broken["em"] is None and broken["n_scored"] == 0 and broken["n_errors"] >= 1
    assert not table["complete"] and "NOT COMPLETE" in out
    line = next(line for line in out.splitlines() if "Direct IO + search" in line)
    assert line.count("n/a") == 2 and "*" in line
    assert out.count("* not run") == 22 and "MuSiQue: not run" in out
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    status, out, _ = call(*suite(folder, "--out", "table", "--resume"))
    assert status == 0 and "NOT COMPLETE" not in out and "*" not in out


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--program", "single"], "drop --program"),
        (["--dataset", "musique", "--only", "a"], "drop --dataset, --only"),
        (["--scenario", "direct"], "drop --scenario"),
        (["--resume", "--overwrite"], "exclude each other"),
        (["--role-model", "poet=offline"], "has a role poet"),
    ],
)
def test_what_a_suite_decides_itself_is_refused(call, folder, more, says):
    status, out, err = call(*suite(folder, *more))
    assert status == 2 and out == "" and says in err and err.count("error: ") == 1


def test_suites_are_listed(call):
    assert "agent-as-tool" in call("--list")[1].split("suites (--suite):")[1].splitlines()[1]


def test_a_missing_set_or_suite_is_found_before_anything_runs(call, folder):
    status, _, err = call("--suite", "nonsense")
    assert status == 2 and "agent-as-tool" in err
    (folder / "bamboogle.jsonl").rename(folder / "other.jsonl")
    status, _, err = call(*suite(folder, "--out", "table"))
    assert status == 2 and "neither bamboogle.jsonl nor a folder bamboogle" in err and not Path("table").exists()
    status, _, err = call(*suite(folder / "other.jsonl"))
    assert status == 2 and "needs a folder" in err


def test_a_model_per_role_goes_to_the_systems_that_have_the_role(call, folder):
    status, out, _ = call(*suite(folder, "--out", "table", "--role-model", "tool_caller=offline"))
    assert status == 0
    config = json.loads(Path("table/musique/agent_as_tool/config.json").read_text())
    assert config["settings"]["role_models"].keys() == {"tool_caller"}
    assert json.loads(Path("table/musique/direct/config.json").read_text())["settings"]["role_models"] == {}
    assert re.search(r"model offline .*tool_caller: offline", out)


@pytest.mark.real_data
@pytest.mark.skipif(not REAL, reason="HOPTEAM_REAL_DATA names no folder with real rows")
def test_the_real_sets_over_the_offline_wikipedia(call):
    corpus = f"corpus:{REAL}/corpus/wiki_pages.jsonl"
    status, out, _ = call("--suite", "agent-as-tool", "--data-file", REAL, "--wiki", corpus, "--limit", 2, "--out", "t")
    assert status == 0 and "corpus wiki_pages.jsonl (" in out
    table = json.loads(Path("t/suite.json").read_text())
    assert table["complete"] and all(cell["measured"]["n_scored"] == 2 for cell in cells(table).values())
