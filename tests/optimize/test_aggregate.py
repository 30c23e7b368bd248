"""Many jobs as one table: statistics, incomplete cells, what is left out, files."""

from __future__ import annotations

import csv
import json

import pytest

from metrics.errors import ConfigurationError
from metrics.statistics import holm, mcnemar_exact, stratified_paired_bootstrap
from optimize.aggregate import aggregate, find_jobs, main


def job(seed=0, method="gepa", program="sequential", before=(0, 0, 1, 1), after=(1, 0, 1, 1), **changes):
    n = len(before)
    mean_before, mean_after = sum(before) / n, sum(after) / n
    return {
        "method": method, "feedback": "plain", "options": {}, "dataset": "hotpotqa", "program": program, "team_size": 4,
        "rounds": None, "communication": "freeform", "model": "m", "metric": "official", "budget": 600, "seed": seed,
        "conformant": True, "embedded": False, "rollouts": 600, "deployed": "incumbent",
        "usage_total": {"lm_calls": 10, "usd_billed": 0.5},
        "test": {"delta_pp": 100 * (mean_after - mean_before), "complete": True},
        "rows": [{"baseline": {"score": a}, "deployed": {"score": b}} for a, b in zip(before, after, strict=True)],
        **changes,
    }  # fmt: skip


def test_a_cell_over_three_seeds():
    jobs = [job(0), job(1, after=(0, 0, 1, 1)), job(2, before=(0, 0, 0, 1), after=(1, 1, 0, 1))]
    summary = aggregate(jobs, replicates=2000)
    cell = summary["cells"][0]
    assert cell["baseline"] == pytest.approx((0.5 + 0.5 + 0.25) / 3)
    assert cell["delta_pp"] == pytest.approx(25.0) and cell["delta_sd_pp"] == pytest.approx(25.0)
    strata = [([r["baseline"]["score"] for r in j["rows"]], [r["deployed"]["score"] for r in j["rows"]]) for j in jobs]
    expected = stratified_paired_bootstrap(strata, replicates=2000)
    assert cell["delta_interval_pp"] == [round(100 * expected["low"], 3), round(100 * expected["high"], 3)]
    assert cell["seeds"][2]["mcnemar"] == mcnemar_exact(*strata[2])


def test_holm_runs_over_all_tests_of_a_family():
    strong = tuple([0] * 12), tuple([1] * 12)
    jobs = [job(s, p, before=strong[0], after=strong[1]) for s in range(3) for p in ("gepa", "mipro")]
    other = [job(s, "gepa", model="other", before=strong[0], after=strong[1]) for s in range(3)]
    summary = aggregate([*jobs, *other], replicates=100)
    p = mcnemar_exact(*strong)["p_value"]
    by_model = {c["model"]: c for c in summary["cells"]}
    assert by_model["m"]["seeds"][0]["p_holm"] == holm(dict.fromkeys(range(6), p))[0]
    assert by_model["other"]["seeds"][0]["p_holm"] == holm(dict.fromkeys(range(3), p))[0]


def test_incomplete_cells_are_listed_and_not_averaged():
    broken = job(1)
    broken["test"] = {**broken["test"], "complete": False}
    summary = aggregate([job(0), broken], replicates=10)
    assert summary["cells"] == [] and summary["macro"] == []
    assert summary["incomplete"][0]["missing_seeds"] == [1, 2]


