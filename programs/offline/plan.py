"""Which tool does which link of the question, and in which order.

Tools and links are compared by meaning (names, descriptions, parameters against the link's words). Links are worked
from the innermost to the outermost; where the listed order of the tools agrees with that, it settles ties.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from programs.offline.lexicon import words
from programs.offline.question import Chunk, Question
from programs.offline.request import Tool
from programs.offline.words import meaning, tokens

_COMPUTE = words(
    """sum product difference quotient square cube power root remainder average maximum minimum round
    arithmetic reverse digit prime factor palindrome ascii binary hexadecimal roman parity letter vowel
    consonant syllable initial uppercase lowercase concatenate alphabetical unique repeated substring
    combination convert next previous median weekday length string count even odd fibonacci gcd lcm divisor
    root leap sort"""
)
_LOOKUP = words("lookup find finder search retriever retrieve info information register identifier identify query")
_DULL = words(
    "tool advanced enhanced find finder lookup return calculator retriever retrieve information info get query "
    "specify specific optional support default format output input such e.g give data database"
)


@dataclass(frozen=True)
class PlannedStep:
    """One tool with the link it serves. `fit`: how well they match (0 = not at all)."""

    tool: Tool
    chunk: Chunk
    fit: float


@lru_cache(maxsize=4096)
def _tool_meaning(name: str, description: str, parameters: tuple[str, ...]) -> tuple[tuple[str, float], ...]:
    bag: dict[str, float] = {}
    for text, weight in ((name, 1.5), (_first_sentence(description), 1.0), (" ".join(parameters), 0.7)):
        for concept, strength in meaning(text).items():
            if concept not in _DULL:
                bag[concept] = max(bag.get(concept, 0.0), strength * weight)
    return tuple(bag.items())


def tool_meaning(tool: Tool) -> dict[str, float]:
    """Concepts of a tool: its name counts most, then the first sentence of its description, then its parameters."""
    return dict(_tool_meaning(tool.name, tool.description, tuple(tool.required or tool.properties)))


def is_computation(tool: Tool) -> bool:
    """True for tools that transform a given value (arithmetic, letters, dates) rather than look something up."""
    words = set(tokens(tool.name))
    concepts = set(meaning(tool.name))
    return bool(concepts & _COMPUTE) and not (words & _LOOKUP)


def make_plan(question: Question, tools: tuple[Tool, ...]) -> list[PlannedStep]:
    """The steps in the order in which they should be done. Tools that match nothing are left out."""
    if not tools:
        return []
    bags = [tool_meaning(tool) for tool in tools]
    links = [_link_meaning(chunk) for chunk in question.chunks]
    rarity = {c: math.log(1 + len(tools) / sum(c in bag for bag in bags)) for bag in bags for c in bag}
    fits = [[_fit(bag, link, rarity) for link in links] for bag in bags]
    order, aligned = _align(fits, len(links), [not is_computation(tool) for tool in tools])
    few = len(links) == 1 or len(links) * 2 <= len(tools)
    fitting = [rank for rank, i in enumerate(order) if max(fits[i]) > 0.15 and not (few and _dominated(i, fits))]
    if not fitting:
        return [PlannedStep(tools[i], question.chunks[aligned[i]], 0.0) for i in order]
    # a tool that says nothing in common with the question, but stands between two that do, is part of the way
    first, last = (fitting[0], fitting[-1]) if order == sorted(order) else (len(order), -1)
    return [
        PlannedStep(tools[i], question.chunks[aligned[i]], fits[i][aligned[i]])
        for rank, i in enumerate(order)
        if rank in fitting or first < rank < last
    ]


def _dominated(i: int, fits: list[list[float]]) -> bool:
    """Another tool does each of this one's links far better: this one is for other questions."""
    return all(
        any(row[j] >= 3.0 * max(value, 0.2) for k, row in enumerate(fits) if k != i) for j, value in enumerate(fits[i])
    )


def _link_meaning(chunk: Chunk) -> dict[str, float]:
    bag = dict(meaning(chunk.text))
    for name in chunk.names:
        for concept, weight in meaning(name).items():
            bag[concept] = max(bag.get(concept, 0.0), 0.5 * weight)
    return bag


def _fit(bag: dict[str, float], link: dict[str, float], rarity: dict[str, float]) -> float:
    return sum(min(weight, link[concept] * 1.5) * rarity[concept] for concept, weight in bag.items() if concept in link)


def _align(fits: list[list[float]], n_links: int, lookups: list[bool]) -> tuple[list[int], list[int]]:
    """(order of tools, link of each tool). Listed order is kept when its best inner-to-outer alignment loses little.

    It is given up when the alignment would tear a lookup (`lookups`) away from the link that it clearly serves.
    """
    n = len(fits)
    innermost = n_links - 1
    # dynamic programme: tools in listed order, links never move inward again
    best = [[-1e9] * n_links for _ in range(n)]
    back = [[0] * n_links for _ in range(n)]
    for j in range(n_links):
        best[0][j] = fits[0][j] - 0.02 * (innermost - j)
    for i in range(1, n):
        running, where = -1e9, innermost
        for j in range(innermost, -1, -1):
            stay = best[i - 1][j] - 0.05  # two tools on one link are possible, but a new link is likelier
            if stay > running:
                running, where = stay, j
            best[i][j], back[i][j] = running + fits[i][j] + (0.05 if where != j else 0.0), where
            if best[i - 1][j] > running:
                running, where = best[i - 1][j], j
    last = max(range(n_links), key=lambda j: (best[n - 1][j], -j))
    aligned = [0] * n
    aligned[n - 1] = last
    for i in range(n - 1, 0, -1):
        aligned[i - 1] = back[i][aligned[i]]
    free = [max((value, j) for j, value in enumerate(row))[1] for row in fits]
    listed_score = sum(fits[i][aligned[i]] for i in range(n))
    free_score = sum(fits[i][free[i]] for i in range(n))
    lost = any(fits[i][free[i]] > 1.0 and fits[i][aligned[i]] < 0.2 * fits[i][free[i]] for i in range(n) if lookups[i])
    if listed_score >= 0.72 * free_score and not lost:
        return list(range(n)), aligned
    return sorted(range(n), key=lambda i: (not lookups[i], -free[i], i)), free


def _first_sentence(text: str) -> str:
    head = text.split(". ")[0]
    return head if len(head) > 20 else text[:200]
