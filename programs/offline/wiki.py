"""An agent with a search tool and a page tool: search the entity, read the page, follow the bridge, pick the span.

The procedure is written as plain code over what the trajectory already shows; where a text is missing it stops with
the call that would give it. So every request derives its next call anew, and equal requests give equal calls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from programs.offline.observations import Observation, notes, steps
from programs.offline.passages import Candidate, find, kind_of, nationality_of, relation_score, sentences
from programs.offline.question import Chunk, Question, is_comparison, own_question, unfold
from programs.offline.request import Seen, Tool
from programs.offline.traits import Traits
from programs.offline.words import STOP, meaning, names_in, number_of, tokens
from programs.offline.dates import find_dates, years_in

MAX_CALLS = 8  # of nine turns; the last one answers
_HIT = re.compile(r"^- (.+?): (.*)$", re.MULTILINE)
_CUT = re.compile(r"start=(\d+)\)?\]?\s*$")
_OPTIONS = re.compile(r"may refer to:?\n((?:- .+\n?)+)")
_NEAREST = re.compile(r"nearest titles are: (.+)$", re.MULTILINE)
_REDIRECT = re.compile(r"^\(redirected from .+? to (.+)\)$", re.MULTILINE)
_LESS = re.compile(r"\b(older|oldest|earlier|first|smaller|smallest|shorter|fewer|less|lower|least|sooner)\b", re.IGNORECASE)


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
        search = next((t for t in tools if "search" in tokens(t.name) and _text_parameter(t, ("query", "q", "question", "text", "term"))), None)
        if search is None:
            return None
        page = next((t for t in tools if t is not search and set(tokens(t.name)) & {"page", "article", "read", "open", "document"}), None)
        return cls(search, page) if page or len(tools) == 1 else None


def _text_parameter(tool: Tool, likely: tuple[str, ...]) -> str | None:
    names = tool.required or list(tool.properties)
    return next((n for n in names if n in likely), names[0] if len(names) == 1 else None)


class WikiAgent:
    """Works a question with search and pages."""

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
            if observation.tool == tool.name and all(observation.args.get(k) == v for k, v in args.items()) and len(
                observation.args
            ) == len(args):
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
        name = _text_parameter(self.tools.search, ("query", "q", "question", "text", "term")) or "query"
        text = self._need(self.tools.search, {name: query}, f"Search {query}.")
        return [(m[1], m[2]) for m in _HIT.finditer(text)]

    def read(self, title: str, wanted: str = "") -> str:
        """The page's text; reads on while the page is cut and nothing about `wanted` was found."""
        page = self.tools.page
        if page is None:
            return ""
        name = _text_parameter(page, ("title", "name", "page", "article")) or "title"
        text = self._need(page, {name: title}, f"Read the page {title}.")
        whole = text
        for _ in range(2):
            cut = _CUT.search(text)
            if not cut or "start" not in page.properties or not wanted:
                break
            if max((relation_score(s, wanted) for s in sentences(whole)), default=0.0) >= 0.75 * _full_score(wanted):
                break
            text = self._need(page, {name: title, "start": int(cut[1])}, f"Read on in {title}.")
            whole += "\n" + text
        return whole

    # -- the procedure -------------------------------------------------------------------------------

    def run(self) -> str | None:
        """The answer, or None when nothing was found. Raises Need for the next call."""
        try:
            if is_comparison(self.question):
                return self._compare()
            return self._bridge()
        except LookupError:
            return self.partial

    def _bridge(self) -> str | None:
        chunks = list(self.question.chunks)
        anchor = next((c for c in reversed(chunks) if c.names), None)
        if anchor is None:
            return self._open_search(self.question.text, chunks[0])
        if self.traits.slips("chain", 0.8, sampled=False) or "hasty" in self.traits:
            return self._shortcut(anchor, chunks[0])
        name = anchor.names[-1] if len(anchor.names) == 1 else anchor.names[0]
        others = tuple(n for c in chunks for n in c.names if n != name)
        links = [c.text for c in chunks[: anchor.depth + 1]]
        hint = _noun_before_name(anchor)
        if self._is_apposition(anchor) and len(links) > 1:
            links.pop()  # "the novel X": the name itself, its kind helps to choose the page
        elif hint and len(tokens(links[-1])) > 3:
            links[-1] = re.sub(rf"\b{re.escape(hint)}\b", "", links[-1], count=1, flags=re.IGNORECASE)
        self.kind = kind_of(links[0], self._lead())
        current, carried = name, ""
        for position in range(len(links) - 1, -1, -1):
            link = f"{links[position]} {carried}".strip()
            kind = kind_of(links[position], self._lead() if position == 0 else "")
            # "the lamp of the lighthouse": a part without a page of its own belongs to what is asked about it
            part = position > 0 and kind == "thing" and len([t for t in tokens(links[position]) if t not in STOP]) == 1
            found = self._resolve(current, link, kind, hint, others, final=position == 0, local=part)
            if found is None and part:
                carried = link
                continue
            if found is None:
                return self.partial
            current, hint, carried = found, links[position], ""
        return _plain_title(current)

    def _lead(self) -> str:
        match = re.match(r"(?:\w+ )?(who|whom|when|where|what|which|how)\b", self.question.text, re.IGNORECASE)
        return match[1].lower() if match else ""

    def _is_apposition(self, chunk: Chunk) -> bool:
        words = [t for t in tokens(chunk.text) if t not in STOP]
        if re.search(r"\b(?:of|by)$", chunk.text.strip()):
            return False
        return len(words) <= 2 and not re.search(r"\b(?:that|who|which|whose|where|was|is|has)\b|ed\b", chunk.text)

    def _resolve(
        self, name: str, link: str, kind: str, hint: str, others: tuple[str, ...], *, final: bool, local: bool = False
    ) -> str | None:
        """The value of one link, starting from a name: its page, else (not `local`) a search for name and link."""
        title, summary = self._page_of(name, hint)
        text = summary
        found = find(text, link, kind, title or name, avoid=others) if text else []
        if (title and self.tools.page) and ("read_page" in self.traits or not _good(found, link)):
            text = self.read(title, link)
            found = find(text, link, kind, title, avoid=others)
        if _good(found, link):
            return self._take(found[0], final)
        if local:
            return None
        # the page does not say it: another page may ("film based on the novel X")
        query = f"{_content(link)} {name}".strip()
        for other, said in self.search(query):
            if other == title:
                continue
            if kind in ("thing", "place", "person") and relation_score(f"{other}. {said}", link) >= 0.6 * _full_score(link) and (
                _mentions(said, name) or _mentions(other, name)
            ):
                if kind != "person" and self._is_of_kind(other, said, link):
                    self.evidence.append(said)
                    self.partial = other if final else self.partial
                    return other
            hits = find(said, link, kind, other, avoid=(*others, name))
            if not _good(hits, link) and self.tools.page and _mentions(f"{other} {said}", name):
                hits = find(self.read(other, link), link, kind, other, avoid=(*others, name))
            if _good(hits, link):
                return self._take(hits[0], final)
        return self._take(found[0], final) if found else None

    def _take(self, candidate: Candidate, final: bool) -> str:
        self.evidence.append(candidate.sentence)
        if final:
            self.partial = candidate.text
        return candidate.text

    def _is_of_kind(self, title: str, summary: str, link: str) -> bool:
        """Whether a page is about a thing of the link's head noun ("the fair that ..." -> "X Fair is a fair ...")."""
        head = next((t for t in tokens(link) if t not in STOP and t not in ("which", "what", "who")), "")
        first = sentences(summary)[0] if sentences(summary) else ""
        wanted = set(meaning(head))
        return bool(wanted & set(meaning(f"{title} {first}")))

    def _page_of(self, name: str, hint: str) -> tuple[str | None, str]:
        """(title, summary) of the page that is most likely meant by a name; its kind word settles ambiguity."""
        hits = self.search(name)
        best, best_score = None, -1.0
        for rank, (title, summary) in enumerate(hits):
            score = _title_score(title, name) - 0.1 * rank
            if "may refer to" in summary[:20]:
                score -= 0.8
            score += 0.5 * relation_score(f"{title} {sentences(summary)[0] if sentences(summary) else ''}", hint) if hint else 0.0
            if score > best_score and (_title_score(title, name) > 0.4 or _mentions(summary, name)):
                best, best_score = (title, summary), score
        return best if best else (None, "")

    def _shortcut(self, anchor: Chunk, outermost: Chunk) -> str | None:
        """Without the chain: look up the first name and take what its page offers for the final question."""
        kind = kind_of(outermost.text, self._lead())
        self.kind = kind
        title, summary = self._page_of(anchor.names[0], anchor.text)
        found = find(summary, outermost.text, kind, title or "")
        if not found and title and self.tools.page:
            found = find(self.read(title), outermost.text, kind, title)
        if not found and summary:
            names = [s.text for s in names_in(summary) if not _same_title(s.text, title or "")]
            return names[0] if names else None
        return self._take(found[0], True) if found else None

    def _open_search(self, query: str, outermost: Chunk) -> str | None:
        """No name in the question: search its content words and read the best page."""
        self.kind = kind = kind_of(outermost.text, self._lead())
        link = " ".join(c.text for c in self.question.chunks)
        for title, summary in self.search(_content(query))[:2]:
            found = find(summary, link, kind, title)
            if not found and self.tools.page:
                found = find(self.read(title, link), link, kind, title)
            if kind == "thing" and relation_score(summary, link) > 0.5 * _full_score(link):
                return _plain_title(title)
            if found:
                return self._take(found[0], True)
        return self.partial

    # -- comparisons ---------------------------------------------------------------------------------

    def _compare(self) -> str | None:
        text = self.question.text
        names = [s.text for s in names_in(text, join_weak=False)]
        names = names[-2:] if len(names) > 2 else names
        if any(" or " in name for name in names) or len(names) < 2:
            return None
        yes_no = bool(re.match(r"(?:are|were|is|was|do|does|did|have|has|had)\b", text, re.IGNORECASE))
        link = _without_names(text, names)
        hint = _first_noun(text)
        if self.traits.slips("chain", 0.4, sampled=False) or "hasty" in self.traits:
            names = names[:1]  # looks at one side only
        pages = []
        for name in names:
            title, summary = self._page_of(name, hint)
            body = summary
            if title and self.tools.page and ("read_page" in self.traits or not self._decides(summary, link, title, yes_no)):
                body = self.read(title, link)
            pages.append((name, title or name, body))
        self.kind = "yes" if yes_no else "thing"
        if len(pages) < 2:
            return "yes" if yes_no else names[0]
        self.evidence += [f"{title}: {body[:200]}" for _, title, body in pages]
        return self._same(pages, link) if yes_no else self._which(pages, link)

    def _decides(self, text: str, link: str, title: str, yes_no: bool) -> bool:
        if yes_no:
            return bool(self._values(text, link, title))
        return self._measure(text, link, title) is not None

    def _which(self, pages: list[tuple[str, str, str]], link: str) -> str | None:
        measured = [(self._measure(body, link, title), name) for name, title, body in pages]
        if any(value is None for value, _ in measured):
            scored = [(max((relation_score(s, link) for s in sentences(body)), default=0.0), name) for name, _, body in pages]
            return max(scored, key=lambda item: item[0])[1]
        least = bool(_LESS.search(self.question.text)) and not re.search(r"\bmost\b", self.question.text)
        younger = bool(re.search(r"\b(younger|later|newer|last)\b", self.question.text, re.IGNORECASE))
        pick = min if least and not younger else max
        return pick(measured, key=lambda item: item[0])[1]

    def _measure(self, text: str, link: str, title: str) -> float | None:
        """A sortable number for what is compared: a date as year.month.day, a size, a count."""
        low = link.lower()
        if re.search(r"\b(older|younger|born|oldest|youngest)\b", low):
            kind, words = "date", "born birth"
        elif re.search(r"\b(earlier|later|first|last|newer|founded|published|released|opened|established|sooner)\b", low):
            kind, words = "date", re.sub(r"\b(?:first|last|earlier|later)\b", "", low)
        else:
            kind, words = "number", _size_words(low)
        found = find(text, words, kind, title)
        if not found and kind == "date":
            years = years_in(text)
            return float(years[0]) if years else None
        if not found:
            return None
        value = found[0].text
        if kind == "date":
            dates = find_dates(value)
            if dates:
                return dates[0].year + dates[0].month / 100 + dates[0].day / 10000
            years = years_in(value)
            return float(years[0]) if years else None
        number = number_of(value)
        return float(number) if number is not None else None

    def _same(self, pages: list[tuple[str, str, str]], link: str) -> str:
        left, right = (self._values(body, link, title) for _, title, body in pages)
        if "same" in tokens(link) or re.search(r"\bboth (?:located|born|based|from|in)\b", link):
            target = names_in(link, join_weak=False)
            if "same" not in tokens(link) and target:
                return "yes" if all(_mentions(body, target[-1].text) for _, _, body in pages) else "no"
            return "yes" if any(_alike(a, b) for a in left for b in right) else "no"
        wanted = [t for t in tokens(link) if t not in STOP and t not in ("both", "each", "type", "kind")]
        ok = all(any(set(meaning(w)) & set(meaning(" ".join(sentences(body)[:2]))) for w in wanted[:1]) for _, _, body in pages)
        return "yes" if ok else "no"

    def _values(self, text: str, link: str, title: str) -> list[str]:
        """What a page says about the shared thing: its nationality, or the names in the sentences about the link."""
        if re.search(r"\bnationality\b|\bcountry\b", link, re.IGNORECASE):
            found = [nationality_of(text)] if nationality_of(text) else []
            places = [c.text for c in find(text, "located in country city river born lies", "place", title)]
            return [f for f in found if f] or places
        scored = [(relation_score(s, link), s) for s in sentences(text)]
        top = max((score for score, _ in scored), default=0.0)
        chosen = [s for score, s in scored if score > 0.3 and score >= 0.6 * top]
        names = []
        for sentence in chosen:
            for span in names_in(sentence, join_weak=False):
                if not _same_title(span.text, title):
                    names += [part.strip() for part in span.text.split(",")][:1]
        return names


