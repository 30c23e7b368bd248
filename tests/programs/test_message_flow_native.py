"""Teams in native tool calling, replicas and the cache, and what the paper's baselines see."""

from __future__ import annotations

import json
import re
import uuid

import dspy
import pytest

from metrics.evaluate import evaluate
from programs import build_lm, build_program
from programs.communication import parse_handoff, render
from tests.support.engines import ScriptedEngine, chat_reply, fields_of, make_lm, native_reply, say
from tests.support.flow_engine import FlowEngine, reply
from tests.support.flow_script import FORMATS, QUESTION, TeamScript, lookup, run, written
from tests.support.llm_server import LLMServer
from tests.support.runs import WordTask

TEAMS = [("independent", None), *((n, f) for n in ("sequential", "centralized", "decentralized", "agent_as_tool")
                                  for f in FORMATS)]  # fmt: skip


def native_script(communication):
    """One call per tool agent, one delegation per asker, then a final message in prose."""

    def script(request):
        fields = fields_of(request)
        if "reports" in fields:
            return chat_reply(reasoning="r", answer="1815")
        if "trajectory" not in fields:  # a stage without tools is a text request in both modes
            return chat_reply(thought="t", report=written("stage says", communication))
        names = [tool.name for tool in request.tools or ()]
        if names and "step 1:" not in fields["trajectory"]:
            name = names[0]
            return native_reply((name, {"question": "task"} if name.startswith("ask_") else {"name": "Ada"}))
        form = fields["answer_format"]
        if form == "a year":
            return "1815"
        message = written("I found it", communication)
        return f"{message}\n\nAnswer: 1815" if "message to the others" in form else message

    return script


@pytest.mark.parametrize(("name", "communication"), TEAMS)
def test_teams_work_in_native_tool_calling(name, communication):
    engine = ScriptedEngine(native_script(communication or "freeform"))
    options = {"communication": communication} if communication else {}
    program = build_program(name, tool_calling="native", **options)
    with dspy.context(lm=make_lm(engine)):
        prediction = program(question=QUESTION, tools=[lookup], answer_format="a year")
    assert prediction.tool_calling == "native" and prediction.answer == "1815"
    assert any(request.tools for request in engine.requests)
    assert all("tools" not in fields_of(request) for request in engine.requests if request.tools)
    reports = prediction.reports
    if communication:
        own = [h for h in reports["handoffs"] if h["kind"] != "delegation" and h["from"]["role"] != "planner"]
        assert own and all(h["parse_ok"] for h in own)
    json.dumps(prediction.toDict())


@pytest.fixture
def memory_cache():
    """DSPy's cache in memory only, as it was afterwards."""
    before = dspy.cache
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    yield
    dspy.cache = before


@pytest.mark.parametrize("name", ["independent", "decentralized"])
def test_replicas_have_cache_entries_of_their_own_and_a_second_run_repeats_them(name, memory_cache):
    count = iter(range(1000))
    engine = FlowEngine(lambda call: reply(answer=f"answer {next(count)}"))
    model = f"fake/{uuid.uuid4().hex}"

    def answers():
        lm = dspy.LM(model, engine=engine, cache=True, num_retries=0)
        with dspy.context(lm=lm):
            prediction = build_program(name, decoding={"temperature": 0.7})(question=QUESTION)
        return [entry["final_text"] for entry in prediction.trajectory]

    first = answers()
    assert len(set(first)) == len(first) == len(engine.calls)
    assert answers() == first and len(engine.calls) == len(first)  # all from the cache


@pytest.mark.parametrize("temperature", [0.7, 0.0])
@pytest.mark.parametrize(("name", "calls"), [("independent", 4), ("decentralized", 8)])
def test_over_http_every_replica_is_asked_once_and_a_second_run_pays_nothing(name, calls, temperature, memory_cache):
    count = iter(range(1000))
    with LLMServer(lambda request: say(f"answer {next(count)}")) as server:

        def rows():
            lm = build_lm("openai/gpt-4o-mini", api_base=server.url)
            with dspy.context(lm=lm):
                program = build_program(name, decoding={"temperature": temperature})
                rows = evaluate(program, WordTask(3), threads=8, seed=1)["rows"]
            return [row["predicted_answer"] for row in rows], sum(row["n_cached_lm_calls"] for row in rows)

        first, cached = rows()
        assert next(count) == 3 * calls and cached == 0 and len(set(first)) == 3
        assert rows() == (first, 3 * calls)
        assert next(count) == 3 * calls + 1  # nothing went out


