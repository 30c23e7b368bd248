"""The ToolHop task: which rows, what a program sees of them, what a run records, when it refuses."""

import copy
import json
import os
import pickle
from pathlib import Path

import dspy
import pytest

from data import load_splits, load_task
from data.splits import shipped_ids
from data.toolhop import ANSWER_FORM, BUDGET_VARIABLE, load, result_budget
from data.toolhop_rows import REVISION_VARIABLE
from metrics.errors import ConfigurationError
from metrics.evaluate import evaluate
from programs import build_lm, build_program

ALLOW = "TOOLHOP_ALLOW_DATASET_EXEC"
CANARY = "kumquat7319"

needs_real_data = pytest.mark.skipif("HOPTEAM_REAL_DATA" not in os.environ, reason="HOPTEAM_REAL_DATA is not set")


def make_row(row_id, **more):
    schema = {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
    }
    return {
        "id": row_id,
        "question": f"What is number {row_id}?",
        "answer": str(row_id),
        "sub_task": {f"{CANARY} sub-question": f"{CANARY} sub-answer"},
        "tools": {f"{CANARY} key": schema},
        "functions": [f"def look(x):\n    '''{CANARY}'''\n    return x\n"],
        "domain": f"{CANARY}-domain",
        "answer_type": f"{CANARY}-type",
        "previous_answer_type": f"{CANARY}-type",
        **more,
    }


@pytest.fixture
def file(tmp_path):
    def write(rows, name="rows.json"):
        path = tmp_path / name
        path.write_text(json.dumps(rows), "utf-8")
        return str(path)

    return write


@pytest.fixture
def allowed(monkeypatch):
    monkeypatch.setenv(ALLOW, "1")


# -- what a program sees ---------------------------------------------------------------------------


def test_a_program_sees_question_tools_and_answer_form_only(file, allowed):
    example = load(data_file=file([make_row(1)]), split="all").examples[0]
    inputs = example.inputs()
    assert set(inputs.keys()) == {"question", "tools", "answer_format"}
    assert inputs["question"] == "What is number 1?" and inputs["answer_format"].text == ANSWER_FORM
    tool = inputs["tools"][0]
    shown = [repr(example), str(example), repr(tool), str(tool), json.dumps(tool.format_as_litellm_function_call()),
             repr(inputs), repr(example.toDict()), json.dumps(example.meta), repr(list(example.items()))]  # fmt: skip
    assert not [text for text in shown if CANARY in text]


def test_the_gold_is_hidden_but_reachable(file, allowed):
    example = load(data_file=file([make_row(1, answer="GOLDCANARY")]), split="all").examples[0]
    assert example.gold == example.answer == "GOLDCANARY"
    assert "GOLDCANARY" not in repr(example) + str(dict(example.items())) + repr(example.toDict())


def test_examples_survive_copies_and_processes(file, allowed):
    example = load(data_file=file([make_row(1)]), split="all").examples[0]
    for other in (copy.deepcopy(example), pickle.loads(pickle.dumps(example))):
        assert other.gold == "1" and other.id == 1 and other.tools[0](x="a") == '"a"'
        assert other.answer_format.extract("<answer>5</answer>") == "5"


def test_the_answer_form_states_the_format_rules(file, allowed):
    form = load(data_file=file([make_row(1)]), split="all").examples[0].answer_format
    for words in ("YYYY-MM-DD", "Firstname Lastname", "without leading zeros", "short", "<answer>"):
        assert words in form.text
    assert form.extract("x <answer> 7 </answer>") == "7" and form.vote_key("1,000.0") == "1000"
    assert form.has_form("<answer>7") and not form.has_form("7")


