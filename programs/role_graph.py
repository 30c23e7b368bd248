"""The role graph of a program: which role reads what which other role wrote.

Optimizers work on this graph. Programs of this package state theirs in `role_graph()`; for any other `dspy.Module`
it is inferred from traces. The graph is always a DAG: a protocol with several rounds is unrolled, and the later
appearances of a role (`manager@2`) are tied to the first, since they share its predictors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from programs.errors import ConfigurationError

if TYPE_CHECKING:
    import dspy


def appearance(role: str, number: int) -> str:
    """Name of the `number`-th appearance (from 1) of a role in an unrolled protocol: `debater`, `debater@2`, ..."""
    return role if number == 1 else f"{role}@{number}"


@dataclass(frozen=True)
class RoleGraph:
    """A DAG of roles. An edge `(i, j)` means that j reads a message that i wrote.

    `roles`: node names in order; `predictors`: node -> names of the predictors that belong to it (as in
    `named_predictors()`); two nodes with the same predictors are appearances of one role; `counts`: agents that share
    the node (1 where absent); `edge_field`: edge -> the receiver's input field in which the text arrives, where known;
    `frozen`: predictors inside compiled sub-modules, which DSPy hides from optimizers.
    Raises `ConfigurationError` for duplicate or unknown names, edges from a node to itself and cycles.
    """

    roles: tuple[str, ...]
    predictors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    edges: tuple[tuple[str, str], ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    edge_field: Mapping[tuple[str, str], str] = field(default_factory=dict)
    frozen: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        roles = tuple(self.roles)
        known = set(roles)
        if len(known) != len(roles):
            raise ConfigurationError(f"duplicate roles: {sorted(r for r in known if roles.count(r) > 1)}")
        edges = tuple(dict.fromkeys((str(i), str(j)) for i, j in self.edges))
        unknown = ({r for edge in edges for r in edge} | set(self.predictors) | set(self.counts)) - known
        if unknown:
            raise ConfigurationError(f"unknown roles in a role graph: {sorted(unknown)}; it has {list(roles)}")
        if loops := [i for i, j in edges if i == j]:
            raise ConfigurationError(f"roles that read their own messages: {loops}; unroll them as {loops[0]}@2")
        set_ = object.__setattr__
        set_(self, "roles", roles)
        set_(self, "edges", edges)
        set_(self, "predictors", {r: tuple(self.predictors.get(r, (r.split("@")[0],))) for r in roles})
        set_(self, "counts", {r: int(self.counts.get(r, 1)) for r in roles})
        set_(self, "edge_field", {tuple(k): v for k, v in self.edge_field.items()})
        self.topological_order()  # raises on a cycle

    def parents(self, role: str) -> tuple[str, ...]:
        """Roles whose messages `role` reads, in role order."""
        return tuple(r for r in self.roles if (r, role) in self.edges)

    def children(self, role: str) -> tuple[str, ...]:
        """Roles that read the messages of `role`, in role order."""
        return tuple(r for r in self.roles if (role, r) in self.edges)

    @property
    def sources(self) -> tuple[str, ...]:
        """Roles that read no other role."""
        return tuple(r for r in self.roles if not self.parents(r))

    @property
    def sinks(self) -> tuple[str, ...]:
        """Roles that no other role reads."""
        return tuple(r for r in self.roles if not self.children(r))

    def topological_order(self) -> tuple[str, ...]:
        """Every role after its parents; ties in the order of `roles`."""
        return tuple(role for layer in self.layers() for role in layer)

    def layers(self) -> tuple[tuple[str, ...], ...]:
        """Layer k holds the roles whose longest path from a source has k edges, each in the order of `roles`."""
        sorter = TopologicalSorter({r: [] for r in self.roles})
        for i, j in self.edges:
            sorter.add(j, i)
        try:
            order = list(sorter.static_order())
        except CycleError as error:
            path = " -> ".join(reversed(error.args[1]))
            raise ConfigurationError(f"the role graph has a cycle ({path}): unroll it") from None
        depth: dict[str, int] = {}
        for role in order:
            depth[role] = max((depth[i] + 1 for i, j in self.edges if j == role), default=0)
        return tuple(tuple(r for r in self.roles if depth[r] == k) for k in range(max(depth.values(), default=-1) + 1))

    def ancestors(self, role: str) -> frozenset[str]:
        """All roles from which a path leads to `role`, without `role` itself."""
        return self._reach(role, self.parents)

    def descendants(self, role: str) -> frozenset[str]:
        """All roles to which a path leads from `role`, without `role` itself."""
        return self._reach(role, self.children)

    def _reach(self, role: str, step: Callable[[str], Iterable[str]]) -> frozenset[str]:
        seen: set[str] = set()
        todo = list(step(role))
        while todo:
            current = todo.pop()
            if current not in seen:
                seen.add(current)
                todo.extend(step(current))
        return frozenset(seen)

    def role_of(self, node: str) -> str:
        """The role of which `node` is an appearance: the first node that has the same predictors."""
        return next(r for r in self.roles if self.predictors[r] == self.predictors[node])

    @property
    def base_roles(self) -> tuple[str, ...]:
        """The roles without their later appearances: one entry per instruction (or tuple of instructions)."""
        return tuple(dict.fromkeys(self.role_of(r) for r in self.roles))

    def appearances(self, role: str) -> tuple[str, ...]:
        """All nodes tied to `role`, itself included."""
        return tuple(r for r in self.roles if self.predictors[r] == self.predictors[role])

    def is_tied(self, role: str) -> bool:
        """True when several agents or several appearances share the role's instruction."""
        return self.counts[role] > 1 or len(self.appearances(role)) > 1


def resolve_role_graph(program: dspy.Module, graph: RoleGraph | None = None, traces: Sequence[Any] = ()) -> RoleGraph:
    """The graph given, else the program's own (`role_graph()` or attribute), else the one inferred from `traces`."""
    if graph is not None:
        return graph
    own = getattr(program, "role_graph", None)
    if own is not None:
        return own() if callable(own) else own
    return infer_role_graph(program, traces)


def infer_role_graph(program: dspy.Module, traces: Sequence[Sequence[Any]]) -> RoleGraph:
    """Infer the graph of any module from the traces of at least three runs; see `programs.role_inference`."""
    from programs.role_inference import infer_role_graph

    return infer_role_graph(program, traces)
