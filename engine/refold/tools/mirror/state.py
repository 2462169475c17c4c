"""What a mirror knows of its files from one run to the next: what each held when file and log were last the same.

It is digests alone, so that what was erased does not live on in it. Before files are replaced, what they are about to
hold stands beside what they held: whoever comes after a crash finds either.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from refold.errors import InvalidInput
from refold.hashing import blake2b
from refold.tools.mirror.merging import Passed, facts_told, told
from refold.tools.mirror.pages import Part, digest, part_of, profile_bytes
from refold.tools.mirror.reports import MirrorEdit

FORMAT: Final = 1


class Base(Struct, frozen=True):
    """What a file held: the digest of its bytes, and of its facts, or of its notes in their order."""

    digest: str
    size: int = 0
    facts: dict[str, str] = {}
    notes: tuple[Part, ...] = ()
    own: tuple[str, ...] = ()
    """What of that is a hand's alone, which the log does not take: lines, and keys with their values."""


class Owner(Struct, frozen=True):
    """Whose files these are."""

    store: str
    branch: int
    profile: str
    journal: str


class State(Struct):
    """What is known of the files: as they are, and as they are about to be."""

    owner: Owner
    seq: int = 0
    files: dict[str, Base] = {}
    taking: dict[str, Base] = {}
    """Of files that were edited, what is about to be taken: facts, ``""`` for a deletion, and notes."""
    taking_edits: tuple[str, ...] = ()
    """The same edits in their order, as digests."""
    taking_after: int = 0
    """The seq that the log had before them."""
    taken: dict[str, Base] = {}
    """What rounds that were cut off took from files; the files held it."""
    coming: dict[str, Base] = {}
    recent: list[Passed] = []
    """How the profile's file changed of late."""
    format: int = FORMAT
    beside: dict[str, tuple[str, ...]] = {}
    """Of copies that were kept beside files, what in them the log had said, by digests."""
    former: dict[str, tuple[Base, ...]] = {}
    """What files held before an erasure, until no copy of it can come from them any more."""
    erased_count: int = 0
    """How many events had been erased when the files and the copies were last rid of them."""


class _Headed(Struct):
    """What a state of any format begins with."""

    format: int = FORMAT


def packed(state: State) -> bytes:
    """Return the bytes of a state: its checksum, and JSON."""
    content = msgspec.json.encode(state)
    return f"{_checksum(content)}\n".encode() + content


def unpacked(content: bytes, owner: Owner, path: str) -> State | None:
    """Return the state that some bytes are, ``None`` for none and for damaged ones.

    Raises ``InvalidInput`` where the files are another owner's, or those of a newer refold.
    """
    checksum, _, document = content.partition(b"\n")
    if checksum != _checksum(document).encode():
        return None
    try:
        found = msgspec.json.decode(document, type=_Headed).format
        state = msgspec.json.decode(document, type=State) if found == FORMAT else None
    except msgspec.ValidationError:
        return None
    if state is None:
        message = f"{path} was written by a newer refold (format {found}, this one knows {FORMAT}); upgrade refold"
        raise InvalidInput(message)
    if state.owner != owner:
        message = (
            f"{path} mirrors {_named(state.owner)}, and this is {_named(owner)}; give this one a directory of its own, "
            f"or remove .refold-mirror there to have its files taken as written by hand"
        )
        raise InvalidInput(message)
    return state


def _named(owner: Owner) -> str:
    branch = f", fork {owner.branch}" if owner.branch else ""
    return f"profile {owner.profile!r} and journal {owner.journal!r} of store {owner.store}{branch}"


def _checksum(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def base_of_profile(facts: dict[str, str], content: bytes | None = None, own: Iterable[str] = ()) -> Base:
    """Return the base of a profile's file, that of its own bytes or of those that a hand wrote."""
    content = profile_bytes(facts) if content is None else content
    return Base(digest(content), len(content), facts=facts_told(facts), own=tuple(sorted(own)))


def base_of_edits(edits: Sequence[MirrorEdit], content: bytes) -> Base:
    """Return what is about to be taken from a file."""
    facts = {told(edit.name) or "": told(edit.text) or "" for edit in edits if edit.kind != "append"}
    notes = tuple(part_of(edit.text) for edit in edits if edit.kind == "append" and edit.text)
    return Base(digest(content), len(content), facts, notes)


def joined(one: Base, other: Base) -> Base:
    """Return what was taken from a file by two rounds."""
    return Base("", facts=one.facts | other.facts, notes=(*one.notes, *other.notes))


def base_of_day(content: bytes, parts: Iterable[Part], own: Iterable[str] = ()) -> Base:
    """Return the base of a day's file that holds these notes."""
    return Base(digest(content), len(content), notes=tuple(parts), own=tuple(sorted(own)))