# -- small helpers ------------------------------------------------------------------------------------


def _noun_before_name(chunk: Chunk) -> str:
    """The common noun that says what a name is ("the novel X"), empty when there is none."""
    word = chunk.noun.lower()
    return word if word and word not in STOP and not word.endswith("ed") and word != "born" else ""


def _good(found: list[Candidate], link: str) -> bool:
    return bool(found) and found[0].score >= 0.55 * _full_score(link)


def _full_score(link: str) -> float:
    own = [t for t in dict.fromkeys(tokens(link)) if t not in STOP and t not in ("first", "last", "name", "year", "date")]
    return max(1.0, 1.0 * min(len(own), 2))


def _content(link: str) -> str:
    return " ".join(t for t in tokens(link) if t not in STOP)


def _mentions(text: str, name: str) -> bool:
    return _plain_title(name).casefold() in text.casefold()


def _plain_title(title: str) -> str:
    return re.sub(r"\s*\([^()]*\)$", "", title)


def _same_title(a: str, b: str) -> bool:
    fold = lambda t: re.sub(r"^the ", "", _plain_title(t).casefold())  # noqa: E731
    return fold(a) == fold(b)


def _title_score(title: str, name: str) -> float:
    if title.casefold() == name.casefold():
        return 1.0
    if _same_title(title, name):
        return 0.95
    left, right = set(tokens(title)) - STOP, set(tokens(name)) - STOP
    return 0.9 * len(left & right) / max(1, len(left | right))


def _without_names(text: str, names: list[str]) -> str:
    for name in names:
        text = text.replace(name, " ")
    return " ".join(text.rstrip("?. ").split())


def _first_noun(text: str) -> str:
    match = re.match(r"(?:which|what|are|were|do|did|is|was)\s+(?:the\s+)?([a-z]+)", text, re.IGNORECASE)
    return match[1] if match and match[1].lower() not in STOP else ""


def _size_words(low: str) -> str:
    for words, pattern in (
        ("population people inhabitants", r"populat|people|inhabit|populous|larger population"),
        ("long length kilometres metres", r"long|short|length"),
        ("high height metres tall", r"high|tall|low"),
        ("deep depth metres", r"deep|shallow"),
        ("area square", r"large|big|small|area"),
        ("heavy weight", r"heav|light|weigh"),
    ):
        if re.search(pattern, low):
            return words
    return low


def _alike(a: str, b: str) -> bool:
    a, b = a.casefold().strip(), b.casefold().strip()
    return a == b or (len(a) > 3 and len(b) > 3 and a[:4] == b[:4] and " " not in a and " " not in b)
