"""The why and blame pages: how something came and where it is now, and every value that a key has had."""

from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from refold import checks
from refold.errors import NotFound
from refold.memory.reasons import Reason, Revision, Why
from refold.web import views
from refold.web.parameters import check_seq, memory_of, moment, name_of, seq_or_text, text
from refold.web.render import page, url
from refold.web.site import Site

BLAMED: Final = ("scratchpad", "state", "board", "profile", "setting", "file")
"""The kinds of values that `blame` knows."""


def why_of(site: Site, request: Request) -> Why:
    """Answer `why` for the subject of a request, in one session or anywhere."""
    memory, session = memory_of(request, site.memory), name_of(request, "session")
    head = site.memory.head
    x = seq_or_text(request, "x", head)
    if session is not None:
        views.check_session(memory, session)
    if x is None:
        checks.invalid("x is missing; give a seq, an id, a key, or words that something holds")
    missing_from = seq_or_text(request, "missing_from", head)
    if isinstance(missing_from, int):
        check_seq(memory, missing_from)
    answer = memory.why(x, conversation=session, missing_from=missing_from)
    if isinstance(x, str) and x.isdecimal() and not any(step.seq for step in answer.steps):
        raise NotFound(f"no event is at seq {checks.brief(x)}, and none holds it as words; the last seq is {head}")
    return answer


def revisions_of(site: Site, request: Request) -> list[Revision]:
    """Return every value of the key in a request."""
    memory, session = memory_of(request, site.memory), name_of(request, "session")
    key, of = name_of(request, "key"), text(request, "of")
    if key is None:
        checks.invalid("key is missing; give a key of a scratchpad, a state, a profile, or a part of a board")
    if session is not None:
        views.check_session(memory, session)
    node = {"project": name_of(request, "project_id"), "node": name_of(request, "node_id")}
    if of == "board" and session is None and all(node.values()):
        return memory.board(**node).blame(key)
    return memory.blame(key, conversation=session, of=of, name=name_of(request, "name") or "default")


def show_why(site: Site, request: Request) -> Response:
    """Show how something came, when and by which event it left, and what showed it to a model."""
    x, session, at = text(request, "x"), name_of(request, "session"), moment(request, site.memory)
    missing_from = text(request, "missing_from")
    answer = None if x is None else why_of(site, request)
    return page(
        site,
        request,
        "why.html",
        here="why",
        x=x or "",
        session=session or "",
        missing_from=missing_from or "",
        at=at,
        answer=answer,
        groups=() if answer is None else _groups(answer),
    )


def show_blame(site: Site, request: Request) -> Response:
    """Show every value that a key had, with its writer and the turn that led to it."""
    session = name_of(request, "session")
    revisions = revisions_of(site, request)
    rows = [
        {
            "seq": each.seq,
            "url": event_url(each.stream, each.seq),
            "time_ns": each.time_ns,
            "actor": each.actor,
            "key": each.key,
            "value": each.value,
            "state": "erased" if each.erased else ("removed" if each.removed else ""),
            "turn": each.turn,
            "turn_url": event_url(each.stream, each.turn),
        }
        for each in revisions
    ]
    shown: dict[str, Any] = {name: name_of(request, name) or "" for name in ("key", "of", "project_id", "node_id")}
    return page(
        site, request, "blame.html", here="why", session=session, at=moment(request, site.memory), rows=rows, **shown
    )


def event_url(stream: str, seq: int) -> str:
    """Return the URL of an event: its moment in a session, else its why page."""
    root, _, name = stream.partition("/")
    if root == "conversation":
        return f"{url('sessions', name)}?at={seq}"
    return f"/why?{urlencode({'x': seq})}"


def _groups(answer: Why) -> list[tuple[str, list[dict[str, Any]]]]:
    """Group the steps of an answer by subject."""
    groups: list[tuple[str, list[dict[str, Any]]]] = []
    for step in answer.steps:
        if not groups or (step.subject and step.subject != groups[-1][0]):
            groups.append((step.subject, []))
        groups[-1][1].append(_row(step))
    return groups


def _row(step: Reason) -> dict[str, Any]:
    shown = {"relation": step.relation, "text": step.text, "seq": step.seq, "time_ns": step.time_ns}
    shown |= {"actor": step.actor, "kind": step.kind, "kind_class": views.CLASS_OF.get(step.kind, "other")}
    return shown | {"url": event_url(step.stream, step.seq) if step.seq else "", "stream": step.stream}
