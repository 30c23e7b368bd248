"""What is run: settings of single runs, entries of a table, and the standard grid. Needs no dspy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

BUDGET = 600
SEEDS = 30
NOISE = 0.05  # of the judge, on a scale of 0 to 1

# Entries of a table: name -> (method, options). Demos mean nothing to the simulated models, so MIPROv2 makes none.
ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "mapro": ("mapro", {}),
    "mapro-no-edges": ("mapro", {"edge_power": 0.0}),
    "mapro-no-waiting": ("mapro", {"waiting": False}),
    "mapro-same-rows": ("mapro", {"fresh_rows": False}),
    "mapro-patience3": ("mapro", {"patience": 3}),
    "mapro-plain": ("mapro", {"patience": 3, "fresh_rows": False, "waiting": False}),
    "mapro-listwise": ("mapro", {"judge": "listwise"}),
    "mapro-paper": ("mapro", {"preset": "paper"}),
    "mapro-peer": ("mapro", {"preset": "peer"}),
    "maspo": ("maspo", {}),
    "maspo-local": ("maspo", {"weights": (1.0, 0.0, 0.0), "refresh_weights": (1.0, 0.0)}),
    "maspo-no-labels": ("maspo", {"global_signal": "judge"}),
    "maspo-fractional": ("maspo", {"price": "fractional"}),
    "maspo-paper": ("maspo", {"preset": "paper"}),
    "hivemind": ("hivemind", {}),
    "hivemind-exact": ("hivemind", {"credit": "exact"}),
    "hivemind-paper": ("hivemind", {"preset": "paper"}),
    "gepa": ("gepa", {}),
    "gepa-blame": ("gepa", {"feedback": "blame"}),
    "gepa-topology": ("gepa", {"feedback": "topology"}),
    "mipro": ("mipro", {"max_demos": 0}),
    "blamed": ("blamed", {}),
    "round_robin": ("round_robin", {}),
    "random": ("random", {}),
}
METHODS = ("mapro", "maspo", "hivemind", "gepa", "mipro", "blamed", "round_robin", "random")
SINGLE_ROLE = ("maspo", "hivemind", "gepa", "blamed", "round_robin", "random")  # random: roles without each other
CELLS = (
    *(("AND", f"chain{n}") for n in (2, 3, 4, 6)),
    *(("HANDOFF", f"chain{n}") for n in (2, 3, 4, 6)),
    ("TRAP", "chain3"),
    ("WEAKLINK", "star"),
    ("WEAKLINK", "desk"),
    ("XOR", "chain3"),
    ("FLAT", "chain4"),
)
QUICK_CELLS = (("AND", "chain4"), ("HANDOFF", "chain4"), ("TRAP", "chain3"), ("WEAKLINK", "star"), ("FLAT", "chain4"))
QUICK_SEEDS = 4


@dataclass(frozen=True)
class Setting:
    """Everything that decides a run. `skill` and `rho`: of the rewriter and of the metric's hints; `noise` (`inf` for
    a judge that says anything) and `bias`: of the judge; `eta`: chance in the team; `weak`: WEAKLINK's role, drawn
    when None. `way`: `port` or `dspy`, with equal results.
    """

    landscape: str
    topology: str
    entry: str
    seed: int
    budget: int = BUDGET
    skill: float = 0.5
    rho: float = 0.6
    noise: float = NOISE
    bias: Literal["none", "position", "length", "constant"] = "none"
    rewriter: Literal["helpful", "worse", "lazy", "garbage", "breaking"] = "helpful"
    eta: float = 0.0
    weak: str | None = None
    way: Literal["port", "dspy"] = "port"

    def to_json(self) -> dict[str, Any]:
        """JSON-safe; a judge of pure noise is `"inf"`."""
        return {**asdict(self), "noise": "inf" if math.isinf(self.noise) else self.noise}

    def key(self) -> str:
        """Names the run in a file of results."""
        return ";".join(f"{name}={value}" for name, value in self.to_json().items())

    @property
    def group(self) -> Setting:
        """The setting without its seed."""
        return replace(self, seed=-1)


def crossed(
    cells: Sequence[tuple[str, str]], entries: Sequence[str], seeds: Sequence[int], **common: Any
) -> list[Setting]:
    """Every entry on every cell and seed; runs on one world come together."""
    return [
        Setting(landscape, shape, entry, seed, **common)
        for landscape, shape in cells
        for seed in seeds
        for entry in entries
    ]


def standard(seeds: Sequence[int], **common: Any) -> list[Setting]:
    """The standard grid, and what its statements need beside it: ablations, other judges, luck that texts redraw."""
    settings = crossed(CELLS, METHODS, seeds, **common)
    settings += crossed([("TRAP", "chain3")], ["maspo-local"], seeds, **common)
    settings += crossed([("HANDOFF", "chain4")], ["mapro-no-edges", "mapro-plain"], seeds, **common)
    settings += crossed([("XOR", "chain3")], ["mapro-no-edges"], seeds, **common)
    settings += crossed([("NOISE", "chain4")], METHODS, seeds, **common)
    for noise in (0.0, 0.15, 0.3, math.inf):
        cells = [("HANDOFF", "chain4"), ("AND", "chain4")]
        settings += crossed(cells, ["mapro"], seeds, **{**common, "noise": noise})
    return list(dict.fromkeys(settings))


def quick(seeds: Sequence[int], **common: Any) -> list[Setting]:
    """A few seeds of the cells that the statements are about."""
    settings = crossed(QUICK_CELLS, METHODS, seeds, **common)
    settings += crossed([("TRAP", "chain3")], ["maspo-local"], seeds, **common)
    settings += crossed([("HANDOFF", "chain4")], ["mapro"], seeds, **{**common, "noise": 0.0})
    return settings + crossed([("AND", "chain4")], ["mapro"], seeds, **{**common, "noise": math.inf})
