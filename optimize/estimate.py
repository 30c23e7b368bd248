"""What a job will take, before it spends anything: rollouts, model calls, tokens, money.

Rollouts are an upper bound: a search may end early. Before the pre-flight the calls per rollout are a guess from the
program's shape, and the tokens of a call what its instruction and the tools of the training rows take, with some
room for question, steps and reply; after it both are extrapolated from one measured row. What the replay cache
answers is in neither, so a search usually takes less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metrics.statistics import mean
from optimize.context import SearchContext
from optimize.methods.base import Method
from programs.adapter import text_adapter
from programs.tools import prepare_tools

LOOP_CALLS = 4  # typical requests of one tool loop
INPUT_TOKENS, REPLY_TOKENS = 300, 150  # of one call: question and steps so far; what the model writes
CHARS_PER_TOKEN = 4
ROWS_LOOKED_AT = 50


def estimate(
    method: Method, context: SearchContext, n_test: int, measured: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """JSON-safe estimate of a whole job. `measured`: the row of the pre-flight (`n_lm_calls`, tokens,
    `usd_without_cache`).
    """
    search = context.ledger.limit
    after = 2 * len(context.validation) + 2 * n_test
    rollouts = search + after
    calls = measured["n_lm_calls"] if measured else typical_calls(context)
    tokens = (
        (measured["prompt_tokens"] + measured["completion_tokens"])
        if measured
        else calls * (prompt_tokens(context) + REPLY_TOKENS)
    )
    usd = measured.get("usd_without_cache") if measured else 0.0 if _is_free(context) else None
    optimizer_calls = method.expected_calls(context) if method.needs_optimizer_model else 0
    return {
        "basis": "one measured row" if measured else "assumed: no model was called",
        "rollouts_search": search,
        "rollouts_validation_and_test": after,
        "model_calls": rollouts * calls,
        "optimizer_model_calls": optimizer_calls,
        "tokens": rollouts * tokens + optimizer_calls * method.call_tokens,
        "usd_task_model": None if usd is None else round(rollouts * usd, 4),
        "minimum_budget": method.minimum_budget(context),
        "advised_budget": method.advised_budget(context),
    }


def _is_free(context: SearchContext) -> bool:
    """Whether every model of the program is the embedded engine, whose price is known before a call."""
    models = [context.evaluate.lm, *(p.lm for _, p in context.program.named_predictors() if p.lm is not None)]
    return all(getattr(model, "embedded", False) for model in models)


def typical_calls(context: SearchContext) -> int:
    """Model calls of one rollout, roughly: a loop per agent that has tools, one call per other role, rounds counted."""
    program = context.program
    rounds = getattr(program, "rounds", None) or 1
    graph = context.roles.graph
    total = 0
    for name, predictors in context.roles.predictors.items():
        count = graph.counts.get(name, 1) if graph is not None else 1
        for predictor in predictors:
            signature = dict(program.named_predictors())[predictor].signature
            loops = "tools" in signature.input_fields or "next_tool_name" in signature.output_fields  # ours, ReAct
            total += count * (LOOP_CALLS if loops else 1)
    return total * (rounds if graph is None or graph.is_tied(context.roles.names[0]) else 1)


def prompt_tokens(context: SearchContext) -> int:
    """Tokens that one request takes, roughly: a mean instruction, the tools of a mean training row, and the inputs."""
    systems = [
        len(text_adapter().plan(predictor.signature).system) for _, predictor in context.program.named_predictors()
    ]
    offered = [list(getattr(row, "tools", None) or ()) for row in context.train[:ROWS_LOOKED_AT]]
    tools = [len(prepare_tools(found).text) for found in offered]
    return round(((mean(systems) or 0) + (mean(tools) or 0)) / CHARS_PER_TOKEN) + INPUT_TOKENS


def estimate_lines(numbers: Mapping[str, Any]) -> list[str]:
    """The estimate for a terminal."""
    usd = numbers["usd_task_model"]
    lines = [
        f"estimate ({numbers['basis']}): up to {numbers['rollouts_search']} rollouts of search and "
        f"{numbers['rollouts_validation_and_test']} of validation and test, about "
        f"{numbers['model_calls']:,} model calls and {numbers['optimizer_model_calls']:,} optimizer-model calls, "
        f"{numbers['tokens']:,} tokens, " + ("price n/a" if usd is None else f"${usd:.2f} for the task model")
    ]
    if numbers["rollouts_search"] < numbers["advised_budget"]:
        lines.append(
            f"note: a budget of {numbers['rollouts_search']} allows few proposals; "
            f"at least {numbers['advised_budget']} is advised"
        )
    return lines
