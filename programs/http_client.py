"""A small HTTP/1.1 client for model servers: kept connections, and one deadline over the whole exchange.

Ordinary clients bound each single wait, so that a server which sends a byte a minute is never given up. Here a
request has one deadline for everything: connecting, sending, waiting, reading (looking up the server's name is the
system's, which no socket option bounds). Also a call costs a tenth of the
CPU of a general client. Standard library only; system certificates, and certifi's where it is installed.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

CONNECT_TIMEOUT = 10.0  # seconds; a server that is there accepts at once
MAX_BODY = 64 << 20  # bytes of one reply
KEPT = 256  # idle connections
STALE_AFTER = 60.0  # seconds an idle connection is kept


class HttpReply(NamedTuple):
    """A complete reply; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpError(Exception):
    """No complete reply came. `timed_out`: the deadline passed."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class HttpClient:
    """Connections to one server, shared by any number of threads."""

    def __init__(self, url: str, *, connect_timeout: float = CONNECT_TIMEOUT) -> None:
        """`url`: scheme, host and port count; a path is put before the path of every request."""
        parts = urlsplit(url)
        self.secure = parts.scheme == "https"
        self.host = parts.hostname or ""
        self.port = parts.port or (443 if self.secure else 80)
        self.prefix = parts.path.rstrip("/")
        name = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = name if parts.port is None else f"{name}:{parts.port}"
        self.connect_timeout = connect_timeout
        self._idle: deque[tuple[_Connection, float]] = deque(maxlen=KEPT)
        self._lock = threading.Lock()
        self._tls: Any = None

    def post(self, path: str, body: bytes, headers: Mapping[str, str], *, timeout: float) -> HttpReply:
        """The reply to one POST, complete within `timeout` seconds. Raises `HttpError`.

        A kept connection that turns out to be closed by the server is replaced once.
        """
        deadline = time.monotonic() + timeout
        lines = [f"POST {self.prefix}{path} HTTP/1.1", f"Host: {self.authority}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        request = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
        try:
            kept = self._take()
            if kept is not None:
                try:
                    return self._exchange(kept, request, deadline)
                except _ClosedBeforeReply:
                    pass
            return self._exchange(self._connect(deadline, timeout), request, deadline)
        except TimeoutError:
            raise HttpError(f"no complete reply within {timeout:g} s", timed_out=True) from None
        except _ClosedBeforeReply as error:
            raise HttpError(f"the connection was closed before a reply ({error})") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise HttpError(f"the reply broke off ({_words(error)})") from None

    def close(self) -> None:
        """Close the idle connections; the client can still be used."""
        with self._lock:
            idle, self._idle = list(self._idle), deque(maxlen=KEPT)
        for connection, _ in idle:
            connection.close()

    def _exchange(self, connection: _Connection, request: bytes, deadline: float) -> HttpReply:
        connection.deadline = deadline
        keep = False
        try:
            try:
                connection.sendall(request)
                response = http.client.HTTPResponse(connection, method="POST")  # type: ignore[arg-type]
                response.begin()
            except (ConnectionError, http.client.BadStatusLine) as error:  # RemoteDisconnected is both
                if connection.received:
                    raise
                raise _ClosedBeforeReply(_words(error)) from None
            body = response.read(MAX_BODY + 1) if response.length is None else response.read()
            if len(body) > MAX_BODY:
                raise ValueError(f"more than {MAX_BODY >> 20} MB")
            keep = not response.will_close
            headers = {name.lower(): value for name, value in response.headers.items()}
            return HttpReply(response.status, headers, body)
        finally:
            if keep:
                connection.received = False
                with self._lock:
                    self._idle.append((connection, time.monotonic()))
            else:
                connection.close()

    def _take(self) -> _Connection | None:
        """An idle connection that is still open; the latest first."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection, since = self._idle.pop()
            if time.monotonic() - since < STALE_AFTER and not connection.readable():
                return connection
            connection.close()  # readable although nothing was asked: the server has closed it

    def _connect(self, deadline: float, timeout: float) -> _Connection:
        wait = min(self.connect_timeout, deadline - time.monotonic())
        try:
            raw = socket.create_connection((self.host, self.port), max(wait, 0.001))
        except TimeoutError:
            raise HttpError(f"no connection within {min(self.connect_timeout, timeout):g} s") from None
        except (OSError, UnicodeError) as error:
            raise HttpError(f"cannot connect ({_words(error)})") from None
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.secure:
            return _Connection(raw)
        try:
            return _Connection(self._context().wrap_socket(raw, server_hostname=self.host))
        except OSError as error:
            raw.close()
            raise HttpError(f"no secure connection ({_words(error)})") from None

    def _context(self) -> Any:
        if self._tls is None:
            import ssl

            context = ssl.create_default_context()
            try:
                import certifi

                context.load_verify_locations(certifi.where())
            except (ImportError, OSError):
                pass
            self._tls = context
        return self._tls


class _ClosedBeforeReply(Exception):
    pass


class _Connection:
    """What `http.client.HTTPResponse` needs of a socket; every wait ends at `deadline` (monotonic seconds)."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.deadline = 0.0
        self.received = False

    def _arm(self) -> None:
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        self.sock.settimeout(remaining)

    def sendall(self, data: bytes) -> None:
        self._arm()
        self.sock.sendall(data)

    def recv_into(self, buffer: Any) -> int:
        self._arm()
        count = self.sock.recv_into(buffer)
        self.received = self.received or count > 0
        return count

    def makefile(self, mode: str = "rb") -> io.BufferedReader:
        return io.BufferedReader(_Stream(self), 65536)

    def readable(self) -> bool:
        """True when bytes, or the end of the connection, are waiting."""
        try:
            if hasattr(select, "poll"):
                poll = select.poll()
                poll.register(self.sock, select.POLLIN)
                return bool(poll.poll(0))
            return bool(select.select([self.sock], [], [], 0)[0])
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.close()


class _Stream(io.RawIOBase):
    def __init__(self, connection: _Connection) -> None:
        self.connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self.connection.recv_into(buffer)


def _words(error: BaseException) -> str:
    """What went wrong, without the number of the error."""
    known = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(known).strip().rstrip(".").lower() if known else str(error) or type(error).__name__
