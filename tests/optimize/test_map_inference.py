"""MAP inference equals brute force, with ties, tied prompts and any elimination order."""

from __future__ import annotations

import itertools
import random

import pytest

from optimize.map_inference import log_units, map_assignment


def total(nodes, edges, choice):
    value = sum(log_units(nodes[i][k]) for i, k in enumerate(choice))
    return value + sum(log_units(m[choice[i]][choice[j]]) for (i, j), m in edges.items())


def brute_force(nodes, edges, incumbent, tied):
    best = None
    for choice in itertools.product(*(range(len(n)) for n in nodes)):
        if any(tied[a] == tied[b] and choice[a] != choice[b] for a in range(len(nodes)) for b in range(a)):
            continue
        first = {t: tied.index(t) for t in tied}
        unchanged = sum(choice[i] == incumbent[i] for i in first.values())
        key = (total(nodes, edges, choice), unchanged, tuple(-choice[i] for i in sorted(first.values())))
        if best is None or key > best[0]:
            best = (key, choice)
    return best[1]


def random_problem(rng, tie_prompts):
    n = rng.randint(1, 6)
    tied = list(range(n))
    if tie_prompts:
        tied = [rng.randrange(max(1, n // 2 + 1)) for _ in range(n)]
    width = {t: rng.randint(1, 4 if n < 6 else 3) for t in set(tied)}
    sizes = [width[t] for t in tied]
    coarse = rng.random() < 0.5
    reward = (lambda: rng.choice([0.25, 0.5, 1.0])) if coarse else (lambda: rng.uniform(0.01, 1.0))
    density = rng.choice([0, 0.3, 0.6, 1.0])
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < density]
    pairs = [p if rng.random() < 0.5 else p[::-1] for p in pairs]
    nodes = [[reward() for _ in range(s)] for s in sizes]
    edges = {(i, j): [[reward() for _ in range(sizes[j])] for _ in range(sizes[i])] for i, j in pairs}
    incumbent_of = {t: rng.randrange(w) for t, w in width.items()}
    return nodes, edges, [incumbent_of[t] for t in tied], tied


@pytest.mark.parametrize("tie_prompts", [False, True])
def test_equals_brute_force_for_every_elimination_order(tie_prompts):
    rng = random.Random(7)
    for _ in range(150):
        nodes, edges, incumbent, tied = random_problem(rng, tie_prompts)
        expected = brute_force(nodes, edges, incumbent, tied)
        variables = len(set(tied))
        for order in [None, *(rng.sample(range(variables), variables) for _ in range(4))]:
            found = map_assignment(nodes, edges, incumbent=incumbent, tied=tied, order=order)
            assert found.choice == expected
            assert found.exact
            assert found.log_reward == pytest.approx(total(nodes, edges, expected) / 1e9)


def test_on_a_tree_it_equals_message_passing_up_and_down():
    rng = random.Random(3)
    for _ in range(50):
        n = rng.randint(2, 7)
        parent = {i: rng.randrange(i) for i in range(1, n)}
        nodes = [[rng.uniform(0.1, 1) for _ in range(3)] for _ in range(n)]
        edges = {(i, parent[i]): [[rng.uniform(0.1, 1) for _ in range(3)] for _ in range(3)] for i in parent}
        up = [[log_units(v) for v in row] for row in nodes]
        for i in range(n - 1, 0, -1):  # leaves first: messages of Eq. 6
            for m in range(3):
                up[parent[i]][m] += max(up[i][k] + log_units(edges[i, parent[i]][k][m]) for k in range(3))
        found = map_assignment(nodes, edges)
        assert found.width <= 1
        assert found.log_reward == pytest.approx(max(up[0]) / 1e9)
        choice = {0: max(range(3), key=lambda k: up[0][k])}
        for i in range(1, n):
            m = choice[parent[i]]
            choice[i] = max(range(3), key=lambda k: up[i][k] + log_units(edges[i, parent[i]][k][m]))
        assert found.choice == tuple(choice[i] for i in range(n))


@pytest.mark.parametrize(
    ("n", "pairs", "width"),
    [
        (4, [(0, 1), (1, 2), (2, 3)], 1),
        (4, [(0, 1), (1, 2), (2, 3), (3, 0)], 2),
        (5, list(itertools.combinations(range(5), 2)), 4),
        (7, [(a, b) for a in range(3) for b in range(3, 6)] + [(b, 6) for b in range(3, 6)], 3),
    ],
)
def test_reports_the_induced_width(n, pairs, width):
    rng = random.Random(0)
    nodes = [[rng.random() for _ in range(2)] for _ in range(n)]
    edges = {p: [[rng.random() for _ in range(2)] for _ in range(2)] for p in pairs}
    assert map_assignment(nodes, edges).width == width


def test_constant_factors_role_order_edge_direction_and_neutral_edges_change_nothing():
    rng = random.Random(5)
    for _ in range(40):
        n = 5
        nodes = [[rng.uniform(0.3, 0.9) for _ in range(3)] for _ in range(n)]
        edges = {(i, i + 1): [[rng.uniform(0.3, 0.9) for _ in range(3)] for _ in range(3)] for i in range(n - 1)}
        base = map_assignment(nodes, edges).choice
        scaled = [[v * 0.5 for v in row] if i == 2 else row for i, row in enumerate(nodes)]
        assert map_assignment(scaled, edges).choice == base
        turned = {(j, i): [list(col) for col in zip(*m, strict=True)] for (i, j), m in edges.items()}
        assert map_assignment(nodes, turned).choice == base
        neutral = {**edges, (0, 4): [[1.0] * 3 for _ in range(3)]}
        assert map_assignment(nodes, neutral).choice == base
        perm = rng.sample(range(n), n)
        place = {old: new for new, old in enumerate(perm)}
        moved = map_assignment([nodes[i] for i in perm], {(place[i], place[j]): m for (i, j), m in edges.items()})
        assert tuple(moved.choice[place[i]] for i in range(n)) == base


def test_tiny_rewards_on_many_roles_do_not_underflow():
    nodes = [[1e-6, 2e-6]] * 60
    edges = {(i, i + 1): [[1e-6, 1e-6], [1e-6, 2e-6]] for i in range(59)}
    assert map_assignment(nodes, edges).choice == (1,) * 60


def test_equal_rewards_return_the_incumbent():
    nodes = [[0.5] * 4 for _ in range(4)]
    edges = {(i, i + 1): [[0.5] * 4 for _ in range(4)] for i in range(3)}
    assert map_assignment(nodes, edges, incumbent=[3, 1, 2, 0]).choice == (3, 1, 2, 0)


def test_replicas_weigh_their_shared_prompt_and_self_edges_use_the_diagonal():
    # two replicas: .6 ** 2 * .9 beats .7 ** 2 * .5, though .7 > .6
    nodes = [[0.6, 0.7], [0.6, 0.7]]
    edges = {(0, 1): [[0.9, 1.0], [1.0, 0.5]]}
    assert map_assignment(nodes, edges, tied=[0, 0]).choice == (0, 0)
    assert map_assignment(nodes, {}, tied=[0, 0]).choice == (1, 1)


def test_too_large_tables_shorten_pools_and_never_lose_to_the_incumbent():
    rng = random.Random(2)
    n, k = 6, 4
    nodes = [[rng.uniform(0.1, 1) for _ in range(k)] for _ in range(n)]
    pairs = itertools.combinations(range(n), 2)
    edges = {p: [[rng.uniform(0.1, 1) for _ in range(k)] for _ in range(k)] for p in pairs}
    incumbent = [rng.randrange(k) for _ in range(n)]
    found = map_assignment(nodes, edges, incumbent=incumbent, max_cells=100)
    assert not found.exact
    assert found.log_reward >= total(nodes, edges, incumbent) / 1e9
    assert map_assignment(nodes, edges, incumbent=incumbent).exact


def test_bad_pools_are_refused():
    with pytest.raises(ValueError, match="empty pool"):
        map_assignment([[]], {})
    with pytest.raises(ValueError, match="another size"):
        map_assignment([[0.5], [0.5, 0.5]], {}, tied=[0, 0])
