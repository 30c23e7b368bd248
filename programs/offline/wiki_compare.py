"""Comparing two pages: which is older, longer, larger ..., and whether both share a nationality, a river, a town."""

from __future__ import annotations

import re

from programs.offline.dates import find_dates, years_in
from programs.offline.names import names_in
from programs.offline.passages import find, nationality_of, relation_score, sentences
from programs.offline.wiki_reader import WikiReader, mentions, same_title
from programs.offline.words import STOP, meaning, number_of, tokens

_LESS = re.compile(
    r"\b(older|oldest|earlier|first|smaller|smallest|shorter|fewer|less|lower|least|sooner)\b", re.IGNORECASE
)

Page = tuple[str, str, str]  # the name in the question, the page's title, its text


class WikiComparison(WikiReader):
    """Questions about two things: reads both, then decides by what is compared."""

    kind: str

    def compare(self) -> str | None:
        """The answer of a comparison. Without `chain` only one side is looked at."""
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
            title, summary = self.page_of(name, hint)
            body = summary
            if (
                title
                and self.tools.page
                and ("read_page" in self.traits or not self._decides(summary, link, title, yes_no))
            ):
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

    def _which(self, pages: list[Page], link: str) -> str | None:
        measured = [
            (value, name) for name, title, body in pages if (value := self._measure(body, link, title)) is not None
        ]
        if len(measured) < len(pages):
            scored = [
                (max((relation_score(s, link) for s in sentences(body)), default=0.0), name) for name, _, body in pages
            ]
            return max(scored, key=lambda item: item[0])[1]
        least = bool(_LESS.search(self.question.text)) and not re.search(r"\bmost\b", self.question.text)
        younger = bool(re.search(r"\b(younger|later|newer|last)\b", self.question.text, re.IGNORECASE))
        ranked = sorted(measured, key=lambda item: item[0])
        return ranked[0 if least and not younger else -1][1]

    def _measure(self, text: str, link: str, title: str) -> float | None:
        """A sortable number for what is compared: a date as year.month.day, a size, a count."""
        low = link.lower()
        if re.search(r"\b(older|younger|born|oldest|youngest)\b", low):
            kind, words = "date", "born birth"
        elif re.search(
            r"\b(earlier|later|first|last|newer|founded|published|released|opened|established|sooner)\b", low
        ):
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

    def _same(self, pages: list[Page], link: str) -> str:
        left, right = (self._values(body, link, title) for _, title, body in pages)
        if "same" in tokens(link) or re.search(r"\bboth (?:located|born|based|from|in)\b", link):
            target = names_in(link, join_weak=False)
            if "same" not in tokens(link) and target:
                return "yes" if all(mentions(body, target[-1].text) for _, _, body in pages) else "no"
            return "yes" if any(_alike(a, b) for a in left for b in right) else "no"
        wanted = [t for t in tokens(link) if t not in STOP and t not in ("both", "each", "type", "kind")]
        ok = all(
            any(set(meaning(w)) & set(meaning(" ".join(sentences(body)[:2]))) for w in wanted[:1])
            for _, _, body in pages
        )
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
                if not same_title(span.text, title):
                    names += [part.strip() for part in span.text.split(",")][:1]
        return names


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
