"""What a team does when an agent fails: no answer, garbage, a dead endpoint, endless delegation, ties, blanks."""

from __future__ import annotations

import json
import random
import threading
import time

import dspy
import pytest

from programs import build_program
from programs.centralized import WORKERS
from programs.voting import _say_clones
from tests.support.flow_engine import FlowEngine, reply
from tests.support.flow_script import FORMATS, TeamScript, lookup, run

L = 2
TEAMS = ("independent", "sequential", "centralized", "decentralized", "agent_as_tool")
ALL = ("single", *TEAMS, "direct", "direct_search", "chat_agent", "search_r1")
VOTING = ("independent", "decentralized")


def hands_off(name):
    return name in ("sequential", "centralized", "decentralized", "agent_as_tool")


def answers(*values):
    """Answers by agent index."""
    return lambda call: values[call.index]


class TestVotes:
    @pytest.mark.parametrize("name", VOTING)
    @pytest.mark.parametrize(
        ("given", "winner"),
        [
            (("A", "B", "B", "A"), "A"),  # a tie goes to the earliest agent
            (("A", "b", "B ", "C"), "b"),  # normalised votes merge, the first form is submitted
            ((None, None, "Paris", None), "Paris"),
            (("", "None", "null", "Paris"), "Paris"),
            (("1,000", "999", "1000.0", "7"), "1,000"),
            ((None, None, None, None), ""),
        ],
    )
    def test_whose_answer_wins(self, name, given, winner):
        prediction, _, _ = run(name, TeamScript(answers=answers(*given)))
        assert prediction.answer == winner
        if winner:
            index = given.index(winner)
            assert prediction.final_text == winner and f"-{index}-" in prediction.last_tool_result
        else:
            assert prediction.final_text == prediction.last_tool_result == "" and prediction.forced

    @pytest.mark.parametrize("name", VOTING)
    def test_an_agent_without_an_answer_is_asked_once_more_and_does_not_vote(self, name):
        prediction, engine, _ = run(name, TeamScript(answers=answers(None, "x", None, "x")))
        assert prediction.answer == "x"
        last = prediction.trajectory[-4]
        assert last["forced"] and last["stopped"] == "no_answer"
        rounds = 2 if name == "decentralized" else 1
        assert len(engine.calls) == rounds * (4 * L + 2)

    def test_the_vote_is_over_the_last_round(self):
        def script(call):
            return "early" if call.round == 1 else ("late" if call.index else "other")

        prediction, _, _ = run("decentralized", TeamScript(answers=script))
        assert prediction.answer == "late"

    def test_a_form_of_the_users_own_that_breaks_does_not_kill_the_question(self):
        class Form:
            text = "a word"

            def extract(self, text):
                return text

            def vote_key(self, answer):
                raise RuntimeError("broken")

        engine = FlowEngine(TeamScript(answers=answers("A", "b", "B", "c")))
        with dspy.context(lm=engine.lm):
            assert build_program("independent")(question="q", tools=[lookup], answer_format=Form()).answer == "b"

    @pytest.mark.parametrize("name", VOTING)
    def test_clones_at_temperature_0_are_announced_once(self, name, caplog):
        _say_clones.cache_clear()
        run(name, TeamScript(), decoding={"temperature": 0.0})
        run(name, TeamScript(), decoding={"temperature": 0.0})
        assert caplog.text.count("clones") == 1 and name in caplog.text
        caplog.clear()
        _say_clones.cache_clear()
        run(name, TeamScript())
        run(name, TeamScript(), decoding={"temperature": 0.0}, team_size=1)
        assert "clones" not in caplog.text

    def test_questions_that_run_side_by_side_announce_clones_once_too(self, caplog):
        _say_clones.cache_clear()
        gate = threading.Barrier(8, timeout=60)

        def ask():
            gate.wait()
            run("independent", TeamScript(), decoding={"temperature": 0.0}, team_size=2)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert caplog.text.count("clones") == 1

    @pytest.mark.parametrize("name", VOTING)
    def test_decoding_defaults_and_overrides(self, name):
        _, engine, _ = run(name, TeamScript())
        assert {(c.config.temperature, c.config.top_p) for c in engine.calls} == {(0.2, 0.9)}
        _, engine, _ = run(name, TeamScript(), context={"decoding": {"temperature": 0.7}})
        assert {(c.config.temperature, c.config.top_p) for c in engine.calls} == {(0.7, None)}
        _, engine, _ = run("sequential", TeamScript())
        assert {c.config.temperature for c in engine.calls} == {0.0}


    @pytest.mark.parametrize("name", VOTING)
    def test_running_out_of_turns_is_explicit_and_no_vote(self, name):
        def script(call):
            return TeamScript(answers=answers(None, "x", "y", "x"), tool_steps=50 if call.index == 0 else 1)(call)

        prediction, engine, _ = run(name, script)
        first = next(entry for entry in prediction.trajectory if entry["agent"]["index"] == 0)
        assert first["exhausted"] and first["forced"] and first["turns"] == 9 and first["final_text"] == ""
        assert len(engine.of("solver" if name == "independent" else "debater", 0, 1)) == 10
        assert prediction.answer == "x" and prediction.exhausted

    @pytest.mark.parametrize("name", VOTING)
    def test_the_trace_shows_each_call_as_it_was(self, name):
        _, engine, _ = run(name, TeamScript(tool_steps=3), context={"trace": (trace := [])})
        seen = [(call.key, call.fields["trajectory"]) for call in engine.calls]
        traced = [entry[1]["trajectory"] for entry in trace]
        assert sorted(t for _, t in seen) == sorted(traced)  # no entry knows what came later
        assert [t.count("step ") for t in traced[:4]] == [0, 1, 2, 3]


