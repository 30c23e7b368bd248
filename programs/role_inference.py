"""The role graph of a foreign module, read off its traces."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dspy

from programs.errors import ConfigurationError
from programs.role_graph import RoleGraph, appearance

logger = logging.getLogger(__name__)

MIN_TEXT = 12  # characters: shorter outputs ("yes", "1990") occur in inputs by chance
MIN_TRACES = 3

Edge = tuple[str, str]
Call = tuple[str, dict[str, Any], list[str]]  # role, inputs, output texts


def roles_of(program: dspy.Module) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Roles of any module: `(role -> predictor names, names of frozen predictors)`.

    A predictor is its own role; the predictors of one DSPy module (`dspy.ReAct` has two, `dspy.ChainOfThought` one)
    form one role with the name of that module. Predictors in compiled sub-modules are frozen: DSPy hides them.
    """
    role_by_id: dict[int, str] = {}
    for path, module in program.named_sub_modules(dspy.Module):
        library = type(module).__module__.startswith("dspy.") and not isinstance(module, dspy.Predict)
        if library and module is not program:
            for predictor in module.predictors():
                role_by_id.setdefault(id(predictor), path.removeprefix("self."))
    roles: dict[str, tuple[str, ...]] = {}
    for name, predictor in program.named_predictors():
        role = role_by_id.get(id(predictor), name)
        roles[role] = (*roles.get(role, ()), name)
    visible = {id(predictor) for predictor in program.predictors()}
    frozen = [name.removeprefix("self.") for name, p in program.named_sub_modules(dspy.Predict) if id(p) not in visible]
    return roles, tuple(frozen)


def infer_role_graph(program: dspy.Module, traces: Sequence[Sequence[Any]]) -> RoleGraph:
    """Infer who reads whom from the DSPy traces of at least three runs of `program`.

    `traces`: one list per example of `(predictor, inputs, outputs)` in call order, as `dspy.context(trace=[])` collects
    them on this very instance; a predictor's name may stand for the object. An edge i -> j needs, in most of the
    examples that call both, an output text of i of at least 12 characters that occurs verbatim in a later input of j.
    Text that the program was given (the question) is no message. Where roles talk back, the graph is unrolled once and
    the second appearance tied, with a warning. Raises `ConfigurationError` on fewer than three traces or foreign ones.
    """
    traces = [list(trace) for trace in traces]
    if len(traces) < MIN_TRACES:
        raise ConfigurationError(
            f"a role graph needs at least {MIN_TRACES} traces to be inferred, got {len(traces)}; "
            "or give it yourself: graph=RoleGraph(...) or a method role_graph() of the program"
        )
    roles, frozen = roles_of(program)
    if frozen:
        logger.warning("predictors inside compiled sub-modules stay as they are: %s", ", ".join(frozen))
    role_by_name = {name: role for role, names in roles.items() for name in names}
    role_by_id = {id(predictor): role_by_name[name] for name, predictor in program.named_predictors()}

    votes: Counter[Edge] = Counter()
    fields: dict[Edge, Counter[str]] = defaultdict(Counter)
    first_calls: dict[str, dict[int, int]] = {role: {} for role in roles}  # role -> example -> position
    for number, trace in enumerate(traces):
        calls: list[Call] = []
        for predictor, inputs, outputs in trace:
            role = role_by_name.get(predictor) if isinstance(predictor, str) else role_by_id.get(id(predictor))
            if role is not None:
                first_calls[role].setdefault(number, len(calls))
                calls.append((role, dict(inputs), list(texts(outputs))))
        found = messages(calls)
        votes.update({edge for edge, _ in found})
        for edge, name in found:
            fields[edge][name] += 1
    if not any(first_calls.values()):
        raise ConfigurationError("the traces hold no call of this program's predictors: trace this very instance")
    if silent := [role for role, runs in first_calls.items() if not runs]:
        logger.warning("roles that no trace calls, left without edges: %s", ", ".join(silent))

    def rank(role: str) -> float:
        runs = first_calls[role]
        return sum(runs.values()) / len(runs) if runs else float("inf")

    kept = [(i, j) for (i, j), n in votes.items() if 2 * n > len(first_calls[i].keys() & first_calls[j].keys())]
    edge_field = {edge: max(sorted(fields[edge]), key=fields[edge].__getitem__) for edge in kept}
    return unrolled(sorted(roles, key=rank), roles, edge_field, frozen)


def messages(calls: Sequence[Call]) -> set[tuple[Edge, str]]:
    """`((sender, receiver), input field)` for every text of one example that reappears verbatim in a later call."""
    found: set[tuple[Edge, str]] = set()
    written: dict[str, set[str]] = {}  # text -> roles that wrote it so far
    given = list(texts(calls[0][1])) if calls else []  # what the first call reads, nobody wrote
    for receiver, inputs, outputs in calls:
        arriving = {name: list(texts(value)) for name, value in inputs.items()}
        for text, senders in written.items():
            for name, values in arriving.items():
                if any(text in value for value in values):
                    found.update(((sender, receiver), name) for sender in senders if sender != receiver)
        for text in map(str.strip, outputs):
            if len(text) >= MIN_TEXT and not any(text in value for value in given):
                written.setdefault(text, set()).add(receiver)
    return found


def texts(value: Any) -> Iterable[str]:
    """All strings inside a value, tools excluded."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dspy.Tool):
        return
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, dspy.Example):
        yield from texts(dict(value.items()))
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from texts(item)
    elif hasattr(value, "model_dump"):
        yield from texts(value.model_dump())


def unrolled(
    order: Sequence[str],
    roles: Mapping[str, tuple[str, ...]],
    edge_field: Mapping[Edge, str],
    frozen: tuple[str, ...] = (),
) -> RoleGraph:
    """A DAG from possibly cyclic edges: an edge back to a role leads to a second, tied appearance of it instead.

    `order` (by first call) decides which edge of a cycle leads back. What leaves the cycle is the role's last word,
    so it starts at the second appearance: manager <-> worker, manager -> writer becomes
    manager -> worker -> manager@2 -> writer.
    """
    rank = {role: k for k, role in enumerate(order)}
    reach = {role: _reachable(role, edge_field) for role in order}
    back = [(i, j) for i, j in edge_field if rank[i] > rank[j] and i in reach[j]]
    twice = [role for role in order if any(role == j for _, j in back)]
    fields: dict[Edge, str] = {}
    for (i, j), name in sorted(edge_field.items(), key=lambda item: (rank[item[0][0]], rank[item[0][1]])):
        if (i, j) in back:
            fields[i, appearance(j, 2)] = name
        elif i in twice and i not in reach[j]:
            fields[appearance(i, 2), j] = name
        else:
            fields[i, j] = name
    if back:
        pairs = ", ".join(f"{i} -> {j}" for i, j in back)
        logger.warning("roles talk back (%s): unrolled once, the second appearance is tied to the first", pairs)
    predictors = {**{r: roles[r] for r in order}, **{appearance(r, 2): roles[r] for r in twice}}
    nodes = RoleGraph(tuple(predictors), predictors, tuple(fields)).topological_order()
    edges = sorted(fields, key=lambda edge: (nodes.index(edge[0]), nodes.index(edge[1])))
    return RoleGraph(nodes, predictors, tuple(edges), edge_field=fields, frozen=frozen)


def _reachable(role: str, edges: Iterable[Edge]) -> set[str]:
    seen: set[str] = set()
    todo = [role]
    while todo:
        current = todo.pop()
        new = {j for i, j in edges if i == current} - seen
        seen |= new
        todo.extend(sorted(new))
    return seen
