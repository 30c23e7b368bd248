"""Scores of the further multi-hop sets: those of HotpotQA, with MuSiQue's own rule for empty texts."""

from __future__ import annotations

from typing import Any

from metrics.hotpotqa import best_over_aliases, score, token_f1

__all__ = ["musique_f1", "score", "score_musique"]


def score_musique(gold: Any, answer: Any) -> dict[str, float]:
    """As `metrics.hotpotqa.score`, but two texts that both normalise to nothing have F1 1 (MuSiQue's script).

    `gold` is a text or the list of the answer and its aliases; no answer still scores 0 everywhere.
    """
    return best_over_aliases(gold, answer, musique_f1)


def musique_f1(answer: str, gold: str) -> tuple[float, float, float]:
    """(F1, precision, recall) of two normalised texts; when either is empty, 1 if both are (arXiv 2108.00573)."""
    if not answer or not gold:
        equal = float(answer == gold)
        return equal, equal, equal
    return token_f1(answer, gold)
