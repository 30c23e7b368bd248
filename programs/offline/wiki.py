"""An agent with a search tool and a page tool: search the entity, read the page, follow the bridge, pick the span.

The procedure is written as plain code over what the trajectory already shows; where a text is missing it stops with
the call that would give it. So every request derives its next call anew, and equal requests give equal calls.
"""

from __future__ import annotations

import re

from programs.offline.names import names_in
from programs.offline.passages import Candidate, find, kind_of, relation_score, sentences
from programs.offline.question import Chunk, is_comparison
from programs.offline.wiki_compare import WikiComparison
from programs.offline.wiki_reader import Need, WikiTools, content, full_score, mentions, plain_title, same_title
from programs.offline.words import STOP, meaning, tokens

__all__ = ["Need", "WikiAgent", "WikiTools"]


class WikiAgent(WikiComparison):
    """Works a question with search and pages."""

    def run(self) -> str | None:
        """The answer, or None when nothing was found. Raises Need for the next call."""
        try:
            if is_comparison(self.question):
                return self.compare()
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
        return plain_title(current)

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
        title, summary = self.page_of(name, hint)
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
        query = f"{content(link)} {name}".strip()
        for other, said in self.search(query):
            if other == title:
                continue
            if (
                kind in ("thing", "place")
                and relation_score(f"{other}. {said}", link) >= 0.6 * full_score(link)
                and (mentions(said, name) or mentions(other, name))
                and self._is_of_kind(other, said, link)
            ):
                self.evidence.append(said)
                self.partial = other if final else self.partial
                return other
            hits = find(said, link, kind, other, avoid=(*others, name))
            if not _good(hits, link) and self.tools.page and mentions(f"{other} {said}", name):
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

    def _shortcut(self, anchor: Chunk, outermost: Chunk) -> str | None:
        """Without the chain: look up the first name and take what its page offers for the final question."""
        kind = kind_of(outermost.text, self._lead())
        self.kind = kind
        title, summary = self.page_of(anchor.names[0], anchor.text)
        found = find(summary, outermost.text, kind, title or "")
        if not found and title and self.tools.page:
            found = find(self.read(title), outermost.text, kind, title)
        if not found and summary:
            names = [s.text for s in names_in(summary) if not same_title(s.text, title or "")]
            return names[0] if names else None
        return self._take(found[0], True) if found else None

    def _open_search(self, query: str, outermost: Chunk) -> str | None:
        """No name in the question: search its content words and read the best page."""
        self.kind = kind = kind_of(outermost.text, self._lead())
        link = " ".join(c.text for c in self.question.chunks)
        for title, summary in self.search(content(query))[:2]:
            found = find(summary, link, kind, title)
            if not found and self.tools.page:
                found = find(self.read(title, link), link, kind, title)
            if kind == "thing" and relation_score(summary, link) > 0.5 * full_score(link):
                return plain_title(title)
            if found:
                return self._take(found[0], True)
        return self.partial


def _noun_before_name(chunk: Chunk) -> str:
    """The common noun that says what a name is ("the novel X"), empty when there is none."""
    word = chunk.noun.lower()
    return word if word and word not in STOP and not word.endswith("ed") and word != "born" else ""


def _good(found: list[Candidate], link: str) -> bool:
    return bool(found) and found[0].score >= 0.55 * full_score(link)