def test_scenarios(file, allowed):
    rows = file([make_row(1)])
    free, mandatory, direct = (
        load(data_file=rows, split="all", scenario=name) for name in ("free", "mandatory", "direct")
    )
    assert len(free.examples[0].tools) == 1 and direct.examples[0].tools == []
    assert "with a tool" in mandatory.examples[0].answer_format.text
    assert [task.config["setting"] for task in (free, mandatory, direct)] == ["free", "mandatory", "direct"]
    with pytest.raises(ConfigurationError, match="unknown scenario"):
        load(data_file=rows, split="all", scenario="forced")


# -- permission ------------------------------------------------------------------------------------


def test_without_permission_every_row_is_refused_and_nothing_runs(file, monkeypatch):
    monkeypatch.delenv(ALLOW, raising=False)
    task = load(data_file=file([make_row(1)]), split="all")
    assert ALLOW in task.refusal and task.config["dataset_code"] == "refused"
    assert any(ALLOW in line for line in task.notices)
    result = task.examples[0].tools[0](x="a")
    assert result.kind == "error" and ALLOW in result
    assert task.score(task.examples[0], "", None, "")["correct"] is False


def test_with_permission_the_walls_are_stated(file, allowed):
    task = load(data_file=file([make_row(1)]), split="all")
    assert task.refusal is None and task.config["dataset_code"] == "run"
    assert task.config["sandbox"]["policy"] is True and any("sandbox" in line for line in task.notices)


def test_where_no_code_runs_no_permission_is_needed(file, monkeypatch):
    monkeypatch.delenv(ALLOW, raising=False)
    task = load(data_file=file([make_row(1)]), split="all", scenario="direct")
    assert task.refusal is None and task.config["sandbox"] is None


def test_the_packaged_sample_needs_no_permission(monkeypatch):
    monkeypatch.delenv(ALLOW, raising=False)
    assert load_task("toolhop-sample", limit=1).refusal is None


# -- rows ------------------------------------------------------------------------------------------


def test_results_state_where_the_rows_come_from(file, allowed):
    path = file([make_row(i) for i in range(12)])
    config = load(data_file=path, split="all", offset=2, limit=3).config
    assert config["dataset"] == "toolhop" and config["data_file"] == path and not config["published_file"]
    assert len(config["data_sha256"]) == 64 and config["scoring"] == "mas-promptbench"
    assert config["n"] == 3 and config["split"] == "all" and config["ids_hash"] and not config["split_conformant"]
    assert config["tool_result_budget"] == 6000 and config["answer_form"] == ANSWER_FORM
    json.dumps(config)


def test_split_ids_that_a_file_lacks_are_an_error(file, allowed):
    path = file([make_row(i) for i in range(40)])
    with pytest.raises(ConfigurationError, match=r"rows\.json lacks 60 of the 100 ids of the test split"):
        load(data_file=path)
    task = load(data_file=path, split="test", split_from_file=True)
    assert len(task.examples) == 13 and not task.config["split_conformant"]


def test_a_file_with_all_eval_ids_gives_the_published_test_split(file, allowed):
    task = load(data_file=file([make_row(i) for i in reversed(range(120))]), limit=100)
    assert [example.id for example in task.examples] == shipped_ids("toolhop")["test"]
    assert task.config["split_conformant"]


def test_optimizations_get_three_disjoint_splits(file, allowed):
    splits = load_splits("toolhop", data_file=file([make_row(i) for i in range(60)]), split_from_file=True)
    ids = {name: {example.id for example in task.examples} for name, task in splits.items()}
    assert {name: len(part) for name, part in ids.items()} == {"train": 30, "validation": 10, "test": 20}
    assert len(set.union(*ids.values())) == 60
    with pytest.raises(ConfigurationError, match="whole splits"):
        load_splits("toolhop-sample", limit=3)


