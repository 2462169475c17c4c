"""The pages: sessions through time, searches, projects with their memories and skills, boards, the store."""

import datetime as dates
from collections import Counter
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from refold import RANKINGS, Memory, checks
from refold.web import projects, views
from refold.web.access import COOKIE, LOGIN_PATH, is_secret
from refold.web.comparison import EVICTIONS, show_sides, show_what_if
from refold.web.parameters import (
    check_seq,
    form_body,
    is_number,
    limit,
    memory_at,
    memory_of,
    moment,
    name_in,
    name_of,
    number,
    text,
)
from refold.web.problems import problem, status_of
from refold.web.reasons import show_blame, show_why
from refold.web.render import message_row, page, pretty_json, url
from refold.web.reports import reports_in
from refold.web.site import ACTOR, Site
from refold.web.working_memory import scope_of

Fields = dict[str, str]
_SHOWN_MESSAGES: Final = 60
_GROWTH_DAYS: Final = 60
_PROJECTS_COUNT: Final = 1_000
_TOGGLES: Final = ("include_project_structure", "include_context", "include_working_history")


def error_page(site: Site, request: Request, error: Exception) -> Response:
    """Show the error, and a way back."""
    status = error.status_code if isinstance(error, HTTPException) else status_of(error)[0]
    message = str(error.detail) if isinstance(error, HTTPException) else str(error)
    return page(site, request, "error.html", status, message=message)


# Sessions.


def _sessions(site: Site, request: Request) -> Response:
    memory, after = memory_of(request, site.memory), name_of(request, "after")
    listed = views.sessions_page(memory, after, limit(request))
    return page(
        site,
        request,
        "sessions.html",
        here="sessions",
        rows=listed["sessions"],
        total=memory.stats().conversations,
        head=memory.head,
        following=listed["next"],
        is_later=after is not None,
    )


def _moment_values(site: Site, request: Request) -> dict[str, Any]:
    """Return the values for the page of a session at a seq."""
    memory, session = site.memory, name_in(request, "session")
    live = views.find_session(memory, session)
    first = next(live.events()).stamp.seq
    last = views.last_seq(live)
    given = moment(request, memory)
    at = last if given is None else min(given, last)
    # Not at the session's last event: boards have their own events, some of them after it.
    frozen = memory.at(memory.head if given is None else given)
    chat = frozen.conversation(session)
    step = views.step_at(memory, session, at) if chat.version else views.NO_STEP
    messages: list[dict[str, Any]] = views.window_json(frozen, session)["messages"] if chat.version else []
    hidden = 0 if text(request, "all") else max(len(messages) - _SHOWN_MESSAGES, 0)
    event = step["event"]
    return {
        "session": session,
        "at": at,
        "asked_at": given,
        "head": memory.head,
        "first": max(first - 1, 0),
        "last": last,
        "previous": max(step["seq"] - 1, 0),
        "next": next((recorded.stamp.seq for recorded in live.events(at)), at),
        "step_seq": step["seq"],
        "event": event,
        "kind_class": "" if event is None else views.CLASS_OF.get(event["kind"], "other"),
        "changes": step["changes"],
        "changed_keys": {str(change["path"][-1]) for change in step["changes"] if change["path"]},
        "entered": set(step["entered"]),
        "left": [message_row(message) for message in step["left"]],
        "messages": [message_row(message) for message in messages[hidden:]],
        "hidden_count": hidden,
        "shown": {"tokens": chat.token_count(), "window_tokens": chat.window_tokens},
        "scratchpad": dict(chat.scratchpad.items()),
        "notes": views.notes_of(chat) if chat.version else [],
        "state": dict(chat.state.items()),
        "board": views.board_json(frozen, session),
        "context": views.last_context(chat) if chat.version else 0,
        "board_url": f"/board?{urlencode({'session_id': session} | ({} if given is None else {'at': given}))}",
        "classes": views.TRACK_CLASSES,
        "evictions": EVICTIONS,
        "has_begun": bool(chat.version),
        "project": chat.project if chat.version else live.project,
        "version": live.version,
    }


def _session(site: Site, request: Request) -> Response:
    shown = _moment_values(site, request)
    skills, memories = _context_contents(site.memory, shown["context"])
    active = bool(skills or memories)
    return page(
        site,
        request,
        "session.html",
        here="sessions",
        active=skills if active else (),
        active_skills=skills,
        active_memories=memories,
        branches=site.branches.of(shown["session"]),
        detected_count=projects.detected_count(site) if shown["project"] else 0,
        **shown,
    )


