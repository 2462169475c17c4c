"""Erasing: what the verbs of memory and conversation check before they hand over to the engine."""

from collections.abc import Iterable
from typing import Final, cast

from refold import checks
from refold.engine import batch as batches
from refold.engine.erasure import erase_seqs, erase_stream
from refold.errors import ReadOnly
from refold.memory.door import Door
from refold.results import Receipt

_DERIVED: Final = {"erase": True, "keep": False}
_FORKS: Final = {"erase": True, "refuse": False}


def erase_events(door: Door, at: int | None, seqs: object, derived: object) -> Receipt:
    """Erase events given as seqs or as results that have one."""
    _check_erasable(door, "the memory", at)
    if not isinstance(seqs, Iterable) or isinstance(seqs, (str, bytes)):
        checks.invalid(f"seqs must be a list of seqs or results, not {type(seqs).__name__} ({checks.shown(seqs)})")
    wanted = {_seq(item) for item in cast("Iterable[object]", seqs)}
    return erase_seqs(door.engine, wanted, derived=_chosen(derived, "derived", _DERIVED))


def erase_conversation(door: Door, stream: str, at: int | None, derived: object, forks: object) -> Receipt:
    """Erase a conversation."""
    _check_erasable(door, stream, at)
    chosen = _chosen(derived, "derived", _DERIVED)
    return erase_stream(door.engine, door.branch, stream, derived=chosen, forks=_chosen(forks, "forks", _FORKS))


def _check_erasable(door: Door, what: str, at: int | None) -> None:
    if at is not None:
        message = f"{what} is frozen at seq {at}; erase through the live handle, which reaches every seq"
        raise ReadOnly(message)
    batches.refuse(door.engine, "an erasure")
    door.engine.check_writable()


def _chosen(value: object, option: str, known: dict[str, bool]) -> bool:
    if not isinstance(value, str) or value not in known:
        checks.invalid(f"{option} is {checks.shown(value)}; give one of {', '.join(map(repr, known))}")
    return known[value]


def _seq(item: object) -> int:
    stamp = getattr(item, "stamp", None)
    seq = item if stamp is None else stamp.seq
    if not isinstance(seq, int) or isinstance(seq, bool) or seq < 1:
        checks.invalid(f"{checks.shown(item)} is no seq and no result that has one; give seqs from 1 on")
    return seq
