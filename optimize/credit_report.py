"""What `python -m optimize.credit` says: Shapley values per role, what they rest on, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from optimize.coalitions import MOST_PLAYERS, Credit, standard_error
from optimize.context import SearchContext
from optimize.shapley import coalitions
from optimize.usage import sum_usage


def credit_report(context: SearchContext, credit: Credit, facts: Mapping[str, Any]) -> dict[str, Any]:
    """JSON-safe. `roles`: role -> phi with its standard error over rows, its share of the total, what the role's
    place alone is owed (`structural`, None with prompts as players), phi over that (`adjusted`), whether every
    coalition without the role scored nothing (`veto`; None where not all of them were run), and whether the graph
    alone says so (`veto_in_graph`).
    """
    plan, game = credit.plan, credit.plan.game
    masked = plan.mode != "prompts" and len(game.players) <= MOST_PLAYERS
    structural = credit.by_role(game.structure) if masked else {}
    scales = credit.scales("adjusted") if masked else {}
    roles = {}
    for role, phi in credit.by_role(credit.phi).items():
        players = [player for player in game.players if game.owner[player] == role]
        roles[role] = {
            "phi": phi,
            "standard_error": _number(standard_error(credit.role_rows(role))),
            "share": phi / credit.total if credit.total else None,
            "structural": structural.get(role),
            "adjusted": phi * scales[role] if scales.get(role) else None,
            "veto": credit.is_veto(role, len(context.train)),
            "veto_in_graph": any(player in game.vetoes for player in players) if masked else None,
            "players": {p: {"phi": credit.phi[p], "standard_error": _number(credit.errors[p])} for p in players},
        }
    worth = {", ".join(p for p in game.players if p in run) or "(none)": score for run, score in credit.worth.items()}
    return {
        **facts,
        "mode": plan.mode,
        "credit": "exact" if plan.orders is None else "permutation",
        "orders": None if plan.orders is None else len(plan.orders),
        "n_rows": len(credit.full),
        "total": credit.total,
        "roles": roles,
        "worth": worth,
        "model_calls": call_savings(context, credit),
        "rollouts": context.ledger.spent,
        "usage": sum_usage(context.evaluate.usage),
    }


def call_savings(context: SearchContext, credit: Credit) -> dict[str, Any]:
    """Predictor calls: `executed`; `replayed`, which the reuse of equal calls saved; `naive`, what all coalitions
    would have taken without reuse and pruning. Runs that showed who reads whom are executed, and not in `naive`.

    A coalition that was not run counts with the mean number of calls per active player of those that were, which is
    exact for programs that call every active role once. `saved` is the share of the naive count; None for prompts as
    players and for sampled credit, where not all coalitions are needed.
    """
    executed, replayed = (context.ledger.counts[name] for name in ("node_calls", "cached_node_calls"))
    found = {"executed": executed, "replayed": replayed, "naive": None, "saved": None}
    plan = credit.plan
    if plan.mode == "prompts" or plan.orders is not None:
        return found
    members = sum(len(run) for run in plan.runs)
    every = sum(len(s) for s in coalitions(plan.game.players))
    naive = round(credit.calls * every / members) if members else 0
    return {**found, "naive": naive, "saved": 1 - executed / naive if naive else None}


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """The report for a terminal."""
    exact = "exact" if report["credit"] == "exact" else f"{report['orders']} sampled orders"
    lines = [
        f"{report['program']} on {report['n_rows']} rows of {report['dataset']} ({report['split']}), "
        f"{report['model']}{', not a language model' if report['embedded'] else ''}",
        f"score {report['total']:.3f}, coalitions by {report['mode']}, credit {exact}",
        f"{'role':<22}{'phi':>8}{'s.e.':>8}{'share':>8}{'adjusted':>10}  veto",
    ]
    ranked = sorted(report["roles"].items(), key=lambda item: item[1]["phi"])
    for role, r in ranked:
        share = "" if r["share"] is None else f"{r['share']:.0%}"
        cells = (f"{r['phi']:.3f}", _cell(r["standard_error"]), share, _cell(r["adjusted"], 2))
        lines.append(f"{role:<22}{cells[0]:>8}{cells[1]:>8}{cells[2]:>8}{cells[3]:>10}  {_VETO[r['veto']]}".rstrip())
    prompts = report["mode"] == "prompts"
    lines += [
        "phi       how much of the score is the role's doing (Shapley value): all add up to the score"
        + (", less that of the first prompts" if prompts else ""),
        "s.e.      standard error of phi over the rows;  share: phi over the score",
        "adjusted  phi over what the role's place in the team alone is owed; n/a: owed nothing, or not defined",
        f"veto      every coalition without the role's {'new prompt' if prompts else 'work'} scored 0"
        + ("; n/a: not all of them were run" if any(r["veto"] is None for r in report["roles"].values()) else ""),
    ]
    calls = report["model_calls"]
    saved = (
        ""
        if calls["saved"] is None
        else f"; all coalitions without reuse: {calls['naive']:,} ({calls['saved']:.0%} saved)"
    )
    lines.append(f"predictor calls: {calls['executed']:,} made, {calls['replayed']:,} answered by replay{saved}")
    if report["mode"] == "prune" and sum(bool(r["veto_in_graph"]) for r in report["roles"].values()) > 1:
        lines.append("note: pruning ties all roles without which there is no path; --mask-mode placeholder does not")
    return lines


_VETO = {True: "yes", False: "", None: "n/a"}


def _cell(value: float | None, digits: int = 3) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