def _context_contents(memory: Memory, context: int) -> tuple[list[str], int]:
    """Return the names of the skills and the number of memories in the context that was last shown, if not erased."""
    if not context:
        return [], 0
    event: Any
    event, stamp = memory.event(context)
    if stamp.erased:
        return [], 0
    return [str(name) for name, _, _ in views.context_skills(event)], len(event.ids)


def _moment_page(site: Site, request: Request) -> Response:
    return page(site, request, "moment.html", **_moment_values(site, request))


def _diff(site: Site, request: Request) -> Response:
    session, head = name_in(request, "session"), site.memory.head
    views.find_session(site.memory, session)
    a, b = sorted(check_seq(site.memory, number(request, key, default)) for key, default in (("a", 0), ("b", head)))
    changes = views.diff_json(site.memory, session, a, b)
    return page(site, request, "diff.html", here="sessions", session=session, a=a, b=b, changes=changes)


def _context(site: Site, request: Request) -> Response:
    seq = _whole_number(str(request.path_params["seq"]), "seq")
    shown = views.context_json(site.memory, seq)
    messages = [message_row(message) for message in shown["messages"]]
    return page(site, request, "context.html", here="sessions", shown=shown, messages=messages)


def _fork(site: Site, request: Request, form: Fields) -> str:
    chat = views.find_session(site.memory, name_in(request, "session"))
    fork = chat.fork(form.get("id", "").strip(), at=_whole_number(form.get("at", ""), "at"))
    return url("sessions", fork.id)


def _whole_number(value: str, name: str) -> int:
    if not is_number(value):
        checks.invalid(f"{name} is {checks.brief(value)}; give a whole number")
    return int(value)


# Searches.


def _search(site: Site, request: Request) -> Response:
    query, where = text(request, "q"), text(request, "in", "memories")
    ranking = text(request, "ranking", "hybrid") or "hybrid"
    project = projects.project_to_search(site.memory, request)
    names = sorted({*site.memory.projects(limit=_PROJECTS_COUNT), project})
    results = None
    if query is not None:
        if where == "messages":
            hits = site.memory.search_messages(query, top_k=20, explain=True)
        else:
            hits = site.memory.project(project).search(query, top_k=20, ranking=ranking, explain=True)
        results = views.hits_json(hits)
    return page(
        site,
        request,
        "search.html",
        here="search",
        q=query or "",
        where=where,
        project=project,
        projects=names,
        ranking=ranking,
        rankings=tuple(RANKINGS),
        found=results,
        top=max([1.0, *(hit["score"] for hit in results["hits"])]) if results else 1.0,
    )


# Boards.


def _scope(request: Request) -> dict[str, str]:
    return {name: value for name, value in scope_of(request).items() if value is not None}


def _board_of(memory: Memory, scope: dict[str, str]) -> Any:
    return memory.board(session=scope.get("session_id"), project=scope.get("project_id"), node=scope.get("node_id"))


def _boards(site: Site, request: Request) -> Response:
    rows: list[dict[str, Any]] = []
    for board in site.memory.boards():
        ids = {"session_id": board.session, "project_id": board.project, "node_id": board.node}
        scope = {name: value for name, value in ids.items() if value is not None}
        title = board.session if board.session is not None else f"{board.project} / {board.node}"
        rows.append({"query": urlencode(scope), "title": title, "session": board.session})
    return page(site, request, "boards.html", here="boards", rows=rows)


def _board(site: Site, request: Request) -> Response:
    scope, at = _scope(request), moment(request, site.memory)
    board = _board_of(memory_at(site.memory, at), scope)
    session = scope.get("session_id")
    title = session if session is not None else " / ".join(scope.values())
    return page(
        site,
        request,
        "board.html",
        here="boards",
        title=title,
        at=at,
        shown=board.to_dict(),
        config=board.get_settings(),
        scope=urlencode(scope),
        back="/boards" if at is None or session is None else f"{url('sessions', session)}?at={at}",
    )


def _board_json(site: Site, request: Request) -> Response:
    return Response(
        pretty_json(_board_of(site.memory, _scope(request)).to_dict()), media_type="text/plain; charset=utf-8"
    )


