"""The simulated optimizer's models: the rewriter knows what it is shown, the judge the truth with noise, no more."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from benchmarks.planted_world.engines import OptimizerEngine, read_request
from benchmarks.planted_world.judge import Judge
from benchmarks.planted_world.program import task_text
from benchmarks.planted_world.rewriter import Rewriter
from benchmarks.planted_world.texts import CAP, hint, instruction, rules_of
from benchmarks.planted_world.world import make_world
from optimize.methods.hivemind import parse_lessons, with_lessons


def rngs(n=200):
    return [random.Random(seed) for seed in range(n)]


# -- the rewriter --------------------------------------------------------------------------------------


def test_it_follows_a_hint_for_its_role_as_often_as_it_is_skilled():
    current, feedback = instruction("b", [1]), f"Wrong: {hint('a', 5)}.\nWrong: {hint('b', 7)}."

    def followed(skill):
        texts = [Rewriter(skill).rewrite(current, "b", feedback, rng) for rng in rngs()]
        return statistics.fmean(rules_of(text) == (1, 7) for text in texts)

    assert followed(1.0) == 1.0
    assert 0.4 < followed(0.5) < 0.7, "chance may add the same rule"
    assert followed(0.0) < 0.25


def test_without_a_hint_it_adds_or_removes_one_rule():
    for feedback in ("", f"Wrong: {hint('a', 5)}.", f"Wrong: {hint('b', 1)}."):  # nothing, another's, one it has
        for rng in rngs():
            rules = set(rules_of(Rewriter(1.0).rewrite(instruction("b", [1, 2]), "b", feedback, rng)))
            assert len(rules ^ {1, 2}) == 1 and rules
    assert {rules_of(Rewriter().rewrite(instruction("b", [4]), None, "", r)) for r in rngs()} >= {(0, 4), (4, 9)}


def test_it_keeps_to_three_rules_and_never_drops_what_it_just_added():
    for rng in rngs():
        rules = rules_of(Rewriter(1.0).rewrite(instruction("b", [1, 2, 3]), "b", hint("b", 9), rng))
        assert len(rules) == CAP and 9 in rules and set(rules) < {1, 2, 3, 9}


def test_lessons_say_what_to_change():
    seed = instruction("b", [1])
    text = seed
    for _ in range(4):
        for rng in rngs(30):
            lessons = parse_lessons(Rewriter(0.5).lessons(text, "b", hint("b", 7), "(none)", rng))
            if lessons:
                new = with_lessons(seed, [*parse_lessons(text.partition("runs:\n")[2]), *lessons][-6:])
                assert len(set(rules_of(new)) ^ set(rules_of(text))) in (1, 2)
        text = new
    rejected = f"- Follow rule [R07]\n- Leave out rule [no R01]\n- Follow rule [R{3:02d}]"
    for rng in rngs():
        said = Rewriter(1.0).lessons(seed, "b", hint("b", 7), rejected, rng)
        assert "[R07]" not in said and "[R03]" not in said and said, "nothing rejected is said again"


def test_bad_rewriters():
    current = instruction("b", [1, 2])
    rng = random.Random(0)
    assert rules_of(Rewriter(style="worse").rewrite(current, "b", "", rng)) == ()
    assert Rewriter(style="lazy").rewrite(current, "b", "", rng) == current
    assert "`" not in Rewriter(style="breaking").rewrite(current, "b", "", rng)
    world = make_world("AND", "chain2", 0)
    engine = OptimizerEngine(world, Rewriter(style="garbage"), Judge(world))
    assert engine.reply({"current_instruction": current}, ("new_instruction",)) is None


def test_chance_depends_on_what_is_shown_and_on_how_often():
    world = make_world("AND", "chain2", 0)

    def replies(current="x [R01]"):
        engine = OptimizerEngine(world, Rewriter(), Judge(world))
        return [engine.reply({"role": "a", "current_instruction": current}, ("new_instruction",)) for _ in range(6)]

    assert replies() == replies() != replies("x [R02]") and len({str(r) for r in replies()}) > 1


# -- the judge -----------------------------------------------------------------------------------------


def shown(world, number, output):
    return {"role": "a", "received": f"task: {task_text(number)}", "output": output}


def test_ratings_are_the_truth_plus_noise():
    world = make_world("AND", "chain3", 1)
    good, poor = (
        world.run({r: t.needed for r, t in world.roles.items()}, 4)["a"],
        world.run(dict.fromkeys("abc", ()), 4)["a"],
    )

    def seen(noise, note):
        return [Judge(world, noise).rate_output(shown(world, 4, note.text), rng, note.text) for rng in rngs(400)]

    assert set(seen(0.0, good)) == {1.0} and set(seen(0.0, poor)) == {0.0}
    assert statistics.fmean(seen(0.15, good)) > 0.9 > 0.1 > statistics.fmean(seen(0.15, poor))
    assert all(0 <= score <= 1 for score in seen(0.5, good))
    random_judge = seen(math.inf, good)
    assert abs(statistics.fmean(random_judge) - statistics.fmean(seen(math.inf, poor))) < 0.1
    assert Judge(world).rate_output(shown(world, 4, "what?"), random.Random(0), "what?") < 0.3


def test_comparisons_and_habits():
    world = make_world("TRAP", "chain3", 1)
    good = world.run({r: t.needed for r, t in world.roles.items()}, 4)["c"].text
    poor = world.run(dict.fromkeys("abc", ()), 4)["c"].text
    rng = random.Random(0)
    for noise in (0.0, 0.05):
        judge = Judge(world, noise)
        assert judge.compare(4, (good, poor), rng) == "A" and judge.compare(4, (poor, good), rng) == "B"
        assert judge.compare_answers(4, (good, poor), rng) == "A"
    assert Judge(world, 0.0).compare(4, (poor, poor), rng) == "tie"
    assert Judge(world, 0.0, "position").compare(4, (poor, poor), rng) == "A"
    assert Judge(world, 0.0, "length").compare(4, (poor, poor + " and so on" * 20), rng) == "B"
    assert Judge(world, 0.05, "constant").compare(4, (good, poor), rng) == "tie"


def test_listwise_scores_are_one_per_line_and_all_different():
    world = make_world("HANDOFF", "chain3", 0)
    notes = [world.run(world.start, n)["a"].text for n in (1, 2, 3)]
    fields = {
        **shown(world, 1, ""),
        "outputs": "\n\n".join(f"### {n}\n{t}" for n, t in enumerate([*notes, notes[0]], 1)),
    }
    scores = Judge(world, 0.0).rate_outputs(fields, random.Random(0)).splitlines()
    assert len(scores) == len(set(scores)) == 4
    new = world.roles["b"].special
    readers = "\n\n".join(f"### {n}\n{instruction('b', rules)}" for n, rules in enumerate([(1,), (new,)], 1))
    fields = {"receiver": "b", "message": notes[0], "candidate_instructions": readers}
    assert Judge(world, 0.0).rate_handoffs(fields, random.Random(0)).splitlines() == ["0.90", "0.05"]


def test_blame_hands_hints_on_to_those_they_are_about():
    world = make_world("AND", "star", 0)
    fields = {
        "outcome": f"Wrong: {hint('a', 3)}.",
        "criticism": f"from x: {hint('z', 8)}",
        "your_role": "m",
        "messages": "a: by=a\nb: by=b",
    }
    said = Judge(world).blame(fields, random.Random(0)).splitlines()
    assert said == ["blame a: a lacks [R03]", "blame a: z lacks [R08]", "blame b: z lacks [R08]"]
    assert Judge(world).blame({**fields, "outcome": "Wrong.", "criticism": "(none)"}, random.Random(0)) == "OK"
    assert Judge(world, math.inf).blame(fields, random.Random(0)) == "OK"


# -- requests ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_json", [False, True])
def test_requests_are_read_field_by_field(as_json):
    body = "[[ ## role ## ]]\nb\n\n[[ ## outputs ## ]]\n### 1\nx\n\n### 2\ny\n\n"
    tail = "Respond with the output field, starting with the field `[[ ## scores ## ]]`, and then ending with the "
    tail += "marker for `[[ ## completed ## ]]`."
    if as_json:
        tail = "Respond with a JSON object in the following order of fields: `scores`."
    assert read_request(body + tail) == ({"role": "b", "outputs": "### 1\nx\n\n### 2\ny"}, ("scores",), as_json)
