"""What a user of `python eval.py` relies on; everything offline, with the embedded model and the packaged samples."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

import pytest

import eval as command
from metrics.jsonio import read_lines
from tests.support.processes import interruptible

ROOT = Path(__file__).resolve().parents[1]
SUMMARY_KEYS = {
    "dataset", "program", "model", "n", "n_scored", "n_errors", "n_skipped", "accuracy", "strict_accuracy", "lm_calls",
    "tool_calls", "prompt_tokens", "completion_tokens", "usd_billed", "usd_without_cache", "wall_s",
}  # fmt: skip
ROW_KEYS = {
    "id", "question", "gold_answer", "predicted_answer", "correct", "strict_correct", "credited_by", "error",
    "exhausted", "forced", "stopped", "n_lm_calls", "n_tool_calls", "prompt_tokens", "completion_tokens", "latency_s",
}  # fmt: skip


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOOLHOP_ALLOW_DATASET_EXEC", raising=False)
    return tmp_path


@pytest.fixture
def call(capsys):
    def run(*arguments):
        status = command.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def start(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, ROOT / "eval.py", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


def external_file(folder, n=6):
    rows = json.loads(resources.files("data.samples").joinpath("toolhop_sample.json").read_text(encoding="utf-8"))
    path = folder / "own.json"
    path.write_text(json.dumps(rows[:n]), encoding="utf-8")
    return path


def test_help_is_quick_and_imports_nothing_heavy():
    def measured():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        out = start("--help").communicate()[0]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, out

    cpu, out = min(measured() for _ in range(3))  # what else runs on the machine makes it slower
    assert cpu <= 0.3, f"{cpu:.2f} s of CPU"
    for flag in (
        "--program", "--topology", "--dataset", "--data-file", "--split-from-file", "--wiki", "--model", "--role-model",
        "--api-base", "--temperature", "--top-p", "--max-tokens", "--tool-calling", "--team-size", "--rounds",
        "--communication", "--prompts", "--scenario", "--max-turns", "--tool-result-budget", "--question-timeout",
        "--threads", "--seed", "--max-usd", "--max-errors", "--out", "--out-dir", "--resume", "--overwrite", "--json",
        "--quiet", "--verbose", "--split", "--limit", "--offset", "--only", "--load", "--smoke-dataset", "--list",
        "--compare", "--export",
    ):  # fmt: skip
        assert flag in out, flag
    code = "import eval, sys; eval.build_parser(); print({'dspy', 'numpy', 'litellm', 'rich'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "set()"


def test_the_default_job_runs_offline_and_says_what_it_is(call, place):
    status, out, _ = call("--program", "centralized")
    lines = out.splitlines()
    assert status == 0
    folder = Path(lines[-1]).parent
    assert lines[-1].endswith("summary.json") and folder.parts[:3] == ("results", "toolhop-sample", "centralized")
    summary = json.loads((place / lines[-1]).read_text())
    rows = read_lines(folder / "results.jsonl")[0]
    assert summary["complete"] and summary["n"] == summary["n_scored"] == len(rows) == 10
    assert summary.keys() >= SUMMARY_KEYS
    assert all(row.keys() >= ROW_KEYS for row in rows)
    assert summary["usd_billed"] == 0.0 and summary["embedded"] is True
    assert "not a language model" in out and "text tool calling" in out and "do-nothing" in out
    config = json.loads((folder / "config.json").read_text())
    assert config["settings"]["program"] == "centralized" and config["settings"]["data"]["ids_hash"]
    assert config["data"]["sandbox"]["seccomp"] in (True, False) and config["environment"]["dspy"]
    trace = json.loads((folder / "traces" / f"{rows[0]['id']}.json").read_text())
    assert {call["agent"]["role"] for call in trace["calls"]} >= {"manager", "aggregator"}
    assert sum(call["prompt_tokens"] for call in trace["calls"]) == rows[0]["prompt_tokens"]
    assert trace["tools"] and len(trace["calls"]) == rows[0]["n_lm_calls"]


def test_hotpotqa_has_its_own_keys(call):
    status, out, _ = call("--dataset", "hotpotqa-sample", "--limit", 4, "--json")
    summary = json.loads(out)
    assert status == 0
    for key in ("em", "f1", "cover_em", "n_extracted", "em_extracted", "f1_extracted", "by_type", "by_level"):
        assert key in summary, key
    assert "accuracy" not in summary and summary["primary"] == "em"


def test_json_prints_the_summary_and_nothing_else(call):
    status, out, err = call("--limit", 2, "--json", "--out", "here")
    assert status == 0 and json.loads(out) == json.loads(Path("here/summary.json").read_text())
    assert err.strip().endswith("here/summary.json")


def test_what_a_users_program_prints_is_no_part_of_the_output(call):
    status, out, err = call("--program", "tests.support.runs:NoisyTeam", "--limit", 2, "--json", "--out", "noisy")
    assert status == 0 and json.loads(out)["n"] == 2
    assert err.count("noise of the team") == 2


def test_quiet_prints_the_path_only(call):
    assert call("--limit", 1, "--quiet", "--out", "q")[1] == "q/summary.json\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--program", "nonsense"], "unknown program 'nonsense'"),
        (["--program", "no.such:Team"], "cannot load program"),
        (["--dataset", "nonsense"], "unknown dataset"),
        (["--only", "nope"], "--only"),
        (["--only", ","], "--only names no id"),
        (["--offset", "500"], "nothing to run"),
        (["--team-size", "3", "--program", "centralized"], "team size"),
        (["--rounds", "2"], "rounds"),
        (["--resume", "--overwrite"], "exclude each other"),
        (["--resume"], "nothing to resume"),
        (["--load", "missing.json"], "no compiled program"),
        (["--model", "nonsense"], "unknown model"),
        (["--dataset", "hotpotqa", "--data-file", "missing.jsonl"], "missing.jsonl"),
        (["--compare", "one"], "at least two"),
        (["--compare", "one", "two"], "no run folder"),
        (["--export", "xml"], "--export writes"),
        (["--export", "csv", "nowhere"], "no run folder"),
        (["--smoke-dataset", "--dataset", "hotpotqa-sample"], "ToolHop files"),
    ],
)
def test_user_mistakes_are_one_line_and_status_2(call, arguments, says):
    status, out, err = call(*arguments)
    assert status == 2 and out == ""
    assert err.count("error: ") == 1 and says in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--threads", "0"], "argument --threads: must be a whole number from 1, got '0'"),
        (["--max-errors", "-1"], "argument --max-errors"),
        (["--max-usd", "x"], "argument --max-usd"),
        (["--limit", "-3"], "argument --limit"),
        (["--progam", "single"], "unrecognized arguments: --progam single"),
        *(([flag, value], f"argument {flag}: is empty") for flag, value in [
            ("--data-file", ""), ("--model", ""), ("--api-base", " "), ("--wiki", ""), ("--load", ""), ("--only", ""),
            ("--role-model", ""), ("--compare", ""),
        ]),
        (["--program", ""], "argument --program/--topology: is empty"),
    ],
)  # fmt: skip
def test_a_flag_that_is_wrong_is_one_line_that_says_where_to_look(capsys, arguments, says):
    with pytest.raises(SystemExit) as caught:
        command.main(arguments)
    out, err = capsys.readouterr()
    assert caught.value.code == 2 and out == ""
    assert err == f"error: {says}" + err.removeprefix(f"error: {says}") and err.endswith("(see eval.py --help)\n")
    assert err.count("\n") == 1


def test_a_money_cap_without_a_known_price_is_refused_before_anything_is_spent(call):
    server = ["--api-base", "http://127.0.0.1:9/v1", "--max-usd", 1, "--limit", 1]
    status, out, err = call("--model", "openai/my-model", *server)
    assert status == 2 and out == "" and not Path("results").exists()
    assert err.count("\n") == 1 and "none for openai/my-model" in err
    assert "name the model as its provider does" in err
    status, _, err = call("--role-model", "solver=openai/my-model", "--max-usd", 1)
    assert status == 2 and "none for openai/my-model" in err
    priced = ["--role-model", "solver=openai/gpt-4o-mini", "--model", "openai/my-model"]
    assert call(*priced, *server, "--retries", 0)[0] == 1, "no call goes to the model without a price: it is run"
    assert call("--max-usd", 1, "--limit", 1, "--quiet")[0] == 0, "the embedded engine costs nothing"


def test_the_embedded_engine_is_named_when_some_call_goes_to_it(call):
    solver = ["--role-model", "solver=openai/gpt-4o-mini@http://127.0.0.1:9/v1"]
    _, out, err = call(*solver, "--limit", 1, "--retries", 0)
    assert "embedded" not in out + err and "model openai/gpt-4o-mini" in out
    planner = ["--program", "sequential", "--role-model", "planner=openai/m@http://127.0.0.1:9/v1"]
    _, out, _ = call(*planner, "--limit", 1, "--retries", 0)
    assert "embedded" in out


def test_what_is_printed_reads_well_for_one_question_and_for_none(call):
    _, out, err = call("--limit", 1, "--out", "one")
    assert "1 question of split" in out and "1 packaged question of our own" in out
    dead = ["--model", "openai/m", "--api-base", "http://127.0.0.1:9/v1", "--retries", 0]
    _, out, _ = call("--limit", 1, "--out", "none", *dead)
    assert "accuracy n/a: no question was scored" in out and "1 model call," in out and "0 packaged" not in out
    status, out, err = call("--limit", 1, "--out", "quiet", "--quiet", *dead)
    assert (status, out) == (1, "quiet/summary.json\n")
    assert err.count("\n") == 1 and err.startswith("1 error (") and "connection refused" in err
    status, out, err = call("--limit", 1, "--out", "fine", "--quiet")
    assert (status, out, err) == (0, "fine/summary.json\n", "")


def test_a_missing_key_is_said_in_full(call, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    _, out, _ = call("--model", "anthropic/claude-3-haiku", "--limit", 1)
    (line,) = [line for line in out.splitlines() if "first: " in line]
    assert "Set ANTHROPIC_API_KEY in the environment" in line and line.endswith(("anthropic", "[...]"))


def test_output_that_cannot_be_written_is_one_line(place):
    for options, arguments in ((["-u"], ["--list"]), ([], ["--help"]), ([], ["--limit", "1", "--out", "run"])):
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
        with open("/dev/full", "w") as full:
            process = subprocess.Popen(
                [sys.executable, *options, ROOT / "eval.py", *arguments],
                stdout=full, stderr=subprocess.PIPE, text=True, env=environment,
            )  # fmt: skip
            err = process.communicate(timeout=60)[1]
        assert process.returncode == 1
        assert err.splitlines()[-1] == "error: cannot write to standard output: No space left on device"
        assert "Traceback" not in err and "Exception ignored" not in err


INTERRUPTER = """
import os, runpy, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
module, *sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("module", ["data.options", "programs.lms", "dspy", "metrics.evaluate"])
def test_ctrl_c_while_modules_are_imported_is_one_line(place, module):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with interruptible():
        done = subprocess.run(
            [sys.executable, "-c", INTERRUPTER, module, ROOT / "eval.py", "--out", "run", "--quiet"],
            capture_output=True, text=True, env=environment, timeout=120,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.splitlines()[-1] == "interrupted" and "Traceback" not in done.stderr


def test_an_external_file_needs_the_opt_in_before_any_model_call(call, place, monkeypatch):
    path = external_file(place)
    arguments = ["--dataset", "toolhop", "--data-file", path, "--split", "all", "--limit", 0, "--out", "run"]
    status, out, _ = call(*arguments)
    rows = read_lines(Path("run/results.jsonl"))[0]
    assert status == 1 and len(rows) == 6
    assert {row["error"]["kind"] for row in rows} == {"refused"}
    assert "TOOLHOP_ALLOW_DATASET_EXEC" in rows[0]["error"]["message"]
    assert all(row["correct"] is False and row["n_lm_calls"] == 0 for row in rows)
    assert "6 refused" in out
    monkeypatch.setenv("TOOLHOP_ALLOW_DATASET_EXEC", "1")
    status, out, _ = call(*arguments, "--resume")
    assert status == 0, "with the opt-in the same command does the refused rows"
    assert "needs --tool-calling native" in out


def test_five_rows_of_a_file_by_default_said_in_one_line(call, place, monkeypatch):
    monkeypatch.setenv("TOOLHOP_ALLOW_DATASET_EXEC", "1")
    path = external_file(place, 8)
    _, out, err = call("--dataset", "toolhop", "--data-file", path, "--split", "all", "--json")
    assert json.loads(out)["n"] == 5
    assert sum("running the first 5 rows of 8" in line for line in err.splitlines()) == 1


def test_a_users_own_module_is_evaluated(call):
    status, out, _ = call("--program", "tests.support.runs:PlainTeam", "--limit", 3, "--json")
    summary = json.loads(out)
    assert status == 0 and summary["program"] == "tests.support.runs:PlainTeam"
    assert summary["lm_calls"] == 3 and summary["usage_by_role"]["solver"]["lm_calls"] == 3


def test_failed_questions_are_status_1_unless_tolerated(call):
    arguments = ["--program", "tests.support.runs:BrokenTeam", "--limit", 3]
    status, out, _ = call(*arguments, "--out", "a")
    assert status == 1 and "3 errors (RuntimeError×3)" in out and "a bug in the team" in out
    assert call(*arguments, "--out", "b", "--tolerate-errors", 3)[0] == 0
    assert call(*arguments, "--out", "c", "--max-errors", 0, "--threads", 1)[0] == 1
    assert json.loads(Path("c/summary.json").read_text())["stopped_by"] == "max_errors"


def test_resume_without_a_folder_finds_the_run_and_other_settings_are_refused(call):
    _, out, _ = call("--limit", 3)
    path = Path(out.splitlines()[-1])
    rows = (path.parent / "results.jsonl").read_bytes().splitlines(keepends=True)
    (path.parent / "results.jsonl").write_bytes(rows[0] + rows[1][:40])
    status, out, _ = call("--limit", 3, "--resume")
    assert status == 0 and Path(out.splitlines()[-1]) == path
    assert len(read_lines(path.parent / "results.jsonl")[0]) == 3
    status, _, err = call("--limit", 4, "--temperature", "0.7", "--out", path.parent, "--resume")
    assert status == 2 and "data.n: 3 (saved) / 4 (now)" in err and "temperature" in err
    status, _, err = call("--limit", 3, "--out", path.parent)
    assert status == 2 and "--resume to go on or --overwrite" in err
    assert call("--limit", 2, "--out", path.parent, "--overwrite")[0] == 0


def test_equal_seeds_give_the_same_rows_at_any_thread_count(call):
    def rows(threads):
        call("--program", "independent", "--limit", 6, "--threads", threads, "--out", f"t{threads}", "--quiet")
        return [
            {key: value for key, value in row.items() if key != "latency_s"}
            for row in read_lines(Path(f"t{threads}/results.jsonl"))[0]
        ]

    assert rows(1) == rows(32) != []


def test_a_compiled_program_is_loaded_and_named(call, place):
    from programs import build_program, save_program

    program = build_program("single")
    program.solver.signature = program.solver.signature.with_instructions("Answer the question, one hop at a time.")
    save_program(program, place / "tuned.json")
    status, out, _ = call("--load", "tuned.json", "--limit", 2, "--out", "run")
    assert status == 0 and "compiled tuned.json" in out
    trace = json.loads(next(Path("run/traces").iterdir()).read_text())
    assert any("one hop at a time" in text for text in trace["texts"].values())
    status, _, err = call("--load", "tuned.json", "--program", "sequential")
    assert status == 2 and "error: " in err
    status, out, _ = call("--limit", 2, "--json")
    tuned = json.loads(Path("run/config.json").read_text())["settings"]["prompts_hash"]
    assert json.loads(out)["prompts_hash"] != tuned


def test_a_compiled_program_runs_on_the_dataset_that_it_was_made_for(call, place):
    from programs import build_program, save_program

    save_program(build_program("single"), place / "tuned.json", task="hotpotqa-sample")
    status, out, err = call("--load", "tuned.json", "--limit", 1, "--json")
    assert status == 0 and json.loads(out)["dataset"] == "hotpotqa-sample" and "note:" not in err
    status, out, err = call("--load", "tuned.json", "--limit", 1, "--json", "--dataset", "toolhop-sample")
    assert status == 0 and json.loads(out)["dataset"] == "toolhop-sample"
    assert err.count("note: the program was compiled for hotpotqa-sample, this is toolhop-sample") == 1
    save_program(build_program("single"), place / "mine.json", task="own")
    assert "--data-file QUESTIONS.jsonl" in call("--load", "mine.json")[2]
    save_program(build_program("single"), place / "foreign.json", task="elsewhere")
    status, out, err = call("--load", "foreign.json", "--limit", 1, "--json", "--out", "f")
    assert json.loads(out)["dataset"] == "toolhop-sample" and "compiled for elsewhere" in err


def test_own_questions_with_own_tools_are_evaluated(call, place, monkeypatch):
    monkeypatch.syspath_prepend(place)
    (place / "town_tools.py").write_text(
        'def mayor_of(town: str) -> str:\n    """Name of the mayor of a town."""\n'
        '    return {"Oskarby": "Ebba Strand"}[town]\n'
    )
    row = {"question": "Who is the mayor of Oskarby?", "answer": "Ebba Strand", "tools": "town_tools:mayor_of"}
    Path("questions.jsonl").write_text("".join(json.dumps(row) + "\n" for _ in range(9)))
    status, out, err = call("--data-file", "questions.jsonl", "--json")
    summary = json.loads(out)
    assert status == 0 and (summary["dataset"], summary["scoring"]) == ("own", "exact-match")
    assert summary["n"] == 3 and summary["accuracy"] == 1.0 and summary["tool_calls"] >= 3
    assert "the test split: 3 of 9 rows of questions.jsonl; --split all runs every row" in err
    status, out, _ = call("--data-file", "questions.jsonl", "--split", "all", "--json")
    assert json.loads(out)["n"] == 9


def test_a_job_on_own_questions_is_reproduced(call, place):
    from optimize.run import main as optimize

    rows = [{"question": f"What is {i} plus 1?", "answer": str(i + 1 if i % 2 else i)} for i in range(12)]
    Path("questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--method", "identity", "--program", "single", "--data-file", "questions.jsonl", "--allow-any-cell"]
    assert optimize([*words, "--budget", "5", "--quiet", "--out", "job"]) == 0
    job = json.loads(Path("job/test.json").read_text())["rows"]
    assert call("--load", "job/program.json", "--data-file", "questions.jsonl", "--out", "run", "--quiet")[0] == 0
    again = read_lines(Path("run/results.jsonl"))[0]
    assert [(r["id"], float(r["correct"])) for r in again] == [(r["id"], r["deployed"]["score"]) for r in job]


def test_runs_are_compared_exported_and_listed(call):
    call("--limit", 4, "--out", "a", "--export", "csv")
    call("--limit", 4, "--out", "b", "--program", "direct")
    call("--limit", 3, "--out", "c")
    assert Path("a/rows.csv").read_text().startswith("id,question,gold_answer")
    status, out, _ = call("--compare", "a", "b")
    assert status == 0 and "McNemar" in out and "not a language model" in out and "[2] direct offline" in out
    status, out, _ = call("--compare", "a", "b", "--json")
    assert json.loads(out)["runs"][1]["versus_first"]["n"] == 4
    status, _, err = call("--compare", "a", "c")
    assert status == 2 and "different rows" in err
    status, out, _ = call("--export", "jsonl", "a", "b")
    assert status == 0 and out.split() == ["a/rows.jsonl", "b/rows.jsonl"]
    status, out, _ = call("--list")
    assert status == 0
    for word in ("centralized", "toolhop-sample", "hotpotqa", "offline", "not a language model"):
        assert word in out


def test_smoke_dataset_runs_no_model_and_no_code(call, place):
    status, out, _ = call("--smoke-dataset", "--dataset", "toolhop", "--data-file", external_file(place), "--limit", 0)
    report = json.loads(out)
    assert status == 0 and report["dataset"] == "toolhop" and 6 in report.values()


def test_no_credential_is_recorded(call, place, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abcdefgh12345678")
    arguments = command.build_parser().parse_args(
        ["--model", "openai/some-model", "--api-base", "http://me:hunter2@127.0.0.1:9/v1", "--program", "single"]
    )
    models = command.lms_from_args(arguments)
    program = command._program(arguments, models.role_models)
    task = command.task_from_args(arguments)
    facts = command.describe_run(arguments, program, task, models)
    text = json.dumps(command.run_config(arguments, facts, task, models.decoding), default=str) + json.dumps(facts)
    assert "127.0.0.1:9/v1" in text, "the endpoint is needed to repeat the run"
    assert "hunter2" not in text and "sk-abcdefgh12345678" not in text


def test_interrupt_keeps_finished_rows_and_exits_130(place):
    with interruptible():
        process = start("--program", "tests.support.runs:SlowTeam", "--threads", 1, "--out", place / "run")
    deadline = time.monotonic() + 60
    while len(read_lines(place / "run" / "results.jsonl")[0]) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "NOT COMPLETE (interrupted)" in out and out.splitlines()[-1].endswith("summary.json")
    kept = read_lines(place / "run" / "results.jsonl")[0]
    assert 2 <= len(kept) < 10 and all(row["error"] is None for row in kept)


def test_it_runs_from_any_folder_and_leaves_stdout_clean(place):
    process = start("--limit", 2, "--json", cwd=place)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(out)["n"] == 2
    assert list(place.iterdir()) == [place / "results"]
    shutil.rmtree(place / "results")