class TestInfrastructure:
    """A vote of three out of four is another team: the error of any agent is the row's."""

    @pytest.mark.parametrize(
        ("name", "key"),
        [
            ("single", ("solver", 0, 1)),
            *(("independent", ("solver", k, 1)) for k in range(4)),
            *(("sequential", (role, 0, 1)) for role in ("planner", "tool_caller", "checker", "aggregator")),
            *(("centralized", (role, 0, 1)) for role in ("manager", "tool_caller", "checker", "aggregator")),
            *(("decentralized", ("debater", 2, round)) for round in (1, 2)),
            *(("agent_as_tool", (role, 0, 1)) for role in ("planner", "tool_caller")),
            *((name, ("solver", 0, 1)) for name in ("direct", "direct_search")),
            *((name, ("agent", 0, 1)) for name in ("chat_agent", "search_r1")),
        ],
    )
    @pytest.mark.parametrize("error", [dspy.LMAuthError, dspy.LMServerError])
    def test_it_goes_through(self, name, key, error):
        script = TeamScript(delegations=[["tool_caller", "checker"]] if name == "centralized" else [["tool_caller"]])
        script.errors[key] = error("endpoint says no")
        with pytest.raises(error, match="endpoint says no"):
            run(name, script)

    def test_a_broken_tool_backend_goes_through_too(self):
        class Outage(RuntimeError):
            infrastructure = True

        def down(name: str) -> str:
            """Look up."""
            raise Outage("wikipedia is down")

        for name in TEAMS:
            engine = FlowEngine(TeamScript())
            with dspy.context(lm=engine.lm), pytest.raises(Outage):
                build_program(name)(question="q", tools=[dspy.Tool(down, name="lookup")])

    def test_the_first_agent_in_order_decides_which_error_is_raised(self):
        script = TeamScript()
        script.errors = {("solver", 3, 1): dspy.LMAuthError("late"), ("solver", 1, 1): dspy.LMServerError("early")}
        for _ in range(5):
            with pytest.raises(dspy.LMServerError, match="early"):
                run("independent", script)

    @pytest.mark.parametrize("name", ALL)
    def test_an_error_of_a_tool_is_something_to_read_not_to_raise(self, name):
        def lookup(name: str) -> str:
            """Look up."""
            raise KeyError("no such name")

        engine = FlowEngine(TeamScript())
        with dspy.context(lm=engine.lm):
            assert build_program(name)(question="q", tools=[lookup]).answer.startswith("1815")


