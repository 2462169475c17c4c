"""The addresses of resources: ``memory://conversations/{id}/window`` and the others, read and written."""

from typing import Final, NoReturn
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from msgspec import Struct

from refold import checks

SCHEME: Final = "memory"
SCRATCHPAD: Final = "scratchpad"
WINDOW: Final = "window"
EVENTS: Final = "events"
PROFILE: Final = "profile"
NOTES: Final = "notes"
MEMORIES: Final = "memories"

CONVERSATION_KINDS: Final = (SCRATCHPAD, WINDOW, EVENTS)

TEMPLATES: Final = {
    SCRATCHPAD: "memory://conversations/{id}/scratchpad",
    WINDOW: "memory://conversations/{id}/window",
    EVENTS: "memory://conversations/{id}/events{?from,to}",
    NOTES: "memory://notes/{date}",
    MEMORIES: "memory://projects/{id}/memories{?offset,limit}",
}
"""By the kind of resource; the profile has one address alone."""

_PAGING: Final = {EVENTS: ("from", "to"), MEMORIES: ("offset", "limit")}
_NUMBER_CHARS_MAX: Final = 19
_ADVICE: Final = "resources/list and resources/templates/list show those that there are"


class Address(Struct, frozen=True):
    """Which resource is meant: its kind, the id or the day that it is of, and which part of it."""

    kind: str
    id: str = ""
    paging: tuple[tuple[str, int], ...] = ()

    @property
    def whole(self) -> "Address":
        """The resource without what says which part of it."""
        return Address(self.kind, self.id)

    @property
    def uri(self) -> str:
        """The address as a client writes it."""
        base = _BASES[self.kind].format(quote(self.id, safe=""))
        return base + ("?" + "&".join(f"{name}={number}" for name, number in self.paging) if self.paging else "")


_BASES: Final = {
    **{kind: f"{SCHEME}://conversations/{{}}/{kind}" for kind in CONVERSATION_KINDS},
    PROFILE: f"{SCHEME}://profile",
    NOTES: f"{SCHEME}://notes/{{}}",
    MEMORIES: f"{SCHEME}://projects/{{}}/memories",
}


def parsed(uri: str) -> Address:
    """Return what an address means; ``InvalidInput`` for one that means nothing."""
    try:
        _check_characters(uri)
        split = urlsplit(uri)
        kind, name = _kind(split.scheme, split.netloc, split.path.split("/")[1:])
        paging = _numbers(kind, parse_qsl(split.query, keep_blank_values=True, strict_parsing=bool(split.query)))
        if split.fragment:
            _none("there is no part of a resource that is called so")
    except ValueError as error:
        checks.invalid(f"no resource has the address {checks.shown(uri)} ({error}); {_ADVICE}")
    return Address(kind, name, paging)


def _kind(scheme: str, root: str, path: list[str]) -> tuple[str, str]:
    """Return the kind of a resource and its id; ``ValueError`` where there is none like it."""
    match root, path:
        case "conversations", [name, kind] if kind in CONVERSATION_KINDS and name:
            found = kind, unquote(name, errors="strict")
        case "projects", [name, "memories"] if name:
            found = MEMORIES, unquote(name, errors="strict")
        case "notes", [day] if day:
            found = NOTES, unquote(day, errors="strict")
        case "profile", [] | [""]:
            found = PROFILE, ""
        case _:
            found = "", ""
    if scheme != SCHEME or not found[0]:
        _none("there is no such kind of resource")
    return found


def _check_characters(uri: str) -> None:
    """Refuse what ``urlsplit`` leaves out without a word, so that another resource would be meant."""
    if not uri.isprintable() or uri != uri.strip():
        _none("spaces around it, and what cannot be printed in it, are written with %")


def _none(why: str) -> NoReturn:
    raise ValueError(why)


def _numbers(kind: str, given: list[tuple[str, str]]) -> tuple[tuple[str, int], ...]:
    """Return what a query says, in the order of its names."""
    known = _PAGING.get(kind, ())
    for name, text in given:
        if name not in known or not (text.isascii() and text.isdecimal() and len(text) <= _NUMBER_CHARS_MAX):
            _none(f"{name}={text} is none of {', '.join(f'{name}=NUMBER' for name in known) or 'nothing'}")
    numbers = {name: int(text) for name, text in given}
    if len(numbers) < len(given):
        _none("a number is given twice")
    return tuple((name, numbers[name]) for name in known if name in numbers)
