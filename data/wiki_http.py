"""Requests to a MediaWiki API that no bad network can turn into a wrong answer.

One limiter for all threads, a descriptive User-Agent, HTTPS, time limits, honoured Retry-After, bounded
retries with jitter. What still fails is an `InfrastructureError(kind="wikipedia")`.

| environment variable | meaning |
|---|---|
| `HOPTEAM_WIKIPEDIA_API` | another `api.php`, e.g. a local MediaWiki (plain http for private addresses only) |
| `HOPTEAM_WIKIPEDIA_RATE` | requests per second over all threads (default 5; a local server: 200) |
| `HOPTEAM_CONTACT` | your e-mail or page for the User-Agent, as Wikimedia's policy asks |
"""

from __future__ import annotations

import email.utils
import ipaddress
import json
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from metrics.errors import ConfigurationError, InfrastructureError

logger = logging.getLogger(__name__)

WIKIPEDIA_API = "https://en.wikipedia.org/w/api.php"
RATE = 5.0
LOCAL_RATE = 200.0
CONTACT = "https://pypi.org/project/hopteam/"
# API errors inside a 200 reply that pass by themselves
_PASSING_ERRORS = ("maxlag", "ratelimited", "readonly", "timeout", "internal_api_error", "toofast", "unavailable")
_PASSING_TEXTS = ("HTTP request timed out.", "Pool queue is full")


@dataclass(frozen=True)
class Endpoint:
    """An `api.php` address; `local` marks a server on a private address."""

    url: str
    local: bool = False


def api_endpoint() -> Endpoint:
    """Wikipedia over HTTPS, or the address in `HOPTEAM_WIKIPEDIA_API`. Raises ConfigurationError."""
    url = os.environ.get("HOPTEAM_WIKIPEDIA_API", "").strip()
    if not url:
        return Endpoint(WIKIPEDIA_API)
    parts = urlsplit(url)
    local = _is_private(parts.hostname or "")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"HOPTEAM_WIKIPEDIA_API={url!r} is no http(s) address of an api.php")
    if parts.scheme == "http" and not local:
        raise ConfigurationError(f"HOPTEAM_WIKIPEDIA_API={url!r}: plain http is for servers on private addresses only")
    return Endpoint(url, local)


