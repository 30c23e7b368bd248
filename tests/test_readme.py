"""What the README promises to a newcomer is true."""

from __future__ import annotations

import json
import re
from pathlib import Path

import dspy

import eval as command

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_first_command_scores_what_the_readme_says(tmp_path, capsys):
    promised = re.search(
        r"python eval\.py (--program centralized) +# toolhop-sample: accuracy (\S+) (\[.*?\]) of (\d+)", README
    )
    assert promised, "the README names the expected score of its first command"
    arguments, accuracy, interval, n = promised.groups()
    assert command.main([*arguments.split(), "--out", str(tmp_path / "run")]) == 0
    assert f"accuracy {accuracy} {interval} of {n} scored" in capsys.readouterr().out
    assert len((tmp_path / "run" / "results.jsonl").read_text().splitlines()) == int(n)


def test_the_python_example_runs(capsys):
    program, tools = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    before = dspy.settings.lm
    try:
        exec(compile(tools + program, "README.md", "exec"), {})
    finally:
        dspy.configure(lm=before)
    assert capsys.readouterr().out.strip() == "1961"


def test_named_programs_and_datasets_exist():
    from data.registry import TASKS
    from programs.registry import PROGRAMS

    rows = {line.split("|")[1].strip(): line for line in README.splitlines() if line.startswith("| ")}
    assert {name for name in re.findall(r"[a-z_0-9]+", rows["programs"])} >= set(PROGRAMS)
    assert {name for name in re.findall(r"[a-z_0-9-]+", rows["datasets"])} >= set(TASKS)


def test_every_key_of_a_run_is_documented(tmp_path):
    document = (Path(__file__).resolve().parents[1] / "docs" / "results.md").read_text(encoding="utf-8")
    words = set(re.findall(r"[A-Za-z0-9_]+", document))
    for dataset in ("toolhop-sample", "hotpotqa-sample"):
        folder = tmp_path / dataset
        command.main(["--dataset", dataset, "--limit", "2", "--out", str(folder), "--quiet"])
        keys = set(json.loads((folder / "summary.json").read_text()))
        keys |= set(json.loads((folder / "results.jsonl").read_text().splitlines()[0]))
        keys |= set(json.loads((folder / "config.json").read_text()))
        keys |= set(json.loads(next((folder / "traces").iterdir()).read_text())) - {"format", "question", "meta"}
        missing = {key for key in keys if key.removesuffix("_interval") not in words}
        assert not missing
