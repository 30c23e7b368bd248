"""The plain-language directives that the engine obeys, how it recognises them, and how a proposer words them.

The full table with effects is in the docstring of `programs/offline_lm.py`; each directive is recognised in several
phrasings, never inside a negation, and only in the instruction text (not in questions, tool results or reports).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Directive:
    """One directive: its key, the phrasings that count, and how the engine itself would write it."""

    key: str
    pattern: str
    wording: str
    helps: bool = True


_TABLE = (
    Directive(
        "chain",
        r"one (?:hop|step|fact|thing|link|sub-?question|unknown) at a time|(?:hop|step)[- ]by[- ](?:hop|step)|"
        r"break (?:the (?:question|problem|task)|it|this|them) (?:down )?into|(?:split|decompose|divide) (?:the|"
        r"each|every) "
        r"(?:question|problem|task)|from the inside out|innermost|in the order in which they|each (?:hop|step) "
        r"in turn|"
        r"(?:use|feed) (?:each|every|the) (?:result|value|answer) (?:in|into|for) the next|follow the (?:whole |"
        r"full )?chain|"
        r"every hop",
        "Work one hop at a time: find the first unknown, then use its value in the next step.",
    ),
    Directive(
        "use_tools",
        r"(?:use|trust|rely on|prefer|base \w+(?: \w+)? on) (?:the |each |its |their )?(?:tools?|tool results?|"
        r"results? of the tools?)"
        r"[^.;]{0,60}(?:rather than|not|instead of|over|never|before) [^.;]{0,40}(?:memory|remember|head|"
        r"knowledge|guess\w*)|"
        r"(?:never|not|do not|don't) (?:\w+ ){0,4}(?:from|on|by) (?:\w+ )?(?:memory|heart|head|guesswork)|"
        r"compute with (?:a|the) tool|(?:use|call) a tool for (?:every|each|any)|(?:never|not|don't) (?:guess|"
        r"compute in)",
        "Trust tool results rather than memory, and compute with a tool.",
    ),
    Directive(
        "bare",
        r"(?:answer|reply|respond|end|finish)(?: \w+){0,3} with (?:only the|just the|nothing but the|the)(?: "
        r"\w+){0,2} "
        r"(?:value|answer|name|number)(?: only| alone| itself)?(?=[,.; ]|$)(?=[^.]{0,60}(?:only|alone|nothing|"
        r"without|no )|[^.]*$)|"
        r"(?:only|just|nothing but) the (?:\w+ )?(?:value|short answer|answer itself)|\bvalue only\b|"
        r"no (?:extra|other|additional|further|surrounding) words|(?:no|without|not) (?:a |any |full )*"
        r"(?:explanation|sentence|extra words)(?: around)?|nothing else",
        "Answer with the value only, no extra words.",
    ),
    Directive(
        "iso",
        r"\bISO(?:[- ]?8601)?\b|YYYY-MM-DD|year-month-day",
        "Write dates in ISO form (YYYY-MM-DD).",
    ),
    Directive(
        "names",
        r"full names?|first ?names?,? (?:and|then|followed by|plus) (?:the )?(?:last|family|sur) ?names?|"
        r"firstname lastname|"
        r"first and last names?|given name (?:and|then|followed by) (?:the )?family name",
        "Write persons as Firstname Lastname, in full.",
    ),
    Directive(
        "check",
        r"(?:check|verify|double-check|make sure|confirm)(?: \w+){0,5} before (?:you )?(?:answer\w*|finish\w*|"
        r"report\w*|reply\w*)|"
        r"before (?:you )?(?:answer\w*|finish\w*|report\w*),? (?:check|verify|make sure|confirm)|"
        r"check (?:that|whether) (?:the|your) (?:value|answer|result)|of the kind that is asked",
        "Check before answering that the value is of the kind that is asked for.",
    ),
    Directive(
        "read_page",
        r"(?:read|open) (?:the |each |every )?(?:(?:full|whole|entire|actual) )?(?:pages?|articles?)\b|"
        r"(?:not|beyond|more than) (?:only |just )?(?:the |a )?(?:summar(?:y|ies)|snippets?)",
        "Read the whole page, not only the summary.",
    ),
    Directive(
        "retry",
        r"(?:when|if|whenever|after) (?:a |the |any )?(?:call|tool|lookup|search)(?: call)? (?:fails|returns an "
        r"error|"
        r"gives an error)|(?:retry|try again|call it again|correct the call|repeat the call)(?: \w+){0,4}|"
        r"read (?:the |every |each )?error|(?:suggested|closest|nearest|exact) (?:key|name|spelling)|another "
        r"spelling",
        "When a call fails, read the error text and retry with the suggested key.",
    ),
    Directive(
        "delegate",
        r"delegat\w+ (?:every|each|all|the (?:first|next))|(?:ask|use) (?:a |an |the |another )?(?:member|worker|"
        r"team-?mate|"
        r"assistant|expert)s? (?:\w+ ){0,2}(?:for|about) (?:every|each|all)|ask for the first unknown|"
        r"ask one sub-?question at a time|in the next delegation|one sub-?question (?:at a time|per)",
        "Delegate every step: ask one sub-question at a time and use the reported value in the next.",
    ),
    Directive(
        "evidence",
        r"(?:the |with |and |its |their )(?:tool results?|evidence|sources?) (?:it|they|that|on which|from which|"
        r"for|behind)|"
        r"with (?:the |its |their )?(?:evidence|source)|(?:state|report|include|quote) (?:\w+ ){0,3}value|"
        r"(?:give|include|quote) (?:\w+ ){0,3}evidence|steps that lead to it|"
        r"what it rests on|each with its source|chain of values|values? found",
        "Report the value found, copied exactly, with the evidence for it.",
    ),
    Directive(
        "compare",
        r"(?:keep|change) (?:yours|your answer|it) (?:when|if|only|unless)|compare (?:them|the (?:answers|"
        r"reports|evidence))|"
        r"prefer (?:the|a|reports?) (?:one |value |answer |report )?(?:that|which|with)|where (?:reports|"
        r"answers) disagree|"
        r"weigh the evidence",
        "Where answers disagree, prefer the one with a tool result behind it.",
    ),
    Directive(
        "hasty",
        r"answer (?:at once|immediately|right away|directly|straight away|as (?:fast|quickly|soon) as)|as few "
        r"(?:tool )?(?:calls|"
        r"steps) as|(?:one|a single) (?:tool )?call is enough|be (?:very )?(?:quick|fast)|do not waste",
        "Answer at once, with as few calls as possible.",
        False,
    ),
    Directive(
        "verbose",
        r"explain (?:\w+ ){0,4}(?:at length|in detail|in the answer|on the answer line)|(?:in|with|as) (?:a "
        r")?(?:complete|full|whole) "
        r"sentences?|write (?:a |one )?(?:short )?(?:paragraph|essay)|(?:very |highly )?(?:informative and "
        r"descriptive|descriptive) "
        r"answers?|answer in detail",
        "Answer in full sentences and explain at length on the answer line.",
        False,
    ),
    Directive(
        "memory",
        r"(?:use|rely on|trust|answer from|draw on) (?:your )?(?:own |general |background |world )?(?:knowledge|"
        r"memory)",
        "Rely on your own knowledge.",
        False,
    ),
    Directive(
        "capitals",
        r"(?:in|use) (?:all )?(?:capital letters|capitals|upper ?case|block letters)",
        "Write the answer in capital letters.",
        False,
    ),
)
TABLE: dict[str, Directive] = {directive.key: directive for directive in _TABLE}
_COMPILED = {directive.key: re.compile(directive.pattern, re.IGNORECASE) for directive in _TABLE}
_NEGATION = re.compile(
    r"(?:\bnot|\bnever|n't|\bavoid|\brather than|\binstead of|\bover|\bwithout|\bno need to|\bbut "
    r"not)(?:\s+\w+){0,3}\s*$",
    re.IGNORECASE,
)
# wording that carries its own negation ("never compute from memory", "no extra words")
_OWN_NEGATION = frozenset({"use_tools", "bare", "read_page"})

# harmless sentences that a proposer without feedback may add
FILLERS = (
    "You are a careful researcher.",
    "Take a deep breath and think about the question.",
    "The stakes are high: people rely on your answer.",
    "Be creative when you look for a way.",
    "Keep the thought short and clear.",
)


@lru_cache(maxsize=2048)
def recognise(instruction: str) -> frozenset[str]:
    """Keys of the directives that stand in an instruction text."""
    text = " ".join(instruction.split())
    found = set()
    for key, pattern in _COMPILED.items():
        for match in pattern.finditer(text):
            if key in _OWN_NEGATION or not _NEGATION.search(text[: match.start()]):
                found.add(key)
                break
    return frozenset(found)
