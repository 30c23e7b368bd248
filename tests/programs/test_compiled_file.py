"""Compiled files: what is written, what is refused, what is ignored, and that nothing is half loaded."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path

import dspy
import pytest

from programs import build_program, compiled_file
from programs.compiled_file import (
    CompiledFileError,
    describe_program,
    load_program,
    packaged_programs,
    program_name,
    save_program,
)
from tests.support.fake_team import FakeTeam, UserModule
from tests.support.flow_engine import FlowEngine

KEY = "sk-very-secret-key-0123456789"
URL = "http://127.0.0.1:8000/v1"


def lookup(name: str) -> str:
    """Look a name up."""
    return "SECRET TOOL SOURCE"


def compiled(**hyper):
    """A team as an optimizer leaves it: rewritten instructions, one demo, traces and a model."""
    team = FakeTeam(**hyper)
    for name, predictor in team.named_predictors():
        predictor.signature = predictor.signature.with_instructions(f"Better text for {name}: «größer».")
    demo = dspy.Example(question="Who?", tools=[dspy.Tool(lookup)], plan="look it up", augmented=True)
    team.planner.demos = [demo.with_inputs("question")]
    team.planner.traces = [{"secret": "trace"}]
    team.planner.train = [{"gold": "canary gold"}]
    return team


@pytest.fixture
def file(tmp_path):
    return save_program(
        compiled(), tmp_path / "deep" / "er" / "team.json", task="toolhop", method="gepa", seed=3, splits_hash="ab12",
        models={"planner": "openai/gpt-4o-mini"}, scores={"before": 0.4, "after": 0.55}, rollouts=600, usd=1.25,
    )  # fmt: skip


def edit(path: Path, change) -> Path:
    state = json.loads(path.read_text())
    change(state)
    path.write_text(json.dumps(state))
    return path


class TestWritten:
    def test_what_was_compiled_comes_back(self, file):
        team = load_program(file, FakeTeam())
        assert team.planner.signature.instructions == "Better text for planner: «größer»."
        assert team.writer.signature.instructions == "Better text for writer: «größer»."
        assert dict(team.planner.demos[0]) == {
            "question": "Who?", "tools": ["lookup"], "plan": "look it up", "augmented": True,
        }  # fmt: skip

    def test_the_header_says_what_it_is(self, file):
        header = describe_program(file)
        assert header["program"] == "tests.support.fake_team:FakeTeam" and header["format_version"] == 1
        assert (header["team_size"], header["rounds"], header["communication"]) == (4, 1, "freeform")
        assert header["tool_calling"] == "text" and header["decoding"] == {"temperature": 0.2, "top_p": 0.9}
        assert header["roles"]["writer"]["inputs"] == ["plan", "answer_format"]
        assert header["roles"]["writer"]["outputs"] == ["answer"]
        assert len(header["roles"]["writer"]["instructions_hash"]) == 16
        assert (header["task"], header["method"], header["seed"]) == ("toolhop", "gepa", 3)
        assert header["splits_hash"] == "ab12"
        assert header["models"] == {"planner": "openai/gpt-4o-mini"}
        assert header["scores"] == {"before": 0.4, "after": 0.55} and (header["rollouts"], header["usd"]) == (600, 1.25)
        assert header["packages"]["dspy"] == dspy.__version__ and "python" in header["packages"]

    def test_no_trace_no_training_row_no_tool_no_model(self, file):
        text = file.read_text()
        for forbidden in ("trace\": \"", "canary gold", "SECRET TOOL SOURCE", "Look a name up", "parameters"):
            assert forbidden not in text
        state = json.loads(text)
        for name in ("planner", "writer"):
            assert state[name]["lm"] is None and state[name]["traces"] == state[name]["train"] == []

    def test_stock_dspy_loads_it_too(self, file):
        team = FakeTeam()
        team.load(file)
        assert team.writer.signature.instructions == "Better text for writer: «größer»."

    def test_the_original_program_is_not_changed(self, tmp_path):
        team = compiled()
        save_program(team, tmp_path / "x.json")
        assert team.planner.traces and isinstance(team.planner.demos[0]["tools"][0], dspy.Tool)

    def test_equal_programs_give_equal_bytes(self, tmp_path):
        first, second = (save_program(compiled(), tmp_path / n, seed=1).read_bytes() for n in ("a.json", "b.json"))
        assert first == second

    def test_models_in_use_are_named(self, tmp_path):
        team = compiled()
        team.writer.lm = dspy.LM("openai/big")
        with dspy.context(lm=dspy.LM("openai/small")):
            header = describe_program(save_program(team, tmp_path / "x.json"))
        assert header["models"] == {"planner": "openai/small", "writer": "openai/big"}

    def test_odd_values_in_demos_become_plain_json(self, tmp_path):
        numpy = pytest.importorskip("numpy")
        team = FakeTeam()
        odd = [numpy.float64(0.5), 2**70, "\ud800", (1, 2), {3: b"x"}]
        team.planner.demos = [dspy.Example(plan={"b", "a"}, question=float("nan"), tools=odd)]
        path = save_program(team, tmp_path / "x.json")
        team.load(path)
        assert team.planner.demos[0]["plan"] == ["a", "b"] and team.planner.demos[0]["question"] is None
        assert team.planner.demos[0]["tools"] == [0.5, str(2**70), "?", [1, 2], {"3": "b'x'"}]


class TestAtomic:
    def test_a_failed_write_leaves_the_old_file(self, file, monkeypatch):
        before = file.read_bytes()

        def broken(*_):
            raise OSError("disk full")

        monkeypatch.setattr(compiled_file.os, "fsync", broken)
        with pytest.raises(OSError, match="disk full"):
            save_program(FakeTeam(), file)
        assert file.read_bytes() == before
        assert [p.name for p in file.parent.iterdir()] == [file.name]

    def test_it_replaces_and_is_readable_as_usual(self, file):
        save_program(FakeTeam(), file)
        assert load_program(file, FakeTeam()).writer.signature.instructions == "You are the writer."
        umask = os.umask(0)
        os.umask(umask)
        assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~umask


class TestDoesNotFit:
    def test_a_role_too_few_and_one_too_many(self, file, tmp_path):
        with pytest.raises(CompiledFileError, match=r"FakeTeam'.*team size 4.*missing in the file: checker") as error:
            load_program(file, FakeTeam(checked=True))
        assert error.value.missing == ("checker",) and error.value.extra == ()
        bigger = save_program(compiled(checked=True), tmp_path / "bigger.json")
        with pytest.raises(CompiledFileError, match="extra in the file: checker") as error:
            load_program(bigger, FakeTeam())
        assert error.value.extra == ("checker",)

    def test_another_program_names_both(self, file):
        with pytest.raises(CompiledFileError) as error:
            load_program(file, UserModule())
        text = str(error.value)
        assert "fake_team:FakeTeam'" in text and "tests.support.fake_team:UserModule" in text
        assert "missing in the file: answerer.predict" in text and "extra in the file: planner, writer" in text

    def test_a_file_of_one_team_into_another(self, tmp_path):
        path = save_program(build_program("centralized"), tmp_path / "c.json")
        with pytest.raises(CompiledFileError) as error:
            load_program(path, "sequential")
        text = str(error.value)
        assert "'centralized' (team size 4)" in text and "'sequential' (team size 4)" in text
        assert error.value.missing == ("planner",) and error.value.extra == ("manager", "reasoner")
        assert set(error.value.fields) == set()  # the roles that both have are the same ones

    def test_other_fields(self, file):
        team = FakeTeam(writer_fields="plan, style -> answer")
        with pytest.raises(CompiledFileError, match="in writer: file plan, answer_format, answer") as error:
            load_program(file, team)
        assert error.value.fields == {"writer": (["plan", "answer_format", "answer"], ["plan", "style", "answer"])}

    def test_nothing_is_half_loaded(self, file):
        for team in (FakeTeam(checked=True), FakeTeam(writer_fields="plan, style -> answer")):
            before = team.dump_state()
            with pytest.raises(CompiledFileError):
                load_program(file, team)
            assert team.dump_state() == before

    @pytest.mark.parametrize(
        "change",
        [
            lambda s: s["writer"].update(signature={"instructions": "x", "fields": []}),
            lambda s: s["writer"].update(signature={"fields": s["writer"]["signature"]["fields"]}),
            lambda s: s["writer"].pop("signature"),
            lambda s: s.update(writer="text"),
            lambda s: s["planner"].update(demos=["no demo"]),
            lambda s: s["planner"].update(demos=7),
            lambda s: s["metadata"]["hopteam"]["roles"].pop("writer"),
            lambda s: s["metadata"]["hopteam"]["roles"].update(writer=None),
            lambda s: s["planner"].update(fields={"plan": {"nonsense": 1}}),
            lambda s: s["planner"]["signature"].update(fields=5),
            lambda s: s["metadata"]["hopteam"].update(packages="none"),
            lambda s: s["metadata"]["hopteam"].update(program=["x"]),
            lambda s: s["metadata"]["hopteam"]["roles"]["writer"].update(inputs=True),
            lambda s: s["metadata"]["hopteam"]["roles"]["writer"].update(outputs=[{}]),
        ],
    )
    def test_damaged_states_are_one_kind_of_error_and_change_nothing(self, file, change):
        team = FakeTeam()
        before = team.dump_state()
        with pytest.raises(CompiledFileError):
            load_program(edit(file, change), team)
        assert team.dump_state() == before

    @pytest.mark.parametrize("part", ["hyper", "decoding", "packages", "models"])
    @pytest.mark.parametrize("value", [["x"], "x", 1.5, True])
    def test_a_header_of_another_form_is_refused_by_name(self, tmp_path, part, value):
        path = save_program(build_program("single"), tmp_path / "single.json")
        with pytest.raises(CompiledFileError, match=f"its header is malformed: {part}"):
            load_program(edit(path, lambda s: s["metadata"]["hopteam"].update({part: value})))

    @pytest.mark.parametrize("decoding", [{"temperature": "warm"}, {"temperature": 3}, {"top_p": True}, {"top_p": -1}])
    def test_decoding_that_no_model_takes_is_refused(self, tmp_path, decoding):
        path = save_program(build_program("single"), tmp_path / "single.json")
        with pytest.raises(CompiledFileError, match=r"malformed: decoding\."):
            load_program(edit(path, lambda s: s["metadata"]["hopteam"].update(decoding=decoding)))

    def test_demos_that_cannot_be_shown_are_refused_before_any_question(self, tmp_path):
        path = save_program(build_program("single"), tmp_path / "single.json")
        broken = [{"augmented": True, "question": [5], "answer": "a", "thought": "t"}]
        with pytest.raises(CompiledFileError, match="the demos of solver are malformed"):
            load_program(edit(path, lambda s: s["solver"].update(demos=broken)))

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "is empty"),
            (b"[" * 100_000, "nested too deeply"),
            (b"  \n", "is empty"),
            (b'{"planner": {', "cannot be read"),
            (b"\xff\xfe\x00", "cannot be read"),
            (b"method = 'gepa'", "a compiled program is a JSON file"),
            (b"[]", "no header"),
            (b'{"planner": {}}', "no header"),
            (b'{"planner": {}, "metadata": {"dependency_versions": {}}}', r"program\.load\(path\)"),
            (b'{"metadata": {"hopteam": {"program": "x"}}}', "no header"),
            (b'{"metadata": {"hopteam": {"program": "x", "roles": {}, "format_version": 99}}}', "99.*reads version 1"),
        ],
    )
    def test_files_that_are_no_compiled_program(self, tmp_path, content, message):
        path = tmp_path / "x.json"
        path.write_bytes(content)
        for use in (describe_program, load_program):
            with pytest.raises(CompiledFileError, match=message):
                use(path)

    def test_a_missing_file_says_what_is_packaged(self, tmp_path):
        with pytest.raises(CompiledFileError, match="no such file, and packaged are"):
            load_program(tmp_path / "none.json")
        with pytest.raises(CompiledFileError):
            load_program(tmp_path)

    def test_a_given_program_takes_no_settings(self, file):
        with pytest.raises(CompiledFileError, match="team_size"):
            load_program(file, FakeTeam(), team_size=8)


class TestSecrets:
    def test_neither_key_nor_endpoint_is_written(self, tmp_path):
        lm = dspy.LM("openai/local", api_base=URL, api_key=KEY, headers={"Authorization": f"Bearer {KEY}"})
        team = compiled()
        team.set_lm(lm)
        team.writer.update_config(api_base=URL, api_key=KEY)
        with dspy.context(lm=lm):
            text = save_program(team, tmp_path / "x.json").read_text()
        assert KEY not in text and "127.0.0.1" not in text and "8000" not in text and "Bearer" not in text
        assert json.loads(text)["metadata"]["hopteam"]["models"]["writer"] == "openai/local"

    def test_endpoints_in_the_header_facts_are_dropped_with_a_warning(self, tmp_path, caplog):
        extra = {"note": "kept", "server": {"api_base": URL, "api_key": KEY}}
        path = save_program(FakeTeam(), tmp_path / "x.json", extra=extra)
        assert describe_program(path)["extra"] == {"note": "kept", "server": {}}
        assert KEY not in path.read_text() and "extra.server.api_key" in caplog.text

    @pytest.mark.parametrize(
        ("change", "place"),
        [
            (lambda s: s["writer"].update(lm={"model": "openai/x", "api_base": URL}), "writer.lm.api_base"),
            (lambda s: s["writer"].update(lm={"model": "openai/x"}), "writer.lm"),
            (lambda s: s["writer"].update(config={"api_base": URL, "temperature": 0}), "writer.config.api_base"),
            (lambda s: s["writer"].update(api_base=URL), "writer.api_base"),
            (lambda s: s["writer"].update(forward="os.system", callbacks=[1]), "writer.forward"),
        ],
    )
    def test_a_planted_endpoint_is_ignored_and_the_message_says_how_to_give_one(self, file, caplog, change, place):
        team = load_program(edit(file, change), FakeTeam())
        assert place in caplog.text and "give the endpoint at run time" in caplog.text
        assert team.writer.lm is None and team.writer.config == {}
        assert "forward" not in team.writer.__dict__ and team.writer.callbacks == []
        engine = FlowEngine(["[[ ## plan ## ]]\np\n\n[[ ## answer ## ]]\na\n\n[[ ## completed ## ]]"])
        with dspy.context(lm=engine.lm, adapter=dspy.ChatAdapter()):
            assert team(question="q").answer == "a"
        assert not hasattr(engine.calls[-1].config, "api_base")

    def test_a_role_may_be_called_like_a_setting(self, tmp_path):
        program = UserModule()
        program.client = dspy.Predict("question -> headers")
        path = save_program(program, tmp_path / "x.json")
        assert load_program(path, program.deepcopy()).client.signature.instructions

    def test_a_local_model_is_said_to_need_its_endpoint(self, tmp_path, caplog):
        with dspy.context(lm=dspy.LM("openai/local", api_base=URL, api_key=KEY)):
            path = save_program(compiled(), tmp_path / "x.json")
        with dspy.context(lm=None):
            load_program(path, FakeTeam())
        assert "openai/local" in caplog.text and "--api-base" in caplog.text
        caplog.clear()
        with dspy.context(lm=dspy.LM("openai/local", api_base=URL)):
            load_program(path, FakeTeam())
        assert caplog.text == ""

    def test_models_given_at_run_time_survive_loading(self, file):
        team = FakeTeam()
        team.writer.lm = lm = dspy.LM("openai/big")
        assert load_program(file, team).writer.lm is lm


class TestWarnings:
    def test_version_skew_names_both_versions(self, file, caplog):
        def older(state):
            state["metadata"]["hopteam"]["packages"]["dspy"] = "3.1.0"

        load_program(edit(file, older), FakeTeam())
        assert "dspy 3.1.0" in caplog.text and f"dspy {dspy.__version__}" in caplog.text

    def test_a_patch_release_is_no_skew(self, file, caplog):
        minor = ".".join(dspy.__version__.split(".")[:2])
        load_program(edit(file, lambda s: s["metadata"]["hopteam"]["packages"].update(dspy=f"{minor}.99")), FakeTeam())
        assert caplog.text == ""

    def test_an_edited_instruction_is_used_and_said(self, file, caplog):
        path = edit(file, lambda s: s["writer"]["signature"].update(instructions="Mine."))
        assert load_program(path, FakeTeam()).writer.signature.instructions == "Mine."
        assert "instructions of writer were edited" in caplog.text

    def test_a_clean_load_is_silent(self, file, caplog):
        with caplog.at_level(logging.INFO):
            load_program(file, FakeTeam())
        assert caplog.text == ""


class TestFields:
    def test_the_output_contract_belongs_to_the_code_not_to_the_file(self, file):
        def reword(state):
            for field in state["writer"]["signature"]["fields"]:
                field["description"] = "anything you like"

        team = load_program(edit(file, reword), FakeTeam())
        assert all(f["description"] != "anything you like" for f in team.writer.signature.dump_state()["fields"])

    def test_roles_stay_distinguishable_after_loading(self, file):
        team = load_program(file, FakeTeam())
        assert team.writer.signature.output_fields["answer"].json_schema_extra["role"] == "writer"


class TestNames:
    def test_a_users_module_is_named_by_its_class_and_comes_back(self, tmp_path):
        program = UserModule()
        assert program_name(program) == "tests.support.fake_team:UserModule"
        inner = program.answerer.predict
        inner.signature = inner.signature.with_instructions("Mine.")
        assert program_name(FakeTeam()) == "tests.support.fake_team:FakeTeam"
        assert program_name(build_program("sequential")) == "sequential"
        path = save_program(program, tmp_path / "mine.json")
        assert load_program(path).answerer.predict.signature.instructions == "Mine."

    def test_settings_can_be_changed_where_agents_share_a_prompt(self, tmp_path):
        path = save_program(compiled(), tmp_path / "x.json")
        team = load_program(path, team_size=8)
        assert team.team_size == 8 and team.writer.signature.instructions.startswith("Better text")
        with pytest.raises(CompiledFileError, match="checker"):
            load_program(path, checked=True)
        with pytest.raises(CompiledFileError, match="cannot be built"):
            load_program(path, no_such_setting=1)

    def test_a_program_that_cannot_be_found_says_so(self, file):
        edit(file, lambda s: s["metadata"]["hopteam"].update(program="nowhere.at_all:Thing"))
        with pytest.raises(CompiledFileError, match="nowhere"):
            load_program(file)

    def test_packaged_programs_load_by_name(self, tmp_path, monkeypatch):
        monkeypatch.setattr(compiled_file, "PACKAGED", tmp_path / "compiled")
        save_program(compiled(), tmp_path / "compiled" / "toolhop" / "fake" / "gepa-0.json")
        assert packaged_programs() == ["toolhop/fake/gepa-0"]
        for name in ("toolhop/fake/gepa-0", "toolhop/fake/gepa-0.json", "compiled/toolhop/fake/gepa-0.json"):
            assert describe_program(name)["program"].endswith("FakeTeam")
        with pytest.raises(CompiledFileError, match="toolhop/fake/gepa-0"):
            describe_program("toolhop/fake/gepa-1")
        with pytest.raises(CompiledFileError):
            describe_program("../secrets")


def test_a_file_of_format_1_still_loads():
    path = Path(__file__).parent / "fixtures" / "format_1.json"
    team = load_program(path)
    assert team.team_size == 2 and team.decoding == {"temperature": 0.2, "top_p": 0.9}
    assert team.planner.signature.instructions == "You are the planner. Work carefully, one step at a time."
    assert team.planner.demos[0]["tools"] == ["find_author"]
    assert describe_program(path)["scores"] == {"before": 0.5, "after": 0.6}


def test_a_team_saved_in_format_1_still_loads_and_runs():
    from tests.support.flow_script import QUESTION, TeamScript, lookup

    team = load_program(Path(__file__).parent / "fixtures" / "centralized_format_1.json")
    assert (team.name, team.team_size, team.communication) == ("centralized", 4, "semi_structured")
    engine = FlowEngine(TeamScript("semi_structured"))
    with dspy.context(lm=engine.lm):
        assert team(question=QUESTION, tools=[lookup]).answer.startswith("1815")
    assert all(f"You are the {call.role}." in call.system for call in engine.calls)
    assert "find_author" in engine.of("tool_caller")[0].demos and "find_author" not in engine.of("manager")[0].demos
