"""The application: the REST API, pages and files behind one guard."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from refold.errors import RefoldError
from refold.web.guard import BODY_BYTES_MAX, HEALTH_PATH, BodyTooLarge, Guard
from refold.web.openapi import OPERATIONS, ApiOperation, document
from refold.web.parameters import check_parameters, fields, json_body
from refold.web.problems import problem, refold_problem
from refold.web.site import Site

_STATIC: Final = Path(__file__).parent / "static"


def application(site: Site) -> ASGIApp:
    """Make the application for a site."""
    from refold.web.pages import error_page, login_routes, routes

    routed: list[BaseRoute] = [
        *_operations(site),
        Route("/api/openapi.json", _openapi, methods=["GET"]),
        Route(HEALTH_PATH, _health(site), methods=["GET"]),
        *routes(site),
        *login_routes(site),
        Mount("/static", StaticFiles(directory=_STATIC)),
    ]

    def fail(request: Request, error: Exception) -> Response:
        if request.url.path.startswith("/api/"):
            if isinstance(error, HTTPException):
                answer = problem(error.status_code, "Not to be had here", str(error.detail))
                answer.headers.update(error.headers or {})  # Such as `Allow`, with the permitted methods.
                return answer
            return refold_problem(error)
        return error_page(site, request, error)

    def too_large(_: Request, error: Exception) -> Response:
        del error
        return problem(413, "The body is too large", f"it may have {BODY_BYTES_MAX = } bytes")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> "AsyncGenerator[None]":
        yield
        site.hub.end()

    handlers: dict[Any, Callable[[Request, Exception], Response]] = {
        RefoldError: fail,
        HTTPException: fail,
        BodyTooLarge: too_large,
    }
    app = Starlette(routes=routed, exception_handlers=handlers, lifespan=lifespan)

    def takes(scope: Scope) -> bool:
        return any(route.matches(scope)[0] is Match.FULL for route in routed)

    return Guard(app, token=site.token, takes=takes, writes=site.writes, access=site.access)


def _operations(site: Site) -> list[Route]:
    """Make one route per path, so that the answer to a refused method lists the permitted ones."""
    by_path: dict[str, dict[str, ApiOperation]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, {})[operation.method] = operation

    def endpoint(operations: dict[str, ApiOperation]) -> Callable[[Request], Any]:
        async def run(request: Request) -> Response:
            operation = operations["GET" if request.method == "HEAD" else request.method]
            if operation.other in request.path_params.values():
                others = by_path[operation.path.format_map(request.path_params)]
                raise HTTPException(405, headers={"allow": ", ".join(others)})
            check_parameters(request, *operation.query)
            body = {} if operation.body is None else fields(await json_body(request), *operation.body)
            return await run_in_threadpool(operation.handler, site, request, body)

        return run

    return [Route(path, endpoint(each), methods=list(each)) for path, each in by_path.items()]


def _health(site: Site) -> Callable[[Request], Any]:
    """Make the endpoint for health probes, which need no token; it reveals only the name of a problem.

    It runs on the event loop, because a server whose threads are all busy is still alive.
    """

    async def health(_: Request) -> Response:
        state = site.memory.health()
        body = {"ok": state.ok, "problem": state.problem}
        return Response(msgspec.json.encode(body), 200 if state.ok else 503, media_type="application/json")

    return health


async def _openapi(_: Request) -> Response:
    return Response(msgspec.json.encode(document()), media_type="application/json")