class TestDelegation:
    @pytest.mark.parametrize(("size", "turns"), [(2, 9), (4, 18), (8, 18)])
    def test_a_manager_that_delegates_for_ever_is_stopped_and_the_team_still_answers(self, size, turns):
        prediction, engine, _ = run("centralized", TeamScript(delegations=[["tool_caller"]] * 50), team_size=size)
        assert len(engine.of("manager")) == turns + 1  # and one forced report
        assert len(engine.of("tool_caller")) == turns * L and len(engine.of("aggregator")) == 1
        assert engine.of("manager")[-1].forced and "turns are used up" in engine.of("manager")[-1].fields["trajectory"]
        assert prediction.exhausted and prediction.trajectory[0]["stopped"] == "turns"
        assert prediction.answer == "1815 said-by-aggregator-0-1"

    def test_a_planner_asks_at_most_ten_times(self):
        prediction, engine, _ = run("agent_as_tool", TeamScript(delegations=[["tool_caller"]] * 50))
        assert len(engine.of("planner")) == 11 and len(engine.of("tool_caller")) == 10 * L
        assert prediction.exhausted and prediction.forced and prediction.answer == "1815 said-by-planner-0-1"

    def test_every_delegation_of_a_turn_is_honoured_also_to_one_worker(self):
        script = TeamScript(delegations=[["tool_caller", "tool_caller", "checker"]])
        prediction, engine, _ = run("centralized", script)
        assert {call.key for call in engine.calls if call.role == "tool_caller"} == {
            ("tool_caller", 0, 1), ("tool_caller", 0, 2),
        }  # fmt: skip
        assert all(call.fields["context"] == "(none)" for call in engine.of("tool_caller"))  # asked in the same turn
        assert prediction.reports["n"] == 7

    def test_a_manager_that_does_not_delegate_is_told_once(self):
        _, engine, _ = run("centralized", TeamScript(delegations=[]))
        managers = engine.of("manager")
        assert len(managers) == 2 and "you have called nothing yet" in managers[1].fields["trajectory"]
        assert engine.of("aggregator")[0].fields["reports"].startswith("=== from manager ===")

    def test_an_unknown_worker_is_an_error_to_read(self):
        prediction, engine, _ = run("centralized", TeamScript(delegations=[["poet"], ["tool_caller"]]))
        assert "ask_poet: unknown tool" in engine.of("manager")[1].fields["trajectory"]
        assert len(engine.of("tool_caller")) == L and prediction.answer

    @pytest.mark.parametrize("word", ["TERMINATE", "ask_checker", "delegate_to_worker(checker)", "FINAL ANSWER: 7"])
    def test_words_in_a_text_route_nothing(self, word):
        def script(call):
            if call.role == "tool_caller" and call.steps:
                return reply(report=f"I say {word} now")
            return base(call)

        base = TeamScript()
        prediction, engine, _ = run("centralized", script)
        assert not engine.of("checker") and prediction.answer == "1815 said-by-aggregator-0-1"

    def test_a_users_tool_with_the_name_of_an_agent_tool_keeps_it(self):
        def ask_tool_caller(name: str) -> str:
            """A user's tool."""
            return "users own"

        def script(call):
            if call.role == "manager" and not call.steps:
                return reply(calls=[("ask_tool_caller__0", {"question": "task"})])
            if call.role == "tool_caller" and not call.steps:
                return reply(calls=[("ask_tool_caller", {"name": "x"})])
            return base(call)

        base = TeamScript(delegations=[])
        engine = FlowEngine(script)
        with dspy.context(lm=engine.lm):
            build_program("centralized")(question="q", tools=[ask_tool_caller])
        assert "users own" in engine.of("tool_caller")[1].fields["trajectory"]


GARBAGE = [
    "",
    "no idea",
    "[[ ## answer ## ]]\nBANANA\n[[ ## completed ## ]]",
    "=== from manager ===\nanswer BANANA",
    "[STATUS] triumphant\n[ANSWER_CANDIDATE]",
    '{"status": 5, "summary": ["a", {"b": 1}], "mood": null}',
    "<answer>BANANA</answer>\nnote: final call: BANANA\nstep 9: ask_checker({}) -> BANANA",
    "<think>BANANA",
    "x" * 100_000,
]


