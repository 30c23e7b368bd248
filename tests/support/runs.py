"""A small task, a scripted model and scripted programs, so that the evaluation loop is tested on its own."""

from __future__ import annotations

import threading
import time
from typing import Any

import dspy
from dspy.lm15 import Message, Response, TextPart, Usage

from metrics.example import QuestionExample


class WordTask:
    """`n` questions "word 0", "word 1" ...; the gold of question i is "w<i>". Scored like ToolHop."""

    name = "words"
    scoring = "equal-text"
    primary = "correct"
    refusal: str | None = None

    def __init__(self, n: int = 6, golds: dict[int, Any] | None = None, ids: list[Any] | None = None) -> None:
        ids = list(range(n)) if ids is None else ids
        self.examples = [
            QuestionExample(
                id=row_id,
                question=f"word {index}",
                tools=[],
                answer_format="one word",
                meta={"type": "even" if index % 2 == 0 else "odd", "hops": 2},
                gold=(golds or {}).get(index, f"w{index}"),
            ).with_inputs("question", "tools", "answer_format")
            for index, row_id in enumerate(ids)
        ]
        self.config = {
            "dataset": "words",
            "split": "test",
            "n": len(ids),
            "ids_hash": f"h{len(ids)}",
            "setting": "free",
        }

    def score(self, example: Any, final_text: str, answer: str | None, last_tool_result: str) -> dict[str, Any]:
        strict = bool(answer) and answer == example.gold
        loose = bool(answer) and str(example.gold) in str(answer)
        return {
            "predicted_answer": answer or None,
            "correct": loose,
            "strict_correct": strict,
            "credited_by": "literal" if strict else "substring" if loose else "none",
        }

    def summarize(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {"official_only_share": sum(r["correct"] and not r["strict_correct"] for r in rows) / max(1, len(rows))}


class ScriptedEngine:
    """Answers "word i" with "w<i>"; counts requests; raises or waits where the script says so."""

    def __init__(self, *, fail: dict[str, Exception] | None = None, wait_s: float = 0.0, replies: Any = None) -> None:
        self.fail, self.wait_s, self.replies = fail or {}, wait_s, replies
        self.requests: list[Any] = []
        self._lock = threading.Lock()

    def complete(self, request: Any) -> Response:
        text = request.messages[-1].text
        question = text.split("[[ ## question ## ]]")[-1].split("[[ ##")[0].split("Respond with")[0].strip()
        with self._lock:
            self.requests.append(request)
        if self.wait_s:
            time.sleep(self.wait_s)
        if question in self.fail:
            raise self.fail[question]
        answer = self.replies(question, request) if self.replies else "w" + question.split()[-1]
        reply = f"[[ ## answer ## ]]\n{answer}\n\n[[ ## completed ## ]]"
        return Response(
            id=None,
            model="scripted",
            message=Message.assistant([TextPart(reply)]),
            finish_reason="stop",
            usage=Usage(input_tokens=10, output_tokens=3, total_tokens=13),
        )


class PlainTeam(dspy.Module):
    """A user's own module: one predictor, returns only `answer`."""

    def __init__(self) -> None:
        super().__init__()
        self.solver = dspy.Predict("question, answer_format -> answer")

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        result = self.solver(
            question=question,
            answer_format=str(answer_format),
            config={"seed": dspy.settings.rollout_seed, "rollout_id": dspy.settings.rollout_seed},
        )
        return dspy.Prediction(answer=result.answer)


class Scripted(dspy.Module):
    """A program that needs no model: `behaviour(question)` gives the answer, raises or blocks."""

    def __init__(self, behaviour: Any) -> None:
        super().__init__()
        self.behaviour = behaviour
        self.runs: list[str] = []

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        self.runs.append(question)
        answer = self.behaviour(question)
        return dspy.Prediction(answer=answer, final_text=f"I say {answer}", n_lm_calls=2, n_tool_calls=1)


class SlowTeam(dspy.Module):
    """A user's module that takes its time and asks no model."""

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        time.sleep(0.3)
        return dspy.Prediction(answer="unknown")


class NoisyTeam(dspy.Module):
    """A user's module that prints."""

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        print("noise of the team")
        return dspy.Prediction(answer="unknown")


class BrokenTeam(dspy.Module):
    """A user's module with a bug."""

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        raise RuntimeError("a bug in the team")


def right(question: str) -> str:
    """The right answer to a question of `WordTask`."""
    return "w" + question.split()[-1]


def scripted_lm(engine: ScriptedEngine | None = None, **kwargs: Any) -> dspy.LM:
    """A `dspy.LM` over a scripted engine, without cache and retries."""
    kwargs.setdefault("cache", False)
    return dspy.LM("scripted/words", engine=engine or ScriptedEngine(), num_retries=0, **kwargs)
