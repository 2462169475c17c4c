"""The store's own stream: named snapshots and the record of erasures. No part of ``state_hash``."""

from typing import Any

from msgspec import Struct

from refold.event import Erased, Located, SnapshotNamed, Stamp, View


class Named(Struct, frozen=True, array_like=True, gc=False):
    """A named snapshot: the name, the number of its stream, and the seq it points at."""

    name: str
    stream: int
    seq: int


class Settings:
    """The named snapshots by stream number and name, and the seqs that were erased."""

    __slots__ = ("erased", "snapshots")

    def __init__(self) -> None:
        self.snapshots: dict[tuple[int, str], Named] = {}
        self.erased: list[int] = []


def _pack(settings: Settings) -> tuple[Any, list[int]]:
    return [list(settings.snapshots.values()), settings.erased], []


def _unpack(inline: Any, events: Located) -> Settings:
    settings = Settings()
    for name, stream, seq in inline[0]:
        settings.snapshots[stream, name] = Named(name, stream, seq)
    settings.erased = list(inline[1])
    return settings


def _logical(settings: Settings) -> Any:
    rows = [[named.stream, named.name, named.seq] for named in settings.snapshots.values()]
    return [sorted(rows), sorted(settings.erased)] if rows or settings.erased else None


def _plain(settings: Settings) -> dict[str, Any]:
    return {f"{named.stream}/{named.name}": named.seq for named in settings.snapshots.values()}


SETTINGS = View(
    "settings",
    kinds=("store",),
    empty=Settings,
    pack=_pack,
    unpack=_unpack,
    logical=_logical,
    plain=_plain,
)


@SETTINGS.on(SnapshotNamed)
def snapshot_named(settings: Settings, stamp: Stamp, event: SnapshotNamed) -> None:
    """Keep the name; an erased one is forgotten."""
    if not stamp.erased:
        settings.snapshots[event.base_stream, event.name] = Named(event.name, event.base_stream, event.base_seq)


@SETTINGS.on(Erased)
def erased(settings: Settings, stamp: Stamp, event: Erased) -> None:
    """Remember which bodies are gone."""
    settings.erased.extend(event.seqs)
