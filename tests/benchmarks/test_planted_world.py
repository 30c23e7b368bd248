"""The planted world: what is planted is what a team is worth, and each landscape isolates what it is said to."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.planted_world.engines import TaskEngine
from benchmarks.planted_world.program import PlantedMetric, as_prediction, make_rows, task_text
from benchmarks.planted_world.texts import CAP, RULES, Note, hint, hints, instruction, note_in, role_in, rules_of
from benchmarks.planted_world.topology import role_of, topology
from benchmarks.planted_world.world import LANDSCAPES, make_world
from metrics.errors import ConfigurationError

SHAPES = {"WEAKLINK": "star", "REDUNDANT": "diamond"}
SEEDS = range(6)


def world_of(landscape, shape=None, seed=0, **options):
    return make_world(landscape, shape or SHAPES.get(landscape, "chain3"), seed, **options)


def solved(world):
    return {role: world.best_rules(role) for role in world.roles}


# -- texts ---------------------------------------------------------------------------------------------


def test_an_instruction_says_its_rules_and_whose_it_is():
    text = instruction("b", [7, 3])
    assert rules_of(text) == (3, 7) and role_in(text) == "b" and "`b`" in text
    assert instruction("b", [3, 7]) == text, "equal rules, equal text"
    assert rules_of("Do [R07], then [R01]. [no R07] Also [R02] [R09] [R05]") == (1, 2, 9), "three at a time"
    assert rules_of(instruction("b", [])) == ()


def test_hints_are_read_back():
    text = f"Wrong: {hint('a', 3)}.\nfrom b: {hint('solver', 12)}"
    assert hints(text) == [("a", 3), ("solver", 12)] and hints("a lacks nothing [R03]") == []


@given(
    st.sampled_from(["a", "solver::2"]),
    st.sampled_from("10-u"),
    st.booleans(),
    st.sampled_from("AB"),
    st.integers(10, 99),
    st.sampled_from(["", "polished", "AB", "s7"]),
)
def test_notes_are_read_back(by, ok, read, fmt, val, style):
    note = Note(by, ok, read, fmt, val, style)
    assert note_in(f"b: {note.text}\nmore") == note


# -- shapes --------------------------------------------------------------------------------------------


def test_shapes():
    assert topology("chain4").members == tuple("abcd") and topology("chain4").parallel == ()
    assert topology("star").sink == "m" and topology("star").parallel == ("a", "b", "c")
    desk = topology("desk")
    assert len(desk.members) == 7 and desk.sink == "t" and len(desk.edges) == 12 and len(desk.parallel) == 6
    replicas = topology("replicas")
    assert replicas.roles == ("solver", "judge") and replicas.role_graph().counts["solver"] == 3
    for name in ("chain1", "diamond", "skip", "star", "desk", "replicas"):
        shape = topology(name)
        place = {m: n for n, m in enumerate(shape.members)}
        assert all(place[a] < place[b] for a, b in shape.edges), "everyone comes after those it reads"
    with pytest.raises(ConfigurationError, match="unknown topology"):
        topology("ring")


# -- landscapes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("landscape", LANDSCAPES)
def test_equal_arguments_give_one_world_and_the_optimum_is_the_best(landscape):
    world = world_of(landscape)
    assert world == world_of(landscape) and world != world_of(landscape, seed=1)
    assert all(len(t.start) <= CAP and len(set(t.needed)) == 2 for t in world.roles.values())
    assert all(t.harmful not in (*t.needed, t.special, *t.start) for t in world.roles.values())
    start = world.true_score(world.start)
    if landscape in ("FLAT", "NOISE"):
        assert start == world.optimum == 0.5
        return
    assert 0 <= start < world.optimum <= 1
    if landscape != "STYLE":
        assert world.optimum == world.true_score(solved(world)) == 1.0
        assert all(len(rules) <= CAP for rules in solved(world).values()), "the optimum can be written down"


@pytest.mark.parametrize("shape", ["chain2", "chain6", "star", "diamond", "desk", "replicas", "skip"])
def test_every_shape_can_be_solved(shape):
    for landscape in ("AND", "HANDOFF", "TRAP"):
        for seed in SEEDS:
            world = world_of(landscape, shape, seed)
            assert world.true_score(solved(world)) == 1.0 > world.true_score(world.start)


def test_handoff_is_a_strict_local_optimum_for_every_change_of_one_role():
    for seed in (0, 1):
        world = world_of("HANDOFF", "chain4", seed)
        plateau = {role: table.needed for role, table in world.roles.items()}  # all that single roles can do
        height = world.true_score(plateau)
        for role in world.roles:
            for size in range(CAP + 1):
                for rules in itertools.combinations(range(RULES), size):
                    assert world.true_score({**plateau, role: rules}) <= height
        assert height == 1 - sum(row.new_format for row in world.rows) / 64 < 0.8


def test_new_formats_and_second_rules_are_asked_for_on_independent_rows():
    """On the same rows they would make a double plateau, on which even an oracle finds nothing."""
    for seed in SEEDS:
        rows = world_of("HANDOFF", "chain4", seed).rows
        assert {(row.new_format, row.which["a"]) for row in rows} == {(x, y) for x in (True, False) for y in (0, 1)}


def test_a_decoy_looks_better_and_is_unreadable():
    for seed in SEEDS:
        world = world_of("TRAP", "chain3", seed)
        decoy = world.decoy
        for rule in world.roles[decoy].decoys:
            trapped = {**solved(world), decoy: (*world.roles[decoy].needed, rule)}
            assert world.true_score(trapped) == 0.0
            plain, poor = world.run(solved(world), 5)[decoy], world.run(trapped, 5)[decoy]
            assert world.competence(5, poor) > world.competence(5, plain)
            assert world.usefulness(5, poor) > world.usefulness(5, plain)
            reader = world.topology.children[decoy][0]
            before, after = world.run(solved(world), 5)[reader], world.run(trapped, 5)[reader]
            assert not after.read and world.usefulness(5, after) < world.usefulness(5, before)
            assert world.compatibility(poor, reader, ()) < world.compatibility(plain, reader, ())


def test_strategies_must_differ_and_only_pairs_show_it():
    world = world_of("XOR", "chain3")
    first, second = world.opponents

    def score(a, b):
        extra = {first: (world.roles[first].special,) * a, second: (world.roles[second].special,) * b}
        return world.true_score({r: (*t.needed, *extra.get(r, ())) for r, t in world.roles.items()})

    assert score(0, 1) == score(1, 0) == 1.0 > score(0, 0) == score(1, 1)
    needed, own = world.roles[first].needed, world.roles[first].special
    plain, other = (world.run({**solved(world), first: (*needed, *extra)}, 3)[first] for extra in ((), (own,)))
    liked = world.roles[second].special
    assert world.competence(3, other) > world.competence(3, plain), "alone, both would take the other strategy"
    assert world.compatibility(plain, second, [liked]) == world.compatibility(other, second, []) == 0.9
    assert world.compatibility(plain, second, []) == world.compatibility(other, second, [liked]) == 0.05


def test_no_pair_shows_parity():
    world = world_of("PARITY", "chain4")
    a, b, _ = world.opponents
    special = {role: world.roles[role].special for role in world.opponents}

    def score(*takes):
        held = dict(zip(world.opponents, takes, strict=True))
        return world.true_score(
            {r: (*t.needed, *((special[r],) if held.get(r) else ())) for r, t in world.roles.items()}
        )

    for x, y in itertools.product((0, 1), repeat=2):
        assert {score(x, y, 0), score(x, y, 1)} == {score(0, 0, 0), 1.0}, "any two leave it open"
    note = world.run(solved(world), 0)[a]
    assert world.compatibility(note, b, []) == world.compatibility(note, b, [special[b]]) == 0.9


def test_the_weak_link_is_a_null_player_and_worth_mending():
    for shape, seed in itertools.product(("star", "desk"), SEEDS):
        world = world_of("WEAKLINK", shape, seed)
        start, weak = world.start, world.weak
        assert weak in world.topology.parallel and start[weak] == ()
        others = {r: rules for r, rules in start.items() if r != weak}
        assert all(set(world.roles[r].needed) <= set(rules) for r, rules in others.items()), "all others are perfect"
        assert 0.1 < 1 - world.true_score(start) < 0.6
        for number in range(64):
            notes = world.run(start, number)
            without = {m: n for m, n in notes.items() if m != weak}
            last = world.topology.sink
            messages = {p: without.get(p) for p in world.topology.parents[last]}
            if weak in messages:
                again = world.note(last, start[last], number, messages, None)
                assert again.val == notes[last].val, "its silence changes nothing"


def test_two_redundant_colleagues():
    world = world_of("REDUNDANT", "diamond")
    broken = {**solved(world), "b": (world.roles["b"].harmful,)}
    assert world.true_score(broken) == 1.0, "one of them is enough"
    assert world.true_score({**broken, "c": broken["b"]}) == 0.0


def test_flat_tosses_one_coin_per_row_and_noise_one_per_text():
    def scores(landscape, rules):
        world = world_of(landscape, "chain2")
        engine = TaskEngine(world)
        found = []
        for number in range(64):
            notes = {}
            for member in world.topology.members:
                text = instruction(role_of(member), rules)
                messages = "\n".join(n.text for n in notes.values())
                notes[member] = engine.act(text, task_text(number), member, messages, 17)
            found.append(world.score(number, notes))
        return found

    assert scores("FLAT", [1]) == scores("FLAT", [2, 3]) != [scores("FLAT", [1])[0]] * 64
    assert scores("NOISE", [1]) == scores("NOISE", [1]) != scores("NOISE", [2, 3])
    assert 0.3 < sum(scores("NOISE", [4])) / 64 < 0.7


def test_a_missing_message_is_guessed_on_a_few_rows():
    world = world_of("AND", "chain3")
    right = 0
    for number, row in enumerate(world.rows):
        note = world.note("b", world.best_rules("b"), number, {"a": None}, None)
        assert (note.val == row.gold) == ("a" in row.guess)
        right += note.val == row.gold
        alone = {"a": world.note("a", world.best_rules("a"), number, {}, None)}
        assert world.score(number, alone) == float("c" in row.guess), "the last note stands for the answer"
    assert 0.1 < right / 64 < 0.5 and world.score(0, {}) == 0.0


# -- the metric ----------------------------------------------------------------------------------------


def test_feedback_names_one_rule_that_is_really_lacking():
    for landscape, shape in (("AND", "chain4"), ("HANDOFF", "chain4"), ("XOR", "chain3"), ("WEAKLINK", "star")):
        world = world_of(landscape, shape, 2)
        metric = PlantedMetric(world, 1.0)
        train, validation = make_rows(world)
        assert len(train) == 40 and len(validation) == 24 and len({r.id for r in (*train, *validation)}) == 64
        named = 0
        for row in train:
            number = int(row.id[1:])
            notes = {m: n.text for m, n in world.run(world.start, number).items()}
            verdict = metric(row, as_prediction(world.topology, notes))
            assert verdict.score == world.score(number, world.run(world.start, number))
            assert metric(row, as_prediction(world.topology, notes)).feedback == verdict.feedback
            for role, rule in hints(verdict.feedback):
                named += 1
                assert rule in (*world.roles[role].needed, world.roles[role].special)
                assert rule not in world.start[role] and verdict.score == 0
            assert (verdict.feedback == "Correct.") == (verdict.score == 1)
        assert named > 3
        silent = PlantedMetric(world, 0.0)
        for row in train:
            notes = {m: n.text for m, n in world.run(world.start, int(row.id[1:])).items()}
            assert hints(silent(row, as_prediction(world.topology, notes)).feedback) == []


def test_a_harmful_rule_is_not_named():
    world = world_of("AND", "chain2")
    spoilt = {role: (*table.needed, table.harmful) for role, table in world.roles.items()}
    assert world.true_score(spoilt) == 0.0
    assert all(world.lacking(n, world.run(spoilt, n)) == [] for n in range(64))


@pytest.mark.parametrize(
    ("landscape", "shape", "message"),
    [("HILL", "chain2", "unknown landscape"), ("WEAKLINK", "chain3", "side by side"), ("XOR", "star", "chain")],
)
def test_worlds_that_make_no_sense_are_refused(landscape, shape, message):
    with pytest.raises(ConfigurationError, match=message):
        make_world(landscape, shape, 0)