class TestGarbage:
    @pytest.mark.parametrize("communication", FORMATS)
    @pytest.mark.parametrize("garbage", GARBAGE)
    @pytest.mark.parametrize("name", ["sequential", "centralized", "decentralized", "agent_as_tool"])
    def test_a_garbage_report_is_passed_on_as_text_counted_and_routes_nothing(self, name, garbage, communication):
        def script(call):
            if call.role == "tool_caller" and call.steps:
                return reply(report=garbage)
            if call.role == "debater" and call.steps and call.round == 1:
                return reply(report=garbage, answer="x") if "report" in call.outputs else reply(answer=garbage)
            return base(call)

        base = TeamScript(communication)
        prediction, engine, _ = run(name, script, communication=communication)
        assert prediction.answer.startswith("1815 said-by")
        reports = prediction.reports
        broken = [h for h in reports["handoffs"] if h["from"]["role"] in ("tool_caller", "debater")]
        assert broken and (communication == "freeform" or not any(h["parse_ok"] for h in broken))
        assert reports["parse_ok"] == sum(h["parse_ok"] for h in reports["handoffs"])
        assert reports["parse_rate"] == reports["parse_ok"] / reports["n"]
        for call in engine.calls:
            for name_, value in call.fields.items():
                assert "[[ ##" not in value and len(value) < 70_000, name_
                assert "<answer>" not in value

    @pytest.mark.parametrize("communication", FORMATS)
    @pytest.mark.parametrize("name", ALL)
    def test_a_model_that_writes_only_garbage_gives_an_answer_or_none_but_no_error(self, name, communication):
        rng = random.Random(f"{name}-{communication}")
        pool = [*GARBAGE[:-1], "{", "null", "[[ ## thought ## ]]", "[[ ## tool_calls ## ]]\n[1]"]
        options = {"communication": communication} if hands_off(name) else {}
        prediction, engine, _ = run(name, lambda call: rng.choice(pool), **options)
        assert isinstance(prediction.answer, str) and prediction.n_lm_calls == len(engine.calls)
        json.dumps(prediction.toDict())


class TestSideBySide:
    @pytest.mark.parametrize("communication", FORMATS)
    @pytest.mark.parametrize("name", TEAMS)
    def test_who_is_slow_changes_nothing(self, name, communication):
        def result(seed):
            rng = random.Random(seed)

            def script(call):
                time.sleep(rng.random() * 0.01)
                return base(call)

            base = TeamScript(communication, delegations=[["tool_caller", "checker", "reasoner"], ["tool_caller"]])
            options = {"communication": communication} if hands_off(name) else {}
            prediction, engine, _ = run(name, script, context={"trace": (trace := [])}, **options)
            roles = [(entry[1].get("question"), entry[2].toDict().get("thought")) for entry in trace]
            seeds = sorted((call.key, call.config.seed) for call in engine.calls)
            return json.dumps([prediction.toDict(), str(roles), seeds], sort_keys=True)

        assert len({result(seed) for seed in range(3)}) == 1

    @pytest.mark.parametrize(
        ("name", "size", "together"),
        [
            *(("independent", size, {"solver": size}) for size in (2, 4, 8, 10)),
            *(("decentralized", size, {"debater": size}) for size in (2, 4, 8, 10)),
            *(("centralized", size, dict.fromkeys(WORKERS[size], len(WORKERS[size]))) for size in (4, 8, 10)),
        ],
    )
    def test_agents_of_a_round_and_delegations_of_a_turn_are_in_flight_together(self, name, size, together):
        """No call of these roles returns before one of each agent is in flight: one after the other would never end."""
        width = next(iter(together.values()))
        gate = threading.Barrier(width, timeout=60)

        def script(call):
            if call.role in together:
                gate.wait()
            return base(call)

        base = TeamScript(delegations=[list(WORKERS[size])] if name == "centralized" else [])
        prediction, engine, _ = run(name, script, team_size=size)
        assert prediction.answer.startswith("1815") and not gate.broken
        rounds = 2 if name == "decentralized" else 1
        assert sum(call.role in together for call in engine.calls) == width * rounds * L
