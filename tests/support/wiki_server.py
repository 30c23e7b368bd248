"""A small MediaWiki API in this process that can be told to misbehave."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

PAGES = {
    "Kale": "Kale is a leafy vegetable. It keeps well in frost. It was grown in old gardens.",
    "Kal": "Kal is a short name.",
    "Mercury (planet)": "Mercury is the planet nearest to the Sun. It has no moon.",
    "Mercury (element)": "Mercury is a liquid metal. Its symbol is Hg.",
}
REDIRECTS = {"Quicksilver": "Mercury (element)", "Petawatt": "Kal"}
DISAMBIGUATION = {"Mercury": ["Mercury (planet)", "Mercury (element)"]}


@dataclass
class Seen:
    """One request: when it came, its parameters and its headers."""

    time: float
    params: dict[str, str]
    headers: dict[str, str]


@dataclass
class WikiServer:
    """`with WikiServer(script=["503", "ok"]) as server:` misbehaves as the script says, then answers.

    Words of a script: `ok`, an HTTP status (`403`, `503` ... with an HTML body), `429:SECONDS` (Retry-After),
    `empty`, `truncated`, `list` (JSON, but no object), `hang` (never answers), `trickle` (a byte at a time),
    `drop` (closes the connection), `busy` (an API error that passes).
    """

    script: list[str] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=lambda: dict(PAGES))
    redirects: dict[str, str] = field(default_factory=lambda: dict(REDIRECTS))
    ambiguous: dict[str, list[str]] = field(default_factory=lambda: dict(DISAMBIGUATION))
    always: str = "ok"  # what happens when the script is used up
    seen: list[Seen] = field(default_factory=list)

    def __enter__(self) -> WikiServer:
        self._lock = threading.Lock()
        self._closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer._answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/w/api.php"

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        params = dict(parse_qsl(urlsplit(handler.path).query, keep_blank_values=True))
        with self._lock:
            self.seen.append(Seen(time.monotonic(), params, dict(handler.headers)))
            action = self.script.pop(0) if self.script else self.always
        word, _, wait = action.partition(":")
        if word == "drop":
            handler.close_connection = True
            return
        if word == "hang":
            self._closing.wait(30)
            return
        body = json.dumps(self.reply(params)).encode()
        headers = {"Retry-After": wait} if wait else {}
        if word.isdigit():
            self._send(handler, int(word), b"<html><body>blocked</body></html>", "text/html", headers)
        elif word == "empty":
            self._send(handler, 200, b"")
        elif word == "truncated":
            self._send(handler, 200, body[: len(body) // 2])
        elif word == "list":
            self._send(handler, 200, b"[]")
        elif word == "busy":
            self._send(handler, 200, b'{"error": {"code": "maxlag", "info": "Waiting for a database"}}')
        elif word == "trickle":
            self._trickle(handler, body)
        else:
            self._send(handler, 200, body)

    def _send(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        body: bytes,
        kind: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    def _trickle(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        for position in range(len(body)):
            if self._closing.wait(0.05):
                return
            try:
                handler.wfile.write(body[position : position + 1])
                handler.wfile.flush()
            except OSError:
                return

    def reply(self, params: dict[str, str]) -> dict[str, Any]:
        """What MediaWiki says to the requests that the client and we make."""
        if params.get("list") == "search":
            return {"batchcomplete": "", "query": {"search": self._search(params)}}
        titles = params.get("titles", "").split("|")
        query: dict[str, Any] = {"pages": {}}
        for title in titles:
            target = title
            if target in self.redirects and "redirects" in params:
                target = self.redirects[target]
                query.setdefault("redirects", []).append({"from": title, "to": target})
            number, page = self._page(target, params)
            query["pages"][number] = page
        return {"batchcomplete": "", "query": query}

    def _search(self, params: dict[str, str]) -> list[dict[str, str]]:
        words = set(params["srsearch"].lower().split())
        names = [*self.pages, *self.ambiguous]
        found = [name for name in names if words & set(f"{name} {self.pages.get(name, '')}".lower().split())]
        found.sort(key=lambda name: (name.lower() != params["srsearch"].lower(), names.index(name)))
        return [{"title": name} for name in found[: int(params["srlimit"])]]

    def _page(self, title: str, params: dict[str, str]) -> tuple[str, dict[str, Any]]:
        names = [*self.pages, *self.ambiguous]
        if title not in names:
            return "-1", {"title": title, "missing": ""}
        number = str(names.index(title) + 1)
        page: dict[str, Any] = {"pageid": int(number), "title": title, "fullurl": f"http://wiki/{title}"}
        if title in self.ambiguous:
            page["pageprops"] = {"disambiguation": ""}
            items = "".join(f"<li><a>{option}</a>, something</li>" for option in self.ambiguous[title])
            page["revisions"] = [{"*": f"<p>{title} may refer to</p><ul>{items}</ul>"}]
            page["extract"] = f"{title} may refer to:"
        else:
            page["revisions"] = [{"revid": 1, "parentid": 0}]
            text = self.pages[title]
            page["extract"] = ". ".join(text.split(". ")[:2]) if "exsentences" in params else text
        return number, page
