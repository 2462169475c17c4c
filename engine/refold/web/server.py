"""A server for the application, only on loopback unless clients must know a token."""

import asyncio
import sys
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from refold import checks
from refold.listener import HOST, HttpConnection, is_loopback, listening_on
from refold.web.guard import Guard

_SHUTDOWN_SECONDS: Final = 3


def run(app: ASGIApp, port: int, host: str = HOST) -> None:
    """Serve until a signal arrives; the address is printed to stderr once connections are accepted.

    Raises `InvalidInput` for an address that other machines can reach, unless the application asks for a token.
    """
    check_address(app, host)
    with listening_on(port, host) as listening:
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{listening.getsockname()[1]}/"
        print(f"refold: serving {address}", file=sys.stderr, flush=True)  # noqa: T201 - for the user
        asyncio.run(web_server(app).serve([listening]))


def check_address(app: ASGIApp, host: str) -> None:
    """Raise `InvalidInput` if other machines can reach an address and the application asks for no token."""
    if not is_loopback(host) and not (isinstance(app, Guard) and app.asks_token):
        checks.invalid(f"others than this machine reach {checks.brief(host)}; give a token that they have to know")


def web_server(app: ASGIApp) -> uvicorn.Server:
    """Make a server for an application."""
    config = uvicorn.Config(
        app,
        http=HttpConnection,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    return uvicorn.Server(config)