def test_ids_default_to_positions_and_may_be_digits_in_text(file, allowed):
    first, second = make_row("7"), make_row(0)
    del second["id"]
    assert [e.id for e in load(data_file=file([first, second]), split="all").examples] == [7, 1]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([make_row(1), make_row(1)], "1 ids more than once"),
        ([make_row(1, question=" ")], "row 0: the row has no question"),
        ([make_row(1, tools=None)], "`tools` and `functions`"),
        ([make_row(None)], "the id must be"),
        ({"rows": []}, r"rows\.json, "),
        (["x"], "row 0 is no object"),
    ],
)
def test_bad_files_are_one_line(file, allowed, rows, words):
    with pytest.raises(ConfigurationError, match=words) as caught:
        load(data_file=file(rows), split="all")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_nested_without_end_is_one_line(tmp_path, allowed):
    for text in ("[" * 100_000, '{"id": ' * 100_000):
        path = tmp_path / "rows.json"
        path.write_text(text)
        with pytest.raises(ConfigurationError, match=r"rows\.json"):
            load(data_file=str(path), split="all")


ODD_IDS = ["\ud800", "²", "a/../../b", "..", "", "é\u2028\x00", "x" * 5000, "9" * 5000, 10**30]


@pytest.mark.parametrize("row_id", ODD_IDS)
def test_any_id_that_is_a_number_or_a_text_can_be_run(file, allowed, row_id):
    task = load(data_file=file([make_row(row_id)]), split="all")
    assert [example.id for example in task.examples] == [row_id] and task.config["ids_hash"]


def test_options_that_do_not_apply_are_refused(file):
    for options, words in [
        ({"wiki": "live"}, "no Wikipedia tools"),
        ({"split_from_file": True}, "--data-file"),
        ({"tool_result_budget": 5}, "at least 100"),
    ]:
        with pytest.raises(ConfigurationError, match=words):
            load(**options)
    with pytest.raises(ConfigurationError, match="is packaged"):
        load_task("toolhop-sample", data_file=file([]))
    with pytest.raises(ConfigurationError, match="unknown dataset 'toolhops': choose one of toolhop-sample"):
        load_task("toolhops")


def test_the_flag_beats_the_variable_beats_6000():
    assert result_budget(None, {}) == 6000
    assert result_budget(None, {BUDGET_VARIABLE: "500"}) == 500
    assert result_budget(300, {BUDGET_VARIABLE: "500"}) == 300
    with pytest.raises(ConfigurationError, match=f"{BUDGET_VARIABLE} must be a whole number"):
        result_budget(None, {BUDGET_VARIABLE: "many"})


def test_the_budget_reaches_the_tools(file, allowed, monkeypatch):
    monkeypatch.setenv(BUDGET_VARIABLE, "150")
    task = load(data_file=file([make_row(1)]), split="all")
    assert "[cut: 150 of 1002 characters shown]" in task.examples[0].tools[0](x="y" * 1000)


def test_repaired_rows_and_renamed_tools_are_noted(file, allowed):
    schema = {"name": "get it", "description": "", "parameters": {"properties": {"n": {"type": "int"}}}}
    row = make_row(1, tools={"a": schema, "b": schema}, functions=["def a(n): return n", "def b(n): return n"])
    task = load(data_file=file([row, make_row(2)]), split="all")
    assert task.examples[0].meta["schema_repaired"] is True and "schema_repaired" not in task.examples[1].meta
    assert task.examples[0].meta["tool_names"] == {"get_it__0": "get it", "get_it__1": "get it"}
    assert task.config["schemas_repaired"] == 1 and any("repaired" in line for line in task.notices)


def test_rows_without_a_gold_are_kept_for_the_loop_to_skip(file, allowed):
    task = load(data_file=file([make_row(1, answer=None), make_row(2, answer=" ")]), split="all")
    assert [example.gold for example in task.examples] == ["", " "]


# -- scores and summaries --------------------------------------------------------------------------


def test_the_answer_is_scored_where_the_text_has_no_tag(file, allowed):
    task = load(data_file=file([make_row(15)]), split="all")
    example = task.examples[0]
    assert task.score(example, "so <answer>15</answer>", "99", "")["correct"]
    assert task.score(example, "It must be fifteen.", "15", "")["strict_correct"]
    assert not task.score(example, "It must be 15.", None, "")["correct"]
    assert task.score(example, "no idea", "no idea", "15")["credited_by"] == "tool_result"


