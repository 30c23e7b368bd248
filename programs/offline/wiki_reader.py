"""Reading with a search and a page tool: what the trajectory already shows, and the call that is missing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from programs.offline.observations import Observation, notes, steps
from programs.offline.passages import relation_score, sentences
from programs.offline.question import Question, own_question, unfold
from programs.offline.request import Seen, Tool
from programs.offline.traits import Traits
from programs.offline.words import STOP, tokens

MAX_CALLS = 8  # of nine turns; the last one answers
_HIT = re.compile(r"^- (.+?): (.*)$", re.MULTILINE)
_CUT = re.compile(r"start=(\d+)\)?\]?\s*$")
_QUERY_NAMES = ("query", "q", "question", "text", "term")
_TITLE_NAMES = ("title", "name", "page", "article")


class Need(Exception):
    """The procedure lacks a text; carries the call that gives it."""

    def __init__(self, tool: str, args: dict[str, Any], thought: str) -> None:
        super().__init__(tool)
        self.tool, self.arguments, self.thought = tool, args, thought


@dataclass(frozen=True)
class WikiTools:
    """The search tool and, when there is one, the page tool."""

    search: Tool
    page: Tool | None

    @classmethod
    def of(cls, tools: tuple[Tool, ...]) -> WikiTools | None:
        """None unless the tools are for searching and reading texts."""
        if not tools or len(tools) > 4:
            return None
        search = next(
            (t for t in tools if "search" in tokens(t.name) and _text_parameter(t, _QUERY_NAMES)),
            None,
        )
        if search is None:
            return None
        page = next(
            (
                t
                for t in tools
                if t is not search and set(tokens(t.name)) & {"page", "article", "read", "open", "document"}
            ),
            None,
        )
        return cls(search, page) if page or len(tools) == 1 else None


def _text_parameter(tool: Tool, likely: tuple[str, ...]) -> str | None:
    names = tool.required or list(tool.properties)
    return next((n for n in names if n in likely), names[0] if len(names) == 1 else None)


class WikiReader:
    """The texts that a trajectory holds, asked for as if they were all there: `Need` is raised for the next call."""

    def __init__(self, seen: Seen, traits: Traits, tools: WikiTools) -> None:
        self.traits = traits
        self.tools = tools
        self.question: Question = unfold(own_question(seen.get("question")))
        self.observations: tuple[Observation, ...] = steps(seen.get("trajectory"))
        self.final_call = any(n.startswith("final call:") for n in notes(seen.get("trajectory")))
        self.evidence: list[str] = []
        self.partial: str | None = None
        self.kind = "thing"

    # -- texts ---------------------------------------------------------------------------------------

    def _known(self, tool: Tool, args: dict[str, Any]) -> str | None:
        for observation in self.observations:
            if (
                observation.tool == tool.name
                and all(observation.args.get(k) == v for k, v in args.items())
                and len(observation.args) == len(args)
            ):
                return observation.text
        return None

    def _need(self, tool: Tool, args: dict[str, Any], thought: str) -> str:
        text = self._known(tool, args)
        if text is not None:
            return text
        if self.final_call or len(self.observations) >= MAX_CALLS:
            raise LookupError
        raise Need(tool.name, args, thought)

    def search(self, query: str) -> list[tuple[str, str]]:
        """(title, summary) of the hits."""
        name = _text_parameter(self.tools.search, _QUERY_NAMES) or "query"
        text = self._need(self.tools.search, {name: query}, f"Search {query}.")
        return [(m[1], m[2]) for m in _HIT.finditer(text)]

    def read(self, title: str, wanted: str = "") -> str:
        """The page's text; reads on while the page is cut and nothing about `wanted` was found."""
        page = self.tools.page
        if page is None:
            return ""
        name = _text_parameter(page, _TITLE_NAMES) or "title"
        text = self._need(page, {name: title}, f"Read the page {title}.")
        whole = text
        for _ in range(2):
            cut = _CUT.search(text)
            if not cut or "start" not in page.properties or not wanted:
                break
            if max((relation_score(s, wanted) for s in sentences(whole)), default=0.0) >= 0.75 * full_score(wanted):
                break
            text = self._need(page, {name: title, "start": int(cut[1])}, f"Read on in {title}.")
            whole += "\n" + text
        return whole

    def page_of(self, name: str, hint: str) -> tuple[str | None, str]:
        """(title, summary) of the page that is most likely meant by a name; its kind word settles ambiguity."""
        hits = self.search(name)
        best, best_score = None, -1.0
        for rank, (title, summary) in enumerate(hits):
            score = title_score(title, name) - 0.1 * rank
            if "may refer to" in summary[:20]:
                score -= 0.8
            score += (
                0.5 * relation_score(f"{title} {sentences(summary)[0] if sentences(summary) else ''}", hint)
                if hint
                else 0.0
            )
            if score > best_score and (title_score(title, name) > 0.4 or mentions(summary, name)):
                best, best_score = (title, summary), score
        return best if best else (None, "")


# -- titles and links ---------------------------------------------------------------------------------


def full_score(link: str) -> float:
    own = [
        t for t in dict.fromkeys(tokens(link)) if t not in STOP and t not in ("first", "last", "name", "year", "date")
    ]
    return max(1.0, 1.0 * min(len(own), 2))


def content(link: str) -> str:
    return " ".join(t for t in tokens(link) if t not in STOP)


def mentions(text: str, name: str) -> bool:
    return plain_title(name).casefold() in text.casefold()


def plain_title(title: str) -> str:
    return re.sub(r"\s*\([^()]*\)$", "", title)


def same_title(a: str, b: str) -> bool:
    fold = lambda t: re.sub(r"^the ", "", plain_title(t).casefold())  # noqa: E731
    return fold(a) == fold(b)


def title_score(title: str, name: str) -> float:
    if title.casefold() == name.casefold():
        return 1.0
    if same_title(title, name):
        return 0.95
    left, right = set(tokens(title)) - STOP, set(tokens(name)) - STOP
    return 0.9 * len(left & right) / max(1, len(left | right))
