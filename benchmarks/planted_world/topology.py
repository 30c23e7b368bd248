"""Teams by shape: which members there are, who reads whom, who shares a prompt."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cached_property

from metrics.errors import ConfigurationError
from programs.role_graph import RoleGraph


@dataclass(frozen=True)
class Topology:
    """`members` in an order in which everyone comes after those it reads; `edges`: (writer, reader).

    A member `solver::1` is the second agent that works by the prompt of `solver`; other members are roles of their own.
    """

    name: str
    members: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """One per prompt."""
        return tuple(dict.fromkeys(role_of(m) for m in self.members))

    @cached_property
    def parents(self) -> dict[str, tuple[str, ...]]:
        return {m: tuple(a for a, b in self.edges if b == m) for m in self.members}

    @cached_property
    def children(self) -> dict[str, tuple[str, ...]]:
        return {m: tuple(b for a, b in self.edges if a == m) for m in self.members}

    @property
    def sink(self) -> str:
        """The member whose note is the team's answer."""
        return self.members[-1]

    @cached_property
    def parallel(self) -> tuple[str, ...]:
        """Members that have colleagues: others with the same readers and the same sources."""
        place = {m: (self.parents[m], self.children[m]) for m in self.members}
        return tuple(m for m in self.members if sum(place[m] == p for p in place.values()) > 1)

    def role_graph(self) -> RoleGraph:
        counts = {role: sum(role_of(m) == role for m in self.members) for role in self.roles}
        edges = tuple(dict.fromkeys((role_of(a), role_of(b)) for a, b in self.edges))
        return RoleGraph(self.roles, edges=edges, counts=counts, edge_field=dict.fromkeys(edges, "messages"))


def role_of(member: str) -> str:
    """The role by whose prompt a member works."""
    return member.split("::")[0]


def agent_of(member: str) -> int:
    """The index of a member among those that share its prompt."""
    return int(member.split("::")[1]) if "::" in member else 0


def topology(name: str) -> Topology:
    """`chainN`, `star` (three workers and a manager), `diamond`, `desk` (3-3-1), `replicas`, `skip`."""
    if found := re.fullmatch(r"chain(\d+)", name):
        names = "abcdefghijkl"[: int(found[1])]
        if len(names) == int(found[1]) > 0:
            return Topology(name, tuple(names), tuple(itertools.pairwise(names)))
    if name not in _EDGES:
        raise ConfigurationError(f"unknown topology {name!r}; there are chain2, chain3 ..., {', '.join(_EDGES)}")
    edges = _EDGES[name]
    return Topology(name, _ordered(edges), edges)


def _ordered(edges: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    members = list(dict.fromkeys(m for edge in edges for m in edge))
    graph = RoleGraph(tuple(members), edges=edges)
    return graph.topological_order()


_FIRST, _SECOND = ("a1", "a2", "a3"), ("b1", "b2", "b3")
_EDGES: dict[str, tuple[tuple[str, str], ...]] = {
    "star": (("a", "m"), ("b", "m"), ("c", "m")),
    "diamond": (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")),
    "desk": (*((x, y) for x in _FIRST for y in _SECOND), *((y, "t") for y in _SECOND)),
    "replicas": (("solver::0", "judge"), ("solver::1", "judge"), ("solver::2", "judge")),
    "skip": (("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")),
}
