"""The beam of one role: prompts with the value that their path of improvements adds up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Texts = tuple[str, ...]  # the instructions of a role, one per predictor


@dataclass(frozen=True)
class Node:
    """A prompt of a beam with its cumulative value; `path`: values of the steps that led to it."""

    texts: Texts
    cum: float = 0.0
    path: tuple[float, ...] = ()


def best_nodes(nodes: Sequence[Node], beam: int) -> list[Node]:
    """The highest cumulative values, one node per prompt; equal values keep their order, so parents come first."""
    unique: dict[Texts, Node] = {}
    for node in nodes:
        if node.texts not in unique or node.cum > unique[node.texts].cum:
            unique[node.texts] = node
    return sorted(unique.values(), key=lambda n: -n.cum)[:beam]