def test_a_summary_tells_lenient_credit_apart(file, allowed):
    task = load(data_file=file([make_row(1), make_row(2, domain="B"), make_row(3, domain="b")]), split="all")
    rows = [
        {"id": 1, "correct": True, "strict_correct": True, "credited_by": "literal"},
        {"id": 2, "correct": True, "strict_correct": False, "credited_by": "tool_result"},
        {"id": 3, "correct": False, "strict_correct": False, "credited_by": "none"},
    ]
    summary = task.summarize(rows)
    assert summary["official_only_share"] == pytest.approx(1 / 3, abs=1e-6) and summary["strict_only_share"] == 0
    assert summary["credited_by"] == {"literal": 1, "substring": 0, "tool_result": 1, "none": 1}
    assert summary["by_domain"]["b"] == {"n": 2, "accuracy": 0.5, "strict_accuracy": 0.0}
    assert summary["by_hops"] == {"1": {"n": 3, "accuracy": 0.666667, "strict_accuracy": 0.333333}}
    assert "3 of the 995 questions" in summary["score_label"]
    assert task.summarize([])["official_only_share"] is None


# -- the hub ---------------------------------------------------------------------------------------


def test_a_hub_out_of_reach_is_one_line_with_the_file_to_give(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.HfApi.repo_info", _refuse)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *args, **kwargs: None)
    with pytest.raises(ConfigurationError) as caught:
        load()
    text = str(caught.value)
    assert "\n" not in text and "--data-file ToolHop.json" in text and "no route" in text
    assert "resolve/b439d7279af359fda46e8117ae4f0245b75f5c6b/data/ToolHop.json" in text


def _refuse(*args, **kwargs):
    raise OSError("no route\nand more lines")


def test_the_hub_is_asked_for_the_pinned_revision(monkeypatch, file, allowed):
    asked = {}

    def fetch(repo, path, *, repo_type, revision):
        asked.update(repo=repo, path=path, repo_type=repo_type, revision=revision)
        return file([make_row(i) for i in range(100)])

    class Info:
        sha = "c" * 40

    monkeypatch.setattr("huggingface_hub.hf_hub_download", fetch)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *args, **kwargs: None)
    monkeypatch.setattr("huggingface_hub.HfApi.repo_info", lambda self, repo, **kwargs: Info)
    monkeypatch.setenv(REVISION_VARIABLE, "main")
    task = load(limit=2)
    assert asked == {
        "repo": "bytedance-research/ToolHop", "path": "data/ToolHop.json", "repo_type": "dataset", "revision": "c" * 40,
    }  # fmt: skip
    assert task.config["revision"] == "c" * 40 and task.config["data_file"] == "data/ToolHop.json"
    assert any("not the published file" in line for line in task.notices)


# -- real rows -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real():
    os.environ[ALLOW] = "1"
    try:
        yield load(data_file=str(Path(os.environ["HOPTEAM_REAL_DATA"]) / "toolhop/toolhop_180.json"), split="all")
    finally:
        os.environ.pop(ALLOW, None)


@pytest.mark.real_data
@needs_real_data
def test_all_real_rows_load_with_legal_tools(real):
    assert len(real.examples) == 180 and real.config["schemas_repaired"] == 0
    assert sum(len(example.tools) for example in real.examples) == 733
    for example in real.examples:
        names = [tool.name for tool in example.tools]
        assert len(set(names)) == len(names) and all(len(name) <= 64 for name in names)
        assert all(tool.func.index == position for position, tool in enumerate(example.tools))
    assert sum("tool_names" in example.meta for example in real.examples) == 9
    unions = [
        part
        for example in real.examples
        for tool in example.tools
        for part in tool.parameters["properties"].values()
        if isinstance(part.get("type"), list)
    ]
    assert len(unions) == 12