def test_nonconformant_jobs_are_left_out_unless_asked_for_and_kinds_are_never_mixed():
    jobs = [job(s, conformant=False) for s in range(3)] + [job(s, feedback="blame", conformant=False) for s in range(3)]
    assert aggregate(jobs, replicates=10)["skipped_nonconformant"] == 6
    cells = aggregate(jobs, replicates=10, include_nonconformant=True)["cells"]
    assert [cell["method"] for cell in cells] == ["gepa", "gepa+blame"]
    with pytest.raises(ConfigurationError, match="two jobs of the same cell"):
        aggregate([job(0), job(0)])
    with pytest.raises(ConfigurationError, match="no such column"):
        aggregate([job(0)], family=["colour"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"decoding": {"temperature": 0.7}}, ("decoding temperature none", "decoding temperature 0.7")),
        ({"data": {"splits_hash": "b" * 16, "data_sha256": "c" * 64}}, ("splits aaaaaaaa, data aaaaaaaa",
                                                                        "splits bbbbbbbb, data cccccccc")),
        ({"reflection_model": "big"}, ("reflection model m", "reflection model big")),
        ({"models": {"default": "m", "manager": "big"}}, ("models manager none", "models manager big")),
        ({"prompts": "plain"}, ("seed prompts none", "seed prompts plain")),
        ({"tool_calling": "native"}, ("tool calling text", "tool calling native")),
        ({"settings": {"max_tokens": 100}}, ("max tokens none", "max tokens 100")),
        ({"settings": {"hyperparameters": {"max_turns": 3}}}, ("max turns none", "max turns 3")),
        ({"settings": {"baseline": "other-prompts"}}, None),
    ],
)  # fmt: skip
def test_jobs_that_differ_in_a_setting_are_never_averaged(changes, said):
    common = {
        "data": {"splits_hash": "a" * 16, "data_sha256": "a" * 64}, "models": {"default": "m"},
        "reflection_model": "m", "tool_calling": "text", "decoding": None,
    }  # fmt: skip
    first = [job(s, **common) for s in range(3)]
    second = [job(s, **{**common, **changes}, after=(1, 1, 1, 1)) for s in range(3)]
    summary = aggregate([*first, *second], replicates=10)
    assert sorted(cell["delta_pp"] for cell in summary["cells"]) == [25.0, 50.0]
    assert sorted(len(cell["seeds"]) for cell in summary["cells"]) == [3, 3]
    variants = {cell["delta_pp"]: cell["variant"] for cell in summary["cells"]}
    if said:
        assert (variants[25.0], variants[50.0]) == said
        assert {entry["delta_pp"] for entry in summary["macro"]} == {25.0, 50.0}, "nor are they in macro averages"
    assert variants[25.0] != variants[50.0]
    assert aggregate(first, replicates=10)["cells"][0]["variant"] is None
    split = aggregate([*first[:2], second[2]], replicates=10)
    assert not split["cells"]
    assert sorted(entry["missing_seeds"] for entry in split["incomplete"]) == [[0, 1], [2]]


def test_only_the_seeds_of_the_protocol_are_averaged_and_others_are_named():
    jobs = [job(s) for s in range(3)] + [job(s, conformant=False, after=(1, 1, 1, 1)) for s in (3, 7)]
    summary = aggregate(jobs, replicates=10, include_nonconformant=True)
    cell = summary["cells"][0]
    assert [seed["seed"] for seed in cell["seeds"]] == [0, 1, 2]
    assert cell["delta_pp"] == pytest.approx(25.0) and cell["conformant"]
    assert [entry["seeds"] for entry in summary["other_seeds"]] == [[3, 7]]


def test_macro_averages_weigh_programs_equally():
    own = {p: {"settings": {"hyperparameters": {"decoding": {"temperature": t}, "rounds": t}, "baseline": p}}
           for p, t in (("x", 0.0), ("y", 2))}  # fmt: skip
    jobs = [job(s, program=p, after=a, **own[p])
            for s in range(3) for p, a in (("x", (1, 1, 1, 1)), ("y", (0, 0, 1, 1)))]  # fmt: skip
    macro = aggregate(jobs, replicates=10)["macro"]
    assert macro[0]["n_cells"] == 2 and macro[0]["delta_pp"] == pytest.approx(25.0)


def test_the_command_reads_folders_and_writes_json_csv_and_a_table(tmp_path, capsys):
    for entry in [job(0), job(1), job(2), job(0, "mipro")]:
        folder = tmp_path / "runs" / entry["method"] / str(entry["seed"])
        folder.mkdir(parents=True)
        rows = entry.pop("rows")
        settings = {"seed": entry["seed"], "max_tokens": None, "reflection_model": "big"}
        (folder / "job.json").write_text(json.dumps({"settings": settings}))
        (folder / "result.json").write_text(json.dumps(entry))
        (folder / "test.json").write_text(json.dumps({"rows": rows}))
    unfinished = tmp_path / "runs/gepa/7"
    unfinished.mkdir()
    (unfinished / "job.json").write_text("{}")
    out = tmp_path / "summary.json"
    assert main([str(tmp_path / "runs"), "--out", str(out), "--bootstrap", "100"]) == 0
    shown = capsys.readouterr()
    assert "sequential" in shown.out and "incomplete: mipro" in shown.out and "not finished" in shown.err
    assert json.loads(out.read_text())["cells"][0]["method"] == "gepa"
    lines = list(csv.DictReader(out.with_suffix(".csv").open()))
    assert [line["seed"] for line in lines] == ["0", "1", "2"] and lines[0]["p_holm"]
    assert main([str(tmp_path / "nowhere")]) == 2
    assert len(find_jobs([tmp_path / "runs"])[0]) == 4