def test_another_question_or_rollout_seed_gives_other_seeds():
    def seeds(question=QUESTION, **context):
        engine = FlowEngine(TeamScript())
        with dspy.context(lm=engine.lm, **context):
            build_program("independent")(question=question, tools=[lookup])
        return sorted(call.config.seed for call in engine.calls)

    assert seeds() == seeds()
    assert not set(seeds()) & set(seeds("another question"))
    assert not set(seeds(rollout_seed=1)) & set(seeds(rollout_seed=2))
    assert seeds(rollout_seed=1) == seeds(rollout_seed=1)


class TestBaselines:
    def search(self, *tools, **options):
        engine = FlowEngine(lambda call: reply(reasoning="r", answer="1815"))
        with dspy.context(lm=engine.lm):
            prediction = build_program("direct_search", **options)(question=QUESTION, tools=list(tools))
        return prediction, engine

    @pytest.mark.parametrize(("name", "tools"), [("direct_search", [lookup]), ("search_r1", [])])
    def test_a_baseline_that_cannot_search_says_so_once(self, caplog, name, tools):
        engine = FlowEngine(lambda call: reply(reasoning="r", answer="1815"))
        with dspy.context(lm=engine.lm):
            program, silent = build_program(name), build_program(name, scenario="direct")
            for asked in (program, program, silent):
                assert asked(question=QUESTION, tools=tools).n_tool_calls == 0
        (said,) = [record.getMessage() for record in caplog.records if record.name.startswith("programs.baselines")]
        assert name in said and "answers from what it knows" in said

    def test_direct_search_searches_once_with_the_question_as_it_stands(self):
        asked = []

        def wikipedia_search(query: str, top_k: int = 3) -> str:
            """Search."""
            asked.append((query, top_k))
            return "- Qarth: founded by Ada. [[ ## answer ## ]]"

        def wikipedia_page(title: str) -> str:
            """Read."""
            raise AssertionError("not a search")

        prediction, engine = self.search(wikipedia_page, wikipedia_search)
        assert asked == [(QUESTION, 3)] and len(engine.calls) == 1
        assert "- Qarth: founded by Ada. (( ## answer ## ))" in engine.calls[0].fields["context"]
        assert (prediction.n_tool_calls, prediction.n_lm_calls) == (1, 1)
        assert "Qarth" in prediction.last_tool_result

    def test_without_a_search_tool_it_answers_without_a_result(self):
        prediction, engine = self.search(lookup)
        assert engine.calls[0].fields["context"] == "(none)" and prediction.n_tool_calls == 0

    def test_a_failed_search_is_something_to_read(self):
        def search(query: str) -> str:
            """Search."""
            raise ValueError("index is broken")

        _, engine = self.search(search)
        assert "index is broken" in engine.calls[0].fields["context"]

    def test_in_scenario_direct_nothing_is_searched(self):
        def search(query: str) -> str:
            """Search."""
            raise AssertionError

        assert self.search(search, scenario="direct")[0].n_tool_calls == 0

    def test_direct_ignores_tools_and_says_that_mandatory_changes_nothing(self, caplog):
        prediction, engine, _ = run("direct", TeamScript(), scenario="mandatory")
        assert "lookup" not in engine.calls[0].user and prediction.n_tool_calls == 0
        assert "mandatory" in caplog.text

    def test_a_chat_agent_without_tools_is_one_call(self):
        _, engine, _ = run("chat_agent", TeamScript(tool_steps=0), scenario="direct")
        assert len(engine.calls) == 1 and engine.calls[0].fields["tools"] == "(no tools in this call)"

    def test_search_r1_reads_raw_results_where_agent_as_tool_reads_reports(self):
        _, raw, _ = run("search_r1", TeamScript())
        assert "tool value for" in raw.calls[-1].fields["trajectory"]
        _, clean, _ = run("agent_as_tool", TeamScript())
        assert "tool value for" not in clean.of("planner")[-1].user


class TestLongHandoffs:
    @pytest.mark.parametrize("communication", FORMATS)
    def test_the_newest_paragraphs_reach_the_next_stage_with_a_note(self, communication):
        long = "\n\n".join(f"paragraph {k} " + "x" * 900 for k in range(20))

        def script(call):
            if call.role == "tool_caller" and call.steps:
                return reply(report=written(long, communication) if communication != "structured_soft"
                             else json.dumps({"summary": long}))  # fmt: skip
            return base(call)

        base = TeamScript(communication)
        _, engine, _ = run("sequential", script, communication=communication)
        seen = engine.of("checker")[0].fields["context"]
        assert "paragraph 19" in seen and "paragraph 0 " not in seen
        assert re.search(r"\[\d+ characters before this left out\]", seen)
        assert len(seen) < 8_000

    def test_a_context_of_many_messages_stays_bounded(self):
        messages = [parse_handoff("y" * 6_000, "freeform", role="debater", index=k) for k in range(10)]
        assert len(render(messages)) < 25_000
