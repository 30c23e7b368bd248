"""The planted world: what each role needs for each row, what its members write, and what a team is truly worth.

Every role has ten rules. Two are needed, one is harmful, one belongs to the landscape (a format, a decoy, a strategy);
the rest do nothing. A model follows three. For each of 64 rows and each member it is drawn which of the two needed
rules matters.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from benchmarks.planted_world.texts import RULES, Note, rules_of
from benchmarks.planted_world.topology import Topology, role_of, topology
from metrics.errors import ConfigurationError
from programs.seeds import stable_hash

ROWS = 64
GUESS = 0.3  # share of rows on which a reader does without a message that is missing
NEW_FORMAT = 0.4  # HANDOFF: share of rows that need the new format everywhere
OPPOSED = 0.6  # XOR: share of rows that need different strategies
ABLE = 0.7  # WEAKLINK: chance that a colleague can serve a row
ALONE = 0.3  # WEAKLINK: share of rows that nobody but the weak role can serve
LANDSCAPES: dict[str, str] = {
    "AND": "every role must have the rule that the row needs, and no harmful one",
    "HANDOFF": "AND, and neighbours must use one format; 40% of the rows need the new one everywhere",
    "TRAP": "AND, and two decoy rules of one role make its notes look better and its reader unable to read them",
    "WEAKLINK": "one good colleague is enough; one of them lacks both rules it needs, and 30% of the rows need it",
    "REDUNDANT": "two colleagues with the same skill, and their reader takes either",
    "XOR": "AND, and on 60% of the rows the first two roles must work by different strategies",
    "PARITY": "XOR among three roles: no pair of them shows it",
    "STYLE": "a graded score, linear in the style of each role with a bonus per edge; no feedback",
    "FLAT": "the score is a coin that is tossed once per row; prompts do nothing",
    "NOISE": "FLAT, and every change of a text tosses the coins again",
}

Rules = Mapping[str, Sequence[int]]  # role -> the rules it follows
Luck = Callable[[str], float]  # what is decided -> a number in [0, 1)


@dataclass(frozen=True)
class RoleTable:
    """What is planted for one role: `needed` (two rules), `harmful`, `special` (the landscape's), `decoys` (TRAP) and
    `start`.
    """

    needed: tuple[int, int]
    harmful: int
    special: int
    decoys: tuple[int, int]
    start: tuple[int, ...]
    weights: tuple[float, ...]  # STYLE: worth of each rule


@dataclass(frozen=True)
class RowTable:
    """What is planted for one row; see the landscapes."""

    gold: int
    which: Mapping[str, int]  # member -> 0 or 1: which of its needed rules matters
    able: frozenset[str]
    guess: frozenset[str]  # members whose silence does no harm
    new_format: bool
    opposed: bool


@dataclass(frozen=True)
class World:
    """One landscape on one topology, drawn by `seed`. `eta`: chance that a member's `ok` is turned around."""

    landscape: str
    topology: Topology
    seed: int
    roles: Mapping[str, RoleTable]
    rows: tuple[RowTable, ...]
    weak: str | None = None  # WEAKLINK: the role to find
    decoy: str | None = None  # TRAP: the role that has one
    eta: float = 0.0
    bonus: Mapping[tuple[str, str, int, int], float] = field(default_factory=dict)  # STYLE: (writer, reader, styles)

    # -- what a member writes ----------------------------------------------------------------------

    @cached_property
    def takes_any(self) -> frozenset[str]:
        """Members for whom one good message is enough."""
        if self.landscape not in ("WEAKLINK", "REDUNDANT"):
            return frozenset()
        return frozenset(m for m, parents in self.topology.parents.items() if len(parents) > 1)

    def own_part(self, member: str, rules: Sequence[int], row: RowTable) -> str:
        """The `ok` of a member's note, chance apart."""
        if self.landscape in ("FLAT", "NOISE", "STYLE"):
            return "1"
        if member not in row.able:
            return "u"
        table = self.roles[role_of(member)]
        if table.harmful in rules:
            return "-"
        return "1" if table.needed[row.which[member]] in rules else "0"

    def style(self, role: str, rules: Sequence[int]) -> str:
        """What a landscape lets a rule add to a note."""
        table = self.roles[role]
        if self.landscape == "TRAP":
            return "polished" if role == self.decoy and self.trapped(rules) else ""
        if role in self.opponents:
            return "B" if table.special in rules else "A"
        if self.landscape == "STYLE":
            return f"s{max(rules, key=lambda r: table.weights[r])}" if rules else ""
        return ""

    def trapped(self, rules: Sequence[int]) -> bool:
        """TRAP: whether the role with the decoys follows one of them."""
        return self.decoy is not None and bool(set(self.roles[self.decoy].decoys) & set(rules))

    @cached_property
    def opponents(self) -> tuple[str, ...]:
        """XOR, PARITY: the roles whose strategies have to go together."""
        return self.topology.roles[: {"XOR": 2, "PARITY": 3}.get(self.landscape, 0)]

    def note(
        self, member: str, rules: Sequence[int], number: int, messages: Mapping[str, Note | None], luck: Luck | None
    ) -> Note:
        """What a member writes on row `number`. `messages`: what each of its sources wrote, None for silence."""
        row, role = self.rows[number], role_of(member)
        ok = self.own_part(member, rules, row)
        if luck is not None:
            coin = self.landscape in ("FLAT", "NOISE") and member == self.topology.sink
            if (coin and luck("coin") < 0.5) or (self.eta and luck("eta") < self.eta):
                ok = {"1": "0", "0": "1"}.get(ok, ok)
        new = self.landscape == "HANDOFF" and self.roles[role].special in rules
        fmt = "B" if new else "A"
        read, inherited = self._inherit(member, fmt, row, messages)
        done = ok == "1" and inherited and not (row.new_format and not new)
        style = self.style(role, rules)
        if role in self.opponents:  # strategies travel with the notes
            style = "".join(n.style for n in messages.values() if n is not None) + style
            done = done and not (row.opposed and role == self.opponents[-1] and not strategies_fit(style))
        return Note(member, ok, read, fmt, row.gold if done else wrong_value(row.gold), style)

    def _inherit(self, member: str, fmt: str, row: RowTable, messages: Mapping[str, Note | None]) -> tuple[bool, bool]:
        """(it could read what it was sent, what it was sent was right)."""
        if not messages:
            return True, True
        heard = {sender: note for sender, note in messages.items() if note is not None}
        readable = {sender: self.readable(note, fmt) for sender, note in heard.items()}
        right = {sender: readable[sender] and note.val == row.gold for sender, note in heard.items()}
        silent = {sender: sender in row.guess for sender in messages if sender not in heard}
        if member in self.takes_any:
            return (any(readable.values()) if heard else True), (any(right.values()) if heard else all(silent.values()))
        return all(readable.values()), all(right.values()) and all(silent.values())

    def readable(self, note: Note, fmt: str) -> bool:
        """Whether a reader that works in format `fmt` can make out a note."""
        return note.style != "polished" and (self.landscape != "HANDOFF" or note.fmt == fmt)

    def run(self, rules: Rules, number: int, luck: Luck | None = None) -> dict[str, Note]:
        """The notes of a whole run, by member."""
        notes: dict[str, Note] = {}
        for member in self.topology.members:
            messages = {p: notes[p] for p in self.topology.parents[member]}
            notes[member] = self.note(member, rules[role_of(member)], number, messages, luck)
        return notes

    # -- what it is worth --------------------------------------------------------------------------

    def score(self, number: int, notes: Mapping[str, Note]) -> float:
        """The score of a run, from the notes of the members that spoke.

        When the last member is silent, the last note there is stands for the answer; that does on a few rows.
        """
        if not notes:
            return 0.0
        if self.landscape == "STYLE":
            return self._style_score(notes)
        row, sink = self.rows[number], self.topology.sink
        last = notes.get(sink) or notes[[m for m in self.topology.members if m in notes][-1]]
        return float(last.val == row.gold and (last.by == sink or sink in row.guess))

    def _style_score(self, notes: Mapping[str, Note]) -> float:
        worth = [self.roles[n.role].weights[int(n.style[1:])] if n.style else 0.0 for n in notes.values()]
        styles = {m: int(n.style[1:]) if n.style else -1 for m, n in notes.items()}
        extra = [self.bonus.get((a, b, styles.get(a, -1), styles.get(b, -1)), 0.0) for a, b in self.topology.edges]
        members = len(self.topology.members)
        return 0.7 * sum(worth) / members + 0.3 * sum(extra) / max(1, len(extra))

    def true_score(self, rules: Rules) -> float:
        """The mean over all rows without any chance: never an estimate."""
        if self.landscape in ("FLAT", "NOISE"):
            return 0.5
        rows = range(1 if self.landscape == "STYLE" else len(self.rows))  # styles are worth the same on every row
        return sum(self.score(n, self.run(rules, n)) for n in rows) / len(rows)

    @cached_property
    def optimum(self) -> float:
        """The true score of the best prompts: planted, or found among all styles."""
        if self.landscape != "STYLE":
            return self.true_score({role: self.best_rules(role) for role in self.roles})
        choices = itertools.product(range(RULES), repeat=len(self.roles))
        return max(self.true_score({r: (k,) for r, k in zip(self.roles, c, strict=True)}) for c in choices)

    def best_rules(self, role: str) -> tuple[int, ...]:
        """Planted rules that a role does best with (one of several optima in XOR)."""
        table = self.roles[role]
        if self.landscape in ("FLAT", "NOISE", "STYLE"):
            return table.start
        special = self.landscape == "HANDOFF" or role in self.opponents[-1:]
        return (*table.needed, *([table.special] if special else []))

    @property
    def start(self) -> dict[str, tuple[int, ...]]:
        """The rules of the program as it is handed to an optimizer."""
        return {role: table.start for role, table in self.roles.items()}

    def lacking(self, number: int, notes: Mapping[str, Note]) -> list[tuple[str, int]]:
        """(role, rule) of every rule for whose lack a run failed; empty when a surplus rule is the reason."""
        row, found = self.rows[number], []
        last = next((n.style for n in notes.values() if n.role == self.opponents[-1]), "") if row.opposed else ""
        for member, note in notes.items():
            table = self.roles[note.role]
            if note.ok == "0" and self.landscape not in ("FLAT", "NOISE"):
                found.append((note.role, table.needed[row.which[member]]))
            readers = [notes[c].fmt for c in self.topology.children[member] if c in notes]
            sources = [notes[p].fmt for p in self.topology.parents[member] if p in notes]
            if self.landscape == "HANDOFF" and note.fmt == "A" and (row.new_format or "B" in (*readers, *sources)):
                found.append((note.role, table.special))
            if last and not strategies_fit(last) and note.role in self.opponents and note.style[-1] == "A":
                found.append((note.role, table.special))
        return found

    # -- what a judge can know ---------------------------------------------------------------------

    def competence(self, number: int, note: Note) -> float:
        """How well a member did its own part, whatever it was sent, in [0, 1]."""
        if self.landscape == "STYLE":
            return self.roles[note.role].weights[int(note.style[1:])] if note.style else 0.0
        done = note.ok == "1" and not (self.rows[number].new_format and note.fmt == "A")
        if note.role == self.decoy:
            return 0.75 * done + 0.25 * (note.style == "polished")
        if note.role in self.opponents:
            liked = "B" if note.role in self.opponents[:2] else "A"
            return 0.8 * done + 0.2 * (note.style[-1] == liked)
        return float(done)

    def usefulness(self, number: int, note: Note) -> float:
        """How much a note helps the team, in [0, 1.3]: nothing when its writer could not read what it was sent."""
        if self.landscape == "STYLE":
            return self.competence(number, note)
        polish = 0.3 * (note.style == "polished")
        if not note.read:
            return polish
        done = note.ok == "1" and not (self.rows[number].new_format and note.fmt == "A")
        return 0.4 + 0.4 * done + 0.2 * (note.val == self.rows[number].gold) + polish

    def compatibility(self, note: Note, reader: str, rules: Sequence[int]) -> float:
        """How usable a note is for a reader that follows `rules`: 0.9, or 0.05 when the two do not go together."""
        fmt = "B" if self.landscape == "HANDOFF" and self.roles[reader].special in rules else "A"
        fits = self.readable(note, fmt)
        if self.landscape == "XOR" and {note.role, reader} == set(self.opponents):
            fits = strategies_fit(note.style + self.style(reader, rules))
        if self.landscape == "STYLE" and note.style and rules:
            styles = int(note.style[1:]), int(self.style(reader, rules)[1:])
            return 0.05 + 0.85 * self.bonus.get((note.by, reader, *styles), 0.0)
        return 0.9 if fits else 0.05


def wrong_value(gold: int) -> int:
    return 10 + (gold + 33) % 90


def strategies_fit(styles: str) -> bool:
    """XOR, PARITY: an odd number of the opponents works by strategy B."""
    return styles.count("B") % 2 == 1


def rules_by_role(instructions: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """What each role follows, from instructions by role."""
    return {role: rules_of(text) for role, text in instructions.items()}


def make_world(landscape: str, shape: str, seed: int, *, eta: float = 0.0, weak: str | None = None) -> World:
    """Draw a world; equal arguments give the same one. `weak` names WEAKLINK's role instead of drawing it."""
    if landscape not in LANDSCAPES:
        raise ConfigurationError(f"unknown landscape {landscape!r}; there are {', '.join(LANDSCAPES)}")
    team = topology(shape)
    rng = random.Random(stable_hash("planted", landscape, shape, seed))
    if landscape in ("WEAKLINK", "REDUNDANT") and not team.parallel:
        raise ConfigurationError(f"{landscape} needs colleagues side by side, which {shape} does not have")
    if landscape in ("XOR", "PARITY") and not shape.startswith("chain"):
        raise ConfigurationError(f"{landscape} needs a chain")
    colleagues = [role_of(m) for m in team.parallel]
    weak = (weak or rng.choice(colleagues)) if landscape == "WEAKLINK" else None
    writers = [role_of(m) for m in team.members if team.children[m]]
    decoy = rng.choice(writers) if landscape == "TRAP" else None
    roles = {role: _role_table(landscape, role == weak, rng) for role in team.roles}
    if landscape == "REDUNDANT":
        roles |= dict.fromkeys(colleagues, roles[colleagues[0]])
    rows = tuple(_row_table(landscape, team, weak, rng) for _ in range(ROWS))
    bonus = {}
    if landscape == "STYLE":
        bonus = {(a, b, x, y): rng.random() for a, b in team.edges for x in range(RULES) for y in range(RULES)}
    return World(landscape, team, seed, roles, rows, weak, decoy, eta, bonus)


def _role_table(landscape: str, weak: bool, rng: random.Random) -> RoleTable:
    first, second, harmful, special, other = rng.sample(range(RULES), 5)
    start: tuple[int, ...] = (first,)
    if landscape == "WEAKLINK":
        start = () if weak else (first, second)
    weights = tuple(rng.random() for _ in range(RULES))
    return RoleTable((first, second), harmful, special, (special, other), start, weights)


def _row_table(landscape: str, team: Topology, weak: str | None, rng: random.Random) -> RowTable:
    which = {m: rng.randrange(2) for m in team.members}
    able = set(team.members)
    if landscape == "REDUNDANT":
        which |= dict.fromkeys(team.parallel, which[team.parallel[0]])
    if landscape == "WEAKLINK":
        groups: dict[tuple[str, ...], list[str]] = {}
        for m in team.parallel:
            groups.setdefault((*team.parents[m], *team.children[m]), []).append(m)
        for group in groups.values():
            serving = {weak} if weak in group and rng.random() < ALONE else set()
            while not serving:
                serving = {m for m in group if rng.random() < ABLE}
            able -= set(group) - serving
    return RowTable(
        gold=rng.randrange(10, 100),
        which=which,
        able=frozenset(able),
        guess=frozenset(m for m in team.members if rng.random() < GUESS),
        new_format=landscape == "HANDOFF" and rng.random() < NEW_FORMAT,
        opposed=landscape in ("XOR", "PARITY") and rng.random() < OPPOSED,
    )
