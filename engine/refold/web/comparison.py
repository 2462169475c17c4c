"""A session under another policy, compared with the recording: differing windows, and regretted messages."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from refold import Conversation, Memory, checks, fold
from refold.event import Forked, Restored
from refold.memory.core import core_of
from refold.memory.scenario import Scenario
from refold.views.window import POLICIES, WINDOW
from refold.web import views
from refold.web.parameters import moment, name_in, number, text
from refold.web.render import message_row, page
from refold.web.site import Site

_COLUMNS_COUNT: Final = 180
EVICTIONS: Final = tuple(POLICIES)


class Comparison(NamedTuple):
    """The other policy that a request asks for, with its scenario over everything that has happened so far."""

    session: str
    window_tokens: int
    eviction: str | None
    scenario: Scenario


def comparison_of(site: Site, request: Request) -> Comparison:
    """Read the policy of a request; by default it has the session's own budget."""
    session = name_in(request, "session")
    chat = views.find_session(site.memory, session)
    budget, eviction = number(request, "window_tokens", chat.window_tokens), text(request, "eviction")
    if eviction is not None:
        checks.one_of(eviction, "eviction", EVICTIONS)
    return Comparison(session, budget, eviction, site.memory.what_if(window_tokens=budget, eviction=eviction))


def _windows(chat: Conversation, seqs: list[int]) -> Iterator[tuple[int, set[int]]]:
    """Yield the tokens and the seqs of the window at each of the seqs, in one pass over the session."""
    (stream, _), (core, _) = chat.place, core_of(chat)
    state, place = fold.empty("conversation"), 0
    for event, stamp in core.engine.reader.events(core.key(stream), 0, seqs[-1] if seqs else 0):
        if isinstance(event, (Forked, Restored)):
            state = core.engine.reader.base_state(event, state.kind.name)
        fold.fold(state, stamp, event)
        while place < len(seqs) and seqs[place] <= stamp.seq:
            window = state.part(WINDOW)
            yield window.tokens, {message.stamp.seq for message in window.live()}
            place += 1


def columns(memory: Memory, comparison: Comparison) -> list[dict[str, int]]:
    """Return how the messages of both windows differ, at evenly spaced events of the session."""
    chat = views.find_session(memory, comparison.session)
    every = [stamp.seq for _, stamp in chat.events()]
    step = max(-(-len(every) // _COLUMNS_COUNT), 1)
    seqs = every[step - 1 :: step]
    if every and (not seqs or seqs[-1] != every[-1]):
        seqs.append(every[-1])
    pairs = zip(
        seqs, _windows(chat, seqs), _windows(comparison.scenario.conversation(comparison.session), seqs), strict=True
    )
    return [
        {
            "seq": seq,
            "tokens": own_tokens,
            "other_tokens": other_tokens,
            "missing": len(own - other),
            "added": len(other - own),
        }
        for seq, (own_tokens, own), (other_tokens, other) in pairs
    ]


def document(site: Site, comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as plain values."""
    session, regret = comparison.session, comparison.scenario.regret()
    return {
        "session": session,
        "window_tokens": comparison.window_tokens,
        "eviction": comparison.eviction,
        "columns": columns(site.memory, comparison),
        "regret": [msgspec.to_builtins(each) for each in regret if each.conversation == session],
    }


def _sides(site: Site, request: Request, comparison: Comparison) -> dict[str, Any]:
    """Return both windows at the moment of a request."""
    live = views.find_session(site.memory, comparison.session)
    first, last = next(live.events()).stamp.seq, views.last_seq(live)
    at = moment(request, site.memory)
    at = last if at is None else max(min(at, last), first)
    seqs = [stamp.seq for _, stamp in live.events(first - 1)]
    place = bisect_right(seqs, at)
    pair = (("recorded", site.memory.at(at)), ("other", comparison.scenario.memory.at(at)))
    sides: list[dict[str, Any]] = []
    for key, memory in pair:
        shown = views.window_json(memory, comparison.session)
        sides.append({"key": key, **shown, "messages": [message_row(message) for message in shown["messages"]]})
    for side, other in zip(sides, reversed(sides), strict=True):
        side["others"] = {message["seq"] for message in other["messages"]}
    return {
        "session": comparison.session,
        "at": at,
        "first": first,
        "last": last,
        "previous": seqs[max(place - 2, 0)],
        "next": seqs[min(place, len(seqs) - 1)],
        "budget": comparison.window_tokens,
        "eviction": comparison.eviction or "",
        "sides": sides,
    }


def show_what_if(site: Site, request: Request) -> Response:
    """Show a session under another policy as a second track below its own."""
    comparison = comparison_of(site, request)
    shown, other = _sides(site, request, comparison), document(site, comparison)
    most = max((max(each["missing"], each["added"]) for each in other["columns"]), default=0)
    return page(
        site,
        request,
        "what_if.html",
        here="sessions",
        evictions=EVICTIONS,
        classes=views.TRACK_CLASSES,
        branches=site.branches.of(comparison.session),
        columns=other["columns"],
        most=most,
        differing=sum(bool(each["missing"] or each["added"]) for each in other["columns"]),
        regret=other["regret"],
        **shown,
    )


def show_sides(site: Site, request: Request) -> Response:
    """Show only both windows at a moment, as a fragment of the page."""
    return page(site, request, "sides.html", **_sides(site, request, comparison_of(site, request)))