def _is_private(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_private


def user_agent() -> str:
    """`hopteam/VERSION (what it is; contact)`, as Wikimedia's User-Agent policy asks."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("hopteam")
    except PackageNotFoundError:
        number = "0"
    contact = " ".join(os.environ.get("HOPTEAM_CONTACT", "").split()) or CONTACT
    contact = contact.encode("ascii", "replace").decode()  # what a header can hold
    return f"hopteam/{number} (multi-hop question answering research; contact: {contact}) python-wikipedia/1.4"


class RateLimiter:
    """At most `per_second` requests in any second, over all threads of the process; `pause` stops all of them.

    Starts are spaced evenly, a tenth wider than needed, so that a server whose clock sees them late counts
    no more than the limit either.
    """

    def __init__(self, per_second: float) -> None:
        self._interval = 1.1 / per_second
        self._turn = threading.Lock()  # held while waiting: whoever came first goes first
        self._state = threading.Lock()
        self._next = 0.0

    def wait(self) -> None:
        """Block until this thread may send one request."""
        with self._turn:
            while True:
                with self._state:
                    now = time.monotonic()
                    if self._next <= now:
                        self._next = now + self._interval
                        return
                    left = self._next - now
                time.sleep(min(left, 1.0))

    def pause(self, seconds: float) -> None:
        """No thread sends anything for this long (the server asked for it)."""
        with self._state:
            self._next = max(self._next, time.monotonic() + seconds)


class _Retry(Exception):
    """An attempt that failed in a way that may pass: the reason, and how long the server asked to wait."""

    def __init__(self, reason: str, wait: float | None = None, final: bool = False) -> None:
        super().__init__(reason)
        self.wait = wait
        self.final = final


class WikiTransport:
    """GET requests to one endpoint, as JSON objects. Safe to call from many threads.

    `attempts` bounds the tries of one request; `timeout` (seconds) the time of one try as a whole, however
    slowly bytes arrive; `max_wait` (seconds) the longest Retry-After that is waited for.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        rate: float | None = None,
        timeout: float = 20.0,
        attempts: int = 7,
        forbidden_attempts: int = 3,
        max_wait: float = 120.0,
        backoff: float = 0.5,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        import httpx

        self.endpoint = endpoint
        self.limiter = RateLimiter(rate or _rate(endpoint))
        self._timeout = timeout
        self._attempts = attempts
        self._forbidden_attempts = forbidden_attempts
        self._max_wait = max_wait
        self._backoff = backoff
        self._sleep = sleep
        self._client = httpx.Client(
            headers={"User-Agent": user_agent(), "Accept": "application/json"},
            timeout=httpx.Timeout(timeout, connect=min(10.0, timeout), pool=None),
            limits=httpx.Limits(max_connections=32),
            trust_env=not endpoint.local,  # a proxy has no business with a server of this machine
        )

    def request(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON object for one API request; InfrastructureError when the retries are used up."""
        forbidden = 0
        for attempt in range(1, self._attempts + 1):
            self.limiter.wait()
            try:
                return self._fetch(params)
            except _Retry as failed:
                reason, asked = str(failed), failed.wait
                forbidden += failed.final
            logger.debug("%s, attempt %d: %s", self.endpoint.url, attempt, reason)
            if asked is not None and asked > self._max_wait:
                reason += f", which asks to wait {asked:.0f} s"
                break
            if attempt == self._attempts or forbidden >= self._forbidden_attempts:
                break
            if asked is not None:
                self.limiter.pause(asked)
            else:
                self._sleep(min(self._backoff * 2 ** (attempt - 1), 8.0) * random.uniform(0.5, 1.0))
        host = urlsplit(self.endpoint.url).netloc
        raise InfrastructureError(f"Wikipedia ({host}) gave no answer after {attempt} attempts: {reason}", "wikipedia")

    def _fetch(self, params: Mapping[str, Any]) -> dict[str, Any]:
        import httpx

        query = {"action": "query", **{name: str(value) for name, value in params.items()}, "format": "json"}
        deadline = time.monotonic() + self._timeout
        try:
            with self._client.stream("GET", self.endpoint.url, params=query) as response:
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    if time.monotonic() > deadline:
                        raise _Retry(f"no complete reply within {self._timeout:g} s")
        except httpx.TimeoutException as error:
            raise _Retry(f"no reply within {self._timeout:g} s ({type(error).__name__})") from None
        except httpx.HTTPError as error:
            raise _Retry(f"{type(error).__name__}: {error}") from None
        asked = _retry_after(response.headers.get("Retry-After"))
        if response.status_code != 200:
            raise _Retry(
                f"HTTP {response.status_code}",
                asked if response.status_code in (429, 503) else None,
                final=400 <= response.status_code < 500 and response.status_code != 429,
            )
        try:
            answer = json.loads(body)
        except ValueError:
            kind = "an empty reply" if not body.strip() else "a reply that is no JSON"
            raise _Retry(f"HTTP 200 with {kind}") from None
        if not isinstance(answer, dict):
            raise _Retry("HTTP 200 with a reply that is no JSON object")
        _check_api_error(answer, asked)
        return answer


def _check_api_error(answer: Mapping[str, Any], asked: float | None) -> None:
    """Errors that pass are tried again; the others (a bad title, a bad query) are the caller's to read."""
    error = answer.get("error")
    if isinstance(error, Mapping):
        code, info = str(error.get("code", "")), str(error.get("info", ""))
        if code.startswith(_PASSING_ERRORS) or info in _PASSING_TEXTS:
            raise _Retry(f"API error {code}: {info}"[:200], asked)


def _retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, in either of its forms."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _rate(endpoint: Endpoint) -> float:
    text = os.environ.get("HOPTEAM_WIKIPEDIA_RATE", "").strip()
    if not text:
        return LOCAL_RATE if endpoint.local else RATE
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 1000:
        raise ConfigurationError(f"HOPTEAM_WIKIPEDIA_RATE={text!r} is no number of requests per second up to 1000")
    return rate
