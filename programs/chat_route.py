"""Which models are spoken to by our own client, where they live, and which keys they need."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from programs.chat_api import Endpoint

_BARE_ADDRESS_PREFIXES = ("ollama", "ollama_chat", "anthropic")


def find_endpoint(lm: Any, address: str) -> tuple[Endpoint, str] | None:
    """The endpoint of a `dspy.LM` and the provider that prices it; None when DSPy's own clients serve it.

    Ours are the models behind the chat completions API: by name (`openai/`, `hosted_vllm/`, `ollama_chat/`, `groq/`
    ...) at their usual address, or at `address`. Left to DSPy: other APIs (Anthropic, Gemini), providers that only
    litellm knows, providers the user declared, addresses behind a proxy.
    """
    from dspy._vendor.lm15.compat import OPENAI_CHAT_PRESET_BASE_URLS, OpenAIChatCompat, resolve_openai_chat_compat
    from dspy._vendor.lm15.errors import LM15Error
    from dspy._vendor.lm15.providers import OpenAIChatLM
    from dspy._vendor.lm15.registry import lookup
    from dspy.clients.capabilities import resolve

    if lm.engine != "auto" or lm.model_type != "chat":
        return None
    try:
        resolution = resolve(lm)
    except (LM15Error, ValueError, TypeError):
        return None
    provider = lookup(resolution.provider)
    if resolution.declared or provider is None or provider.adapter is not OpenAIChatLM or provider.hosted:
        return None
    preset = str(provider.compat or "openai")
    usual = OPENAI_CHAT_PRESET_BASE_URLS[preset]
    compat = resolve_openai_chat_compat(OpenAIChatCompat.preset(preset).for_model(resolution.model))
    if compat.instruction_role != "system" or compat.strict_tools == "include" or compat.thinking_replay == "native":
        return None  # the server needs more of a conversation than what stands in its messages
    url = address or usual
    if behind_proxy(url):
        return None
    own_server = bool(address) and address.rstrip("/") != usual
    keyless = provider.placeholder_key is not None
    prefix = lm.model.split("/", 1)[0].upper()
    endpoint = Endpoint(
        model=resolution.model,
        name=lm.model,
        url=url,
        key_names=(f"{prefix}_API_KEY",) if keyless else tuple(provider.env_keys),
        key_required=not own_server and not keyless,
        # every compatible server knows the old name, and some ignore the new one in silence
        max_tokens_field="max_tokens" if own_server else compat.max_tokens_field,
        headers=dict(provider.access.headers),
        plain_effort=compat.thinking_format == "reasoning_effort" and compat.reasoning_efforts is None,
    )
    return endpoint, resolution.provider


def behind_proxy(url: str) -> bool:
    """True when the environment sends requests to this address through a proxy."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxies = getproxies()
    if not (proxies.get(parts.scheme) or proxies.get("all")):
        return False
    return not proxy_bypass(parts.hostname or "")


def environment_address(model: str) -> str:
    """The address that the environment names for a provider (`OPENAI_API_BASE`, `OPENAI_BASE_URL`), "" without one."""
    prefix = model.split("/", 1)[0].upper()
    names = [f"{prefix}_API_BASE", f"{prefix}_BASE_URL"]
    if prefix == "OLLAMA_CHAT":
        names += ["OLLAMA_API_BASE", "OLLAMA_BASE_URL"]
    found = next((value for name in names if (value := os.environ.get(name))), "")
    return server_address(model, found) if found else ""


def server_address(model: str, address: str) -> str:
    """An address as our clients need it: litellm's of these providers has no path, the API's ends in /v1."""
    bare = model.split("/", 1)[0] in _BARE_ADDRESS_PREFIXES and urlsplit(address).path in ("", "/")
    return address.rstrip("/") + ("/v1" if bare else "")


def missing_key(lm: Any, own_server: bool) -> str | None:
    """A key that DSPy's client does not find by itself; None when it does, or when there is none."""
    provider = _provider(lm)
    if provider is None:
        return None
    if provider.placeholder_key:  # a local server's dialect (vLLM, Ollama): no key, unless the user set one
        return os.environ.get(f"{lm.model.split('/', 1)[0].upper()}_API_KEY")
    if own_server and not any(os.environ.get(name) for name in provider.env_keys):
        return "none"  # own servers ask for no key, the client insists on one
    return None


def environment_keys(lm: Any) -> list[str]:
    """The keys of the environment that a call of this model may have sent."""
    provider = _provider(lm)
    names = [f"{lm.model.split('/', 1)[0].upper()}_API_KEY", *(provider.env_keys if provider else ())]
    return [value for name in names if (value := os.environ.get(name))]


def _provider(lm: Any) -> Any:
    """The definition of the model's provider in DSPy's client, None for one that litellm serves."""
    from dspy._vendor.lm15.registry import lookup
    from dspy.clients.capabilities import resolve

    try:
        return lookup(resolve(lm).provider)
    except Exception:  # an unknown name: litellm's providers read their own keys
        return None