def _set_board(site: Site, request: Request, form: Fields) -> str:
    settings: dict[str, Any] = {name: bool(form.get(name)) for name in _TOGGLES}
    settings |= {name: form[name] for name in ("history_length", "auto_refresh_interval") if name in form}
    scope = _scope(request)
    _board_of(site.memory, scope).update_settings(settings)
    return f"/board?{urlencode(scope)}"


# The store.


def _store(site: Site, request: Request) -> Response:
    memory = site.memory
    stats = memory.stats()
    days: Counter[str] = Counter()
    for recorded in memory.events(after=max(memory.head - 200_000, 0)):
        moment_of = dates.datetime.fromtimestamp(recorded.stamp.time_ns // 1_000_000_000, dates.UTC)
        days[moment_of.date().isoformat()] += 1
    if text(request, "verify"):
        site.verification.run()
    last = site.verification.last
    growth = sorted(days.items())[-_GROWTH_DAYS:]
    names = ("events", "conversations", "projects", "boards", "store_bytes")
    labels = {"conversations": "sessions", "store_bytes": "bytes"}
    return page(
        site,
        request,
        "store.html",
        here="store",
        stats=stats,
        counted=[(labels.get(name, name), getattr(stats, name)) for name in names],
        growth=growth,
        most=max((count for _, count in growth), default=1),
        report=None if last is None else msgspec.to_builtins(last.report),
        report_head=0 if last is None else last.head,
        reports=reports_in(site.reports),
        examination=None if site.examine is None or stats.path is None else site.examine(),
    )


# Routes.

_READS: Final[dict[str, Callable[[Site, Request], Response]]] = {
    "/": _sessions,
    "/sessions/{session}": _session,
    "/sessions/{session}/moment": _moment_page,
    "/sessions/{session}/diff": _diff,
    "/sessions/{session}/what-if": show_what_if,
    "/sessions/{session}/what-if/sides": show_sides,
    "/contexts/{seq}": _context,
    "/why": show_why,
    "/blame": show_blame,
    "/search": _search,
    "/projects": projects.show_projects,
    "/projects/{project}": projects.show_project,
    "/projects/{project}/panel": projects.show_panel,
    "/projects/{project}/skill-file": projects.show_file,
    "/boards": _boards,
    "/board": _board,
    "/board/json": _board_json,
    "/store": _store,
}
_WRITES: Final[dict[str, Callable[[Site, Request, Fields], str]]] = {
    "/sessions/{session}/fork": _fork,
    **projects.WRITES,
    "/board/settings": _set_board,
}
PATHS: Final = tuple(_READS)


def routes(site: Site) -> list[Route]:
    """Make the routes of all pages; a submitted form is answered with a redirect to the next page."""

    def read_endpoint(handler: Callable[[Site, Request], Response]) -> Callable[[Request], Any]:
        async def run(request: Request) -> Response:
            return await run_in_threadpool(handler, site, request)

        return run

    def write_endpoint(handler: Callable[[Site, Request, Fields], str]) -> Callable[[Request], Any]:
        def write(request: Request, form: Fields) -> str:
            with site.memory.acting(ACTOR):
                return handler(site, request, form)

        async def run(request: Request) -> Response:
            form = await form_body(request)
            if not is_secret(form.pop("csrf", ""), site.token):
                return problem(403, "The token is of another server", "load the page again")
            return RedirectResponse(await run_in_threadpool(write, request, form), 303)

        return run

    return [
        *(Route(path, read_endpoint(handler), methods=["GET"]) for path, handler in _READS.items()),
        *(Route(path, write_endpoint(handler), methods=["POST"]) for path, handler in _WRITES.items()),
    ]


def login_routes(site: Site) -> list[Route]:
    """Make the routes of the login form; there are none if the server asks for no token."""
    access = site.access
    if access is None:
        return []

    async def ask(request: Request) -> Response:
        return page(site, request, "login.html", is_wrong=False)

    async def take(request: Request) -> Response:
        form = await form_body(request)
        if not access.is_token(form.get("token", "").strip()):
            return page(site, request, "login.html", 401, is_wrong=True)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, access.cookie, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer

    return [Route(LOGIN_PATH, ask, methods=["GET"]), Route(LOGIN_PATH, take, methods=["POST"])]
