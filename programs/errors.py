"""Which failures are the model's (scored) and which are the infrastructure's (never scored)."""

from __future__ import annotations


class ConfigurationError(ValueError):
    """A user's mistake (a flag, a file, an option): one clear line, exit status 2, no traceback."""

    user_mistake = True  # the mark that command lines recognise


def is_infrastructure(error: BaseException) -> bool:
    """True for failures that say nothing about the answer: endpoint, key, network, Wikipedia, sandbox.

    Two signs: a DSPy language-model error (`dspy.LMError`), or an exception whose class sets
    `infrastructure = True` (how tools of other packages mark theirs without a common import).
    A context window that is too small is the request's fault, not the endpoint's, and is False.
    """
    import dspy

    if isinstance(error, dspy.ContextWindowExceededError) or is_context_overflow(error):
        return False
    return isinstance(error, dspy.LMError) or bool(getattr(error, "infrastructure", False))


def is_context_overflow(error: BaseException) -> bool:
    """True when the request was refused for its length, in the OpenAI or the vLLM wording."""
    import dspy

    if isinstance(error, dspy.ContextWindowExceededError):
        return True
    if not isinstance(error, dspy.LMError):
        return False
    text = str(error).lower()
    return "context length" in text or "context window" in text
