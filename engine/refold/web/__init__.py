"""The inspector: a REST API of a memory, and web pages, by default only for this machine. It needs the extra `web`."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refold.errors import InvalidInput

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from refold import Memory


def check_installed() -> None:
    """Raise `InvalidInput` if the extra `web` is not installed."""
    for package in ("jinja2", "markdown_it", "starlette", "uvicorn"):
        if find_spec(package) is None:
            raise InvalidInput(f"the pages need the package {package!r}; run: pip install 'refold[web]'")


def app_of(
    memory: "Memory",
    *,
    writes: bool = False,
    roots: Any = None,
    token: str | None = None,
    examine: Callable[[], Any] | None = None,
    reports: "str | os.PathLike[str] | None" = None,
    access_token: str | None = None,
) -> "ASGIApp":
    """Make an ASGI application for a memory, to run in a server of your own on loopback.

    `writes` lets it change the memory. `roots` are the `refold.skills.SkillRoots` whose files are shown beside the
    learned skills. `token` is the token that forms carry, by default a new one. `examine` makes the report on the
    store's page, which also shows the benchmark reports in the directory `reports`. With an `access_token`, of at least
    16 characters, only clients that know it are answered; it is needed if other machines can reach the server. Raises
    `InvalidInput` if the extra `web` is not installed.
    """
    check_installed()
    from refold.web.access import Access
    from refold.web.application import application
    from refold.web.site import Site
    from refold.web.views import notice_line

    skills = memory.skills if roots is None else memory.skills.with_roots(roots)
    token = token or os.urandom(16).hex()
    directory = None if reports is None else Path(reports)
    site = Site(
        memory,
        writes=writes,
        token=token,
        skills=skills,
        encode=notice_line,
        examine=examine,
        reports=directory,
        access=None if access_token is None else Access(access_token, token),
    )
    return application(site)


def serve(app: "ASGIApp", port: int, host: str = "127.0.0.1") -> None:
    """Serve an application on a port until a signal arrives; port 0 takes a free port.

    Raises `InvalidInput` for a host that other machines can reach, unless the application has an `access_token`.
    """
    from refold.web.server import run

    run(app, port, host)
