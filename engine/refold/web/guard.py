"""The guard before every handler: it checks origins and body sizes, and limits what a browser loads for a page.

A page of another site can reach a server on loopback under its own host name (DNS rebinding) or by a form (CSRF). So
only this machine's own names are answered, only the server's own origin may write, JSON must be declared as JSON, which
a form cannot do, and a form must carry the token of this server.
"""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from refold.listener import is_own
from refold.web.access import LOGIN_PATH, Access, is_secret
from refold.web.problems import problem

HEALTH_PATH: Final = "/health"
_OPEN_PATHS: Final = frozenset((LOGIN_PATH, HEALTH_PATH))
_OPEN_FOLDER: Final = "/static/"
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
WRITES: Final = frozenset(("POST", "PUT", "PATCH", "DELETE"))
SAFE_METHODS: Final = frozenset(("GET", "HEAD", "OPTIONS"))
JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
CSRF_HEADER: Final = "x-csrf-token"

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}

SLASH: Final = "\udc2f"
"""In a path, a slash that was written as %2F and belongs to a name; no UTF-8 text can contain this character."""


class Guard:
    """The outermost application: it refuses a request, or passes it on with a decoded path and adds response headers.

    `takes` returns whether a route takes a request.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        takes: Callable[[Scope], bool],
        writes: bool = False,
        access: Access | None = None,
    ) -> None:
        self._app, self._token, self._takes, self._writes, self._access = app, token, takes, writes, access

    @property
    def asks_token(self) -> bool:
        """Whether clients must know a token."""
        return self._access is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        raw = scope.get("raw_path") or scope["path"].encode()
        path = unquote(raw.split(b"?")[0].decode("latin-1").replace("%2f", "%2F").replace("%2F", SLASH))
        named = {**scope, "path": path}
        refusal = self._refusal(scope, named)
        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
            return
        await self._app(named, _limit_body(receive), send_with_headers)

    def _refusal(self, scope: Scope, named: Scope) -> Any:
        headers, method = Headers(scope=scope), scope["method"]
        host = headers.get("host", "")
        # With a token, any host name is harmless: a browser sends the cookie only to the host that set it.
        if self._access is None and not is_own(host):
            return problem(421, "This server answers under this machine's own names alone", f"the host is {host!r}")
        origin = headers.get("origin")
        if origin is not None and origin != f"{scope['scheme']}://{host}":
            return problem(403, "Another origin may not ask", f"the origin is {origin!r}")
        if headers.get("sec-fetch-site") == "cross-site" and (
            method not in SAFE_METHODS or headers.get("sec-fetch-mode") != "navigate"
        ):
            return problem(403, "Another site may not ask", "follow a link to this page instead")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal()) or int(length[:20]) > BODY_BYTES_MAX:
            return problem(413, "The body is too large", f"it may have {BODY_BYTES_MAX = } bytes")
        path = scope["path"]
        if self._access is not None and path not in _OPEN_PATHS and not path.startswith(_OPEN_FOLDER):
            if not self._access.admits(headers):
                return self._token_refusal(path)
        elif self._access is not None and path == LOGIN_PATH:
            return None
        if method not in WRITES:  # The routes refuse unknown methods.
            return None
        if not self._writes:
            return problem(403, "This server only reads", "start it with --write to change something")
        # If no route takes the method, the routes refuse it and list those that they take.
        return self._write_refusal(headers, method, named["path"]) if self._takes(named) else None

    def _token_refusal(self, path: str) -> Any:
        if not path.startswith("/api/"):
            return RedirectResponse(LOGIN_PATH, 303)
        refusal = problem(401, "Who are you?", "send the token of this server as Authorization: Bearer TOKEN")
        refusal.headers["www-authenticate"] = "Bearer"
        return refusal

    def _write_refusal(self, headers: Headers, method: str, path: str) -> Any:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        token = headers.get(CSRF_HEADER)
        if token is not None and not is_secret(token, self._token):
            return problem(403, "The token is of another server", "load the page again")
        # A page of another site can send a form, but any other method only after a preflight request.
        is_bare = method != "POST" and not has_body
        is_form = kind == FORM and has_body and not path.startswith("/api/")  # The pages check its token.
        if kind == JSON or is_form or token is not None or is_bare:
            return None
        return problem(415, "A write is JSON", f"send it as {JSON}, or with the token of a page as {CSRF_HEADER}")


def _limit_body(receive: Receive) -> Receive:
    """Return a receiver that raises `BodyTooLarge` when a body exceeds the bound, whatever length was announced."""
    received = 0

    async def receive_limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > BODY_BYTES_MAX:
            raise BodyTooLarge
        return message

    return receive_limited


class BodyTooLarge(Exception):
    """A body exceeded the bound."""