@pytest.mark.real_data
@needs_real_data
def test_real_schemas_are_sent_verbatim(real):
    rows = json.loads((Path(os.environ["HOPTEAM_REAL_DATA"]) / "toolhop/toolhop_180.json").read_text("utf-8"))
    for row, example in zip(rows, real.examples, strict=True):
        for schema, tool in zip(row["tools"].values(), example.tools, strict=True):
            sent = tool.format_as_litellm_function_call()["function"]
            assert sent == {**schema, "name": tool.name} and tool.own_name == schema["name"]


@pytest.mark.real_data
@needs_real_data
def test_the_gold_calls_of_real_rows_give_their_recorded_results(real):
    examples = {example.id: example for example in real.examples}
    path = Path(os.environ["HOPTEAM_REAL_DATA"]) / "toolhop/gold_traces.jsonl"
    traces = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert len(traces) == 51
    for trace in traces:
        unused = list(examples[trace["id"]].tools)
        for call in trace["calls"]:
            tool = next(t for t in unused if t.own_name == call["name"])
            if sum(t.own_name == call["name"] for t in unused) > 1:
                unused.remove(tool)  # equal names are called in the order of the row
            result = tool.call_json(call["arguments"])
            assert result.kind == "ok"
            assert json.loads(result) == call["result"] or result == call["result"]


@pytest.mark.real_data
@needs_real_data
def test_the_eval_ids_of_a_part_of_the_file_are_counted():
    path = str(Path(os.environ["HOPTEAM_REAL_DATA"]) / "toolhop/toolhop_180.json")
    with pytest.raises(ConfigurationError, match="lacks 75 of the 100 ids"):
        load(data_file=path)


@pytest.mark.real_data
@needs_real_data
def test_a_constant_answer_scores_something_officially_and_nothing_strictly(real):
    scores = [real.score(example, "I could not find the answer.", None, "") for example in real.examples]
    assert 0.01 < sum(row["correct"] for row in scores) / len(scores) < 0.1
    assert not any(row["strict_correct"] for row in scores)


# -- a whole run -----------------------------------------------------------------------------------


def test_nothing_hidden_reaches_a_prompt_a_trace_or_a_prediction(file, allowed, tmp_path):
    rows = [make_row(i, answer=f"GOLDCANARY{i}") for i in range(3)]
    task = load(data_file=file(rows), split="all")
    folder = tmp_path / "run"
    with dspy.context(lm=build_lm("offline")):
        summary = evaluate(build_program("single"), task, folder=folder, threads=2)
    assert summary["n_scored"] == 3
    seen = {path.name: path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()}
    assert any("look" in text for name, text in seen.items() if name[0].isdigit())  # the traces hold the prompts
    assert not [name for name, text in seen.items() if CANARY in text and name != "summary.json"]
    hidden = {name for name, text in seen.items() if "GOLDCANARY" in text}
    assert hidden <= {"results.jsonl", "report.html"}  # where the row states its own gold, for people


def test_a_refused_run_asks_no_model_and_counts_as_wrong(file, monkeypatch):
    monkeypatch.delenv(ALLOW, raising=False)
    task = load(data_file=file([make_row(i) for i in range(3)]), split="all")

    def program(**inputs):
        raise AssertionError("no program may run")

    summary = evaluate(program, task, threads=1)
    assert summary["n_scored"] == 3 and summary["accuracy"] == 0 and summary["n_refused"] == 3
    assert all(row["error"]["kind"] == "refused" and ALLOW in row["error"]["message"] for row in summary["rows"])


def test_rows_without_a_gold_are_skipped_and_counted(file, allowed):
    task = load(data_file=file([make_row(1, answer=None), make_row(2)]), split="all")

    def program(**inputs):
        return {"answer": "2"}

    with dspy.context(lm=build_lm("offline")):
        summary = evaluate(program, task, threads=1)
    assert summary["n_skipped"] == 1 and summary["n_scored"] == 1 and summary["accuracy"] == 1
