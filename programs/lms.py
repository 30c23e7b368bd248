"""Language models: from a model string to a `dspy.LM` that accounts for every call.

`build_lm("openai/gpt-4o-mini")`, `build_lm("hosted_vllm/qwen", api_base="http://127.0.0.1:8000/v1")`,
`build_lm("offline")`. The result is a `TeamLM` (programs/team_lm.py): a `dspy.LM` plus four things.

* a request ends within its timeout whatever the server does, and rate limits slow all threads down together;
* every call, cache hits included, is reported once to the rollout's usage meter (tokens, price, role);
* the response cache's key names the endpoint, so that two servers with one model name never share answers;
* native tool calling is not switched off in silence for a model name that DSPy's table lacks.

Keys come from the environment only (`OPENAI_API_KEY` ...). Importing this module imports neither dspy nor
litellm; DSPy loads litellm when a model's provider is not one of its bundled client's.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from programs.errors import ConfigurationError

if TYPE_CHECKING:
    from programs.team_lm import TeamLM

OFFLINE = "offline"
DEFAULT_TIMEOUT = 120.0  # seconds of one request, from connecting to the last byte
DEFAULT_RETRIES = 4  # extra attempts after a 5xx or a broken connection; one after a timeout


def __getattr__(name: str) -> Any:
    if name == "TeamLM":
        from programs.team_lm import TeamLM

        return TeamLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def build_lm(
    model: str,
    *,
    api_base: str | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    max_tokens: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    num_retries: int = DEFAULT_RETRIES,
    cache: bool = True,
    function_calling: bool | None = None,
    **kwargs: Any,
) -> TeamLM:
    """A `TeamLM` for a litellm-style name (`openai/...`, `anthropic/...`, `ollama_chat/...`, `hosted_vllm/...`).

    `model="offline"` is the embedded rule-based engine (no network, no cache, no key). `api_base` is the address
    of an OpenAI-compatible server, with its `/v1`; such a server may run without a key. `timeout` is the time of one
    request as a whole, in seconds; `num_retries` counts extra attempts (`programs.retrying`). Further keywords go to
    `TeamLM` and `dspy.LM` (`extra_body`, `reasoning_effort` ...). Raises `ConfigurationError` for a name that nothing
    here can route.
    """
    import dspy

    from programs.team_lm import TeamLM

    decoding: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
    if top_p is not None:
        decoding["top_p"] = top_p
    if model == OFFLINE:
        if api_base:
            raise ConfigurationError("model 'offline' is the embedded engine and has no endpoint; drop --api-base")
        from programs.offline_lm import OfflineEngine

        return TeamLM(
            OFFLINE, engine=OfflineEngine(), cache=False, function_calling=function_calling, **decoding, **kwargs
        )
    if api_base:
        kwargs["api_base"] = _checked_address(model, api_base)
    try:
        lm = TeamLM(
            model,
            timeout=timeout,
            num_retries=num_retries,
            cache=cache,
            function_calling=function_calling,
            **decoding,
            **kwargs,
        )
    except (ValueError, dspy.LMError) as error:
        raise ConfigurationError(f"model {model!r}: {_first_line(error)}") from None
    _check_provider(lm)
    return lm


def _checked_address(model: str, api_base: str) -> str:
    from urllib.parse import urlsplit

    from programs.chat_route import server_address

    try:
        parts = urlsplit(api_base)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationError(f"--api-base must be an http(s) address, got {api_base!r}")
    return server_address(model, api_base)


def _check_provider(lm: TeamLM) -> None:
    """Refuse a name that no client knows now, in one line, instead of at the first question."""
    from dspy.clients.capabilities import resolve

    try:
        resolve(lm)
        return
    except Exception as error:
        reason = _first_line(error)
    prefix, slash, _ = lm.model.partition("/")
    if slash:
        # Not one of the bundled client's providers: perhaps one of litellm's hundred (imports it, about 4 s).
        from dspy.clients._litellm import get_litellm

        try:
            known = {str(getattr(item, "value", item)) for item in get_litellm(feature="dspy.LM").provider_list}
        except ImportError:
            hint = "`pip install litellm` adds more providers"
            raise ConfigurationError(f"model {lm.model!r}: {reason}; {hint}") from None
        if prefix in known:
            return
    raise ConfigurationError(
        f"unknown model {lm.model!r}: use PROVIDER/NAME such as openai/gpt-4o-mini, anthropic/..., ollama_chat/..., "
        "hosted_vllm/... (own server: openai/NAME with --api-base URL), or offline for the embedded engine"
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@dataclass(frozen=True)
class Models:
    """What the model flags ask for. `decoding` holds only the sampling flags that were given, else None."""

    lm: TeamLM
    role_models: dict[str, TeamLM]
    reflection: TeamLM | None
    decoding: dict[str, float] | None

    def used_by(self, program: Any) -> list[TeamLM]:
        """The models that calls of a program go to: the default one, unless every role has its own, and those."""
        own = list(self.role_models.values())
        every_role = bool(own) and self.role_models.keys() >= set(program.roles())
        return own if every_role else [self.lm, *own]

    def check_prices(self, program: Any) -> None:
        """Refuse a money cap that cannot be kept, before anything is spent."""
        from programs.pricing import has_price

        if unknown := list(dict.fromkeys(lm.model for lm in self.used_by(program) if not has_price(lm))):
            raise ConfigurationError(
                f"--max-usd needs a model with a known price, the price list has none for {', '.join(unknown)}: name "
                "the model as its provider does (openai/gpt-4o-mini, also with --api-base), or drop --max-usd"
            )


def add_model_flags(parser: argparse.ArgumentParser, *, reflection: bool = False) -> None:
    """The flags every command shares; `reflection=True` adds the optimizer model."""
    group = parser.add_argument_group("model")
    group.add_argument("--model", default=OFFLINE, metavar="MODEL",
                       help="litellm-style name, e.g. openai/gpt-4o-mini; default: offline, the embedded rule-based "
                            "engine (not a language model)")  # fmt: skip
    group.add_argument("--role-model", action="append", default=[], metavar="ROLE=MODEL[@URL]",
                       help="another model for one role, e.g. tool_caller=openai/gpt-4o; may be repeated")  # fmt: skip
    group.add_argument("--api-base", metavar="URL", help="address of an OpenAI-compatible server, with its /v1")
    group.add_argument("--temperature", type=float, help="overrides the program's decoding")
    group.add_argument("--top-p", type=float, help="overrides the program's decoding")
    group.add_argument("--max-tokens", type=int, help="limit of one reply, in tokens")
    group.add_argument("--request-timeout", type=float, default=DEFAULT_TIMEOUT, metavar="S",
                       help="seconds of one whole model request; slow local models need more; default: "
                            "120")  # fmt: skip
    group.add_argument("--retries", type=int, default=DEFAULT_RETRIES, metavar="N",
                       help="extra attempts after a server error or a broken connection; default: 4")  # fmt: skip
    if reflection:
        group.add_argument("--reflection-model", metavar="MODEL[@URL]",
                           help="model that proposes and judges prompts; default: --model")  # fmt: skip


def lms_from_args(args: argparse.Namespace) -> Models:
    """Build the models of parsed flags. Raises `ConfigurationError` with one line for anything unusable."""
    main = args.model or OFFLINE
    api_base, max_tokens = args.api_base, args.max_tokens
    for flag, value, low, high in (("temperature", args.temperature, 0, 2), ("top-p", args.top_p, 0, 1)):
        if value is not None and not low <= value <= high:
            raise ConfigurationError(f"--{flag} must be between {low} and {high}, got {value}")
    if max_tokens is not None and max_tokens < 1:
        raise ConfigurationError(f"--max-tokens must be at least 1, got {max_tokens}")
    timeout, retries = args.request_timeout, args.retries
    if not 0 < timeout < math.inf:
        raise ConfigurationError(f"--request-timeout must be a positive number of seconds, got {timeout:g}")
    if retries < 0:
        raise ConfigurationError(f"--retries must be 0 or more, got {retries}")
    decoding = {
        name: value for name, value in (("temperature", args.temperature), ("top_p", args.top_p)) if value is not None
    }
    native = True if getattr(args, "tool_calling", None) == "native" else None

    def build(text: str, **sampling: Any) -> TeamLM:
        model, url = _split_address(text)
        same_provider = model.split("/", 1)[0] == main.split("/", 1)[0]
        base = url or (api_base if same_provider else None)
        return build_lm(
            model, api_base=base, max_tokens=max_tokens, function_calling=native, timeout=timeout, num_retries=retries,
            **sampling,
        )  # fmt: skip

    lm = build(main, **decoding)
    roles = {role: build(model, **decoding) for role, model in _role_models(args.role_model)}
    wanted = getattr(args, "reflection_model", None)
    return Models(lm, roles, build(wanted) if wanted else None, decoding or None)


def _split_address(text: str) -> tuple[str, str | None]:
    model, at, url = text.partition("@http")  # "@" alone occurs in model names
    return model, f"http{url}" if at else None


def _role_models(pairs: Sequence[str]) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for pair in pairs:
        role, equals, model = pair.partition("=")
        if not (equals and role.strip() and model.strip()):
            raise ConfigurationError(f"--role-model takes ROLE=MODEL, got {pair!r}")
        if role.strip() in found:
            raise ConfigurationError(f"--role-model names the role {role.strip()!r} twice")
        found[role.strip()] = model.strip()
    return list(found.items())
