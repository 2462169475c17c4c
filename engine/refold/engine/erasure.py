"""Erasing: which events an erasure reaches, the commit that blanks them, and the file without a trace of them.

One transaction appends the ``erased`` events, puts the blanked records in the place of the others, gives erased
streams another name, and removes every cached row that may hold what is gone. Then the file is replaced by a clean
copy. Between the two a row says that this is still to be done: whoever opens the store next does it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from refold import fold
from refold.engine import times, writer
from refold.engine.admission import Verb, admit_verb
from refold.engine.checkpoints import APPLIED_KEY, number_of
from refold.engine.core import Engine
from refold.engine.group import Group
from refold.engine.keys import key_of, kind_of, session_board
from refold.engine.markers import markers_of, telling
from refold.engine.pending import ANY
from refold.engine.reaching import (
    Base,
    Plan,
    affected,
    bases,
    family,
    heirs,
    mentions_of,
    new_name,
    own_seqs,
    pages,
    planned,
    snapshots_of,
)
from refold.engine.reading import TAGS_KEY, UNSWEPT_KEY
from refold.engine.slots import Slot
from refold.engine.streams import STORE_STREAM, Uncovered, name_key, number_key
from refold.errors import InvalidInput, StoreError
from refold.event import Erased
from refold.limits import ERASED_SEQS_COUNT, PAGE_EVENTS, SALT_BYTES
from refold.results import Receipt
from refold.store.protocol import Row, scan
from refold.store.record import SEQ, blanked, header_of

BEYOND_REACH: Final = (
    "exports and backups that were made before",
    "snapshots that were handed out as bytes",
    "what callers, subscribers and models were given",
    "what was made of it and names neither its events as sources nor the conversation",
    "files of a mirror until it runs next, and skills that were written as files",
    "blocks that the file system or the disk keeps of files that are gone",
)


def erase_seqs(engine: Engine, seqs: Collection[int], *, derived: bool) -> Receipt:
    """Erase the bodies of events, and of those that were derived from them; return what was reached."""

    def plan(_known: Sequence[Base]) -> Plan:
        beyond = [seq for seq in seqs if not 0 < seq <= engine.head]
        if beyond:
            message = f"seq {beyond[0]} is not in the log, which ends at {engine.head}; give seqs of events"
            raise InvalidInput(message)
        return planned(engine, set(seqs), {}, set(), derived=derived)

    return _erase(engine, plan)


def erase_stream(engine: Engine, branch: int, name: str, *, derived: bool, forks: bool) -> Receipt:
    """Erase all events of a stream and its name, with what was forked from it if ``forks``; return what was reached.

    With ``derived`` that is also the board of a conversation, and every event that names the conversation. Raises
    ``InvalidInput`` if live forks go on from it and are not to be erased too, or if it was inherited.
    """

    def plan(known: Sequence[Base]) -> Plan:
        slot = engine.streams.find(key_of(branch, name))
        if slot is not None and slot.base is not None:
            message = f"{name} was inherited when this memory was forked; erase it in the memory it was forked from"
            raise InvalidInput(message)
        renamed = {} if slot is None else _renamed(engine, slot, known, forks=forks)
        boards: dict[int, str] = {}
        mentioned = set[int]()
        for own_branch, conversation in _conversations(engine, branch, name, renamed) if derived else ():
            mentioned |= mentions_of(engine, own_branch, conversation)
            board = engine.streams.find(key_of(own_branch, session_board(conversation)))
            if board is not None and board.base is None:
                boards |= _renamed(engine, board, known, forks=forks)
        mentioned |= _events_of(engine, boards)
        return planned(engine, _events_of(engine, renamed), renamed | boards, mentioned, derived=derived)

    return _erase(engine, plan)


def _events_of(engine: Engine, streams: Collection[int]) -> set[int]:
    """Return the seqs of the streams' own events, and of those that gave states of them a name."""
    return {seq for number in streams for seq in own_seqs(engine, number)} | snapshots_of(engine, streams)


def _conversations(engine: Engine, branch: int, name: str, renamed: Collection[int]) -> set[tuple[int, str]]:
    """Return branch and id of a conversation and of all that are renamed with it, where forks inherited them too."""
    slots = [engine.streams.at_number(number) for number in renamed]
    slots += [heir for slot in slots for heir, _ in heirs(engine, slot)]
    found = {(branch, name), *((slot.branch, slot.name) for slot in slots)}
    return {(each, name.partition("/")[2]) for each, name in found if kind_of(name) == "conversation"}


def _renamed(engine: Engine, slot: Slot, known: Sequence[Base], *, forks: bool) -> dict[int, str]:
    """Return the new names of a stream and of its forks, by number; refuse where live forks are not to go along."""
    kin, dependents = family(engine, slot, known)
    if dependents and not forks:
        message = (
            f"{dependents[0]} and {len(dependents) - 1} more go on from {slot.name}; drop the forks with "
            f"close(drop=True), or erase them too with forks='erase'"
        )
        raise InvalidInput(message)
    streams = kin if forks else [slot.number]
    return {number: new_name(engine, streams, number) for number in streams}


def _erase(engine: Engine, plan: Callable[[Sequence[Base]], Plan]) -> Receipt:
    """Erase what a plan says that is made once the store is held alone; nothing is changed where it refuses."""
    with engine.exclusive():
        engine.check_writable()
        with engine.log.alone():
            with engine.state_lock:
                engine.notice()
                engine.settle()  # Rows that wait in RAM are forgotten when all begins anew.
                known = bases(engine)
                reached = plan(known)
                seqs = sorted({*reached.asked, *reached.derived})
                if not (seqs or reached.renamed or _is_unswept(engine)):
                    return _receipt(engine, reached, set(), 0)
                markers = _markers(engine, seqs, reached.renamed)
                rows = _commit(engine, seqs, reached.renamed, known) if seqs or reached.renamed else 0
                _finish(engine)
            if engine.ring is not None:
                engine.ring()
            return _receipt(engine, reached, markers, rows)


def _is_unswept(engine: Engine) -> bool:
    return engine.log.row("meta", UNSWEPT_KEY) is not None


def _finish(engine: Engine) -> None:
    """Store what the erasure packed anew, and sweep; the store is held alone."""
    try:
        engine.settle()
        sweep(engine)
    except StoreError as error:
        message = (
            f"the events are erased, but the file is not yet rewritten without their bytes: {error}; that is done "
            f"by whoever erases something, or opens the store to write, once the disk allows it"
        )
        raise type(error)(message) from error


def sweep(engine: Engine) -> None:
    """Replace the file by a clean copy; the store is held alone. Where there is no room, a later opening does it."""
    engine.log.sweep()
    engine.log.write_rows([("meta", UNSWEPT_KEY, None)])


def sweep_again(engine: Engine) -> None:
    """Do what an erasure that was cut off has left to do, if the store can be had alone and has the room."""
    if engine.log.readonly or not _is_unswept(engine):
        return
    try:
        with engine.exclusive(), engine.log.alone(), engine.state_lock:
            sweep(engine)
    except StoreError:
        return  # Somebody else has it open, or there is no room: the row stays, and the next opening tries again.


def _commit(engine: Engine, seqs: Sequence[int], renamed: Mapping[int, str], known: Sequence[Base]) -> int:
    """Write the erasure as one transaction and begin anew from what is left; return how many cached rows went."""
    begins = affected(engine, seqs, known) | dict.fromkeys(renamed, 1)
    stale = _stale_rows(engine, begins)
    row = engine.log.row("checkpoints", APPLIED_KEY)
    applied = SEQ.unpack(row)[0] if row else 0
    uncovered = _uncovered(engine, begins, applied)
    group = Group()
    for begin in range(0, max(len(seqs), 1), ERASED_SEQS_COUNT):
        event = Erased((), tuple(seqs[begin : begin + ERASED_SEQS_COUNT]))
        admit_verb(engine, group, Verb(STORE_STREAM, event, None, None, ANY, None))
    batch = writer.build(
        group,
        first_seq=engine.head + 1,
        time_ns=max(times.checked(engine.clock_ns()), engine.time_ns),
        link=engine.link,
        salts=engine.random_bytes(SALT_BYTES * len(group.events)),
    )
    rows: list[Row] = [*stale, *_renaming(engine, renamed), *engine.streams.rows_of(list(group.born.values()))]
    rows.append(("meta", TAGS_KEY, msgspec.msgpack.encode(sorted(engine.tags | {fold.TAGS[Erased]}))))
    rows.append(("meta", UNSWEPT_KEY, b"\1"))
    lowest = min([applied, *(seqs_left[0] - 1 for _, seqs_left in uncovered.values() if seqs_left)])
    rows.append(("checkpoints", APPLIED_KEY, SEQ.pack(lowest)))
    try:
        with engine.log.turn() as turn:
            turn.write(batch.first_seq, batch.records, [batch.commit], rows, list(_blanked(engine, seqs)))
    except BaseException:
        engine.restart()  # Whatever cut this off: what is erased is what the log says.
        raise
    engine.restart(Uncovered(applied, uncovered))
    for number in uncovered:
        engine.keeper.settle(engine.streams.at_number(number))
    return len(stale)


def _blanked(engine: Engine, seqs: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    for page in pages(seqs):
        for seq, record in zip(page, engine.log.read_at(page), strict=True):
            kind = fold.EVENT_TYPES[header_of(record).tag]
            yield seq, blanked(record, 1 + len(fold.STRUCTURAL[kind]))


def _stale_rows(engine: Engine, begins: Mapping[int, int]) -> list[Row]:
    """Return the deletions of the cached rows that may hold what is about to be erased."""
    stale: list[Row] = []
    for number, begin in begins.items():
        prefix = number_key(number)
        for key, _ in scan(engine.log, "checkpoints", prefix, PAGE_EVENTS, prefix + SEQ.pack(begin)):
            assert number_of(key) == number, key
            stale.append(("checkpoints", key, None))
        stale.append(("digests", prefix, None))
        stale.append(("graphs", prefix, None))
    return stale


def _uncovered(engine: Engine, begins: Mapping[int, int], applied: int) -> dict[int, tuple[int, list[int]]]:
    """Return version and seqs of those events up to ``applied`` that no row covers once the stale ones are gone."""
    found: dict[int, tuple[int, list[int]]] = {}
    for number, begin in begins.items():
        row = engine.checkpoints.before(number, begin - 1) if begin > 1 else None
        slot = engine.streams.at_number(number)
        seqs = list(engine.streams.own_seqs(slot, 0 if row is None else row.seq, min(slot.seq, applied)))
        if seqs:
            found[number] = (engine.loader.recorded([seqs[-1]])[0].stamp.version, seqs)
    return dict(sorted(found.items(), key=lambda item: item[1][1][0]))


def _renaming(engine: Engine, renamed: Mapping[int, str]) -> Iterator[Row]:
    for number, name in renamed.items():
        slot = engine.streams.at_number(number)
        yield "names", name_key(slot.branch, slot.name), None
        yield "names", name_key(slot.branch, name), number_key(number)
        yield "streams", number_key(number), msgspec.msgpack.encode((name, slot.branch))


# What the receipt says.


def _markers(engine: Engine, seqs: Sequence[int], renamed: Collection[int]) -> set[bytes]:
    """Return the texts and bytes of the bodies at the seqs, and the ids of the streams that get other names."""
    ids = {engine.streams.name_of(number).partition("/")[2].encode() for number in renamed}
    return ids | markers_of(event for page in pages(seqs) for event, _ in engine.loader.recorded(page))


def _receipt(engine: Engine, plan: Plan, markers: set[bytes], rows: int) -> Receipt:
    """Look for what was erased in every file of the store, and say what was reached."""
    wanted = telling(markers)
    found = engine.log.search(wanted)
    return Receipt(
        seqs=tuple(plan.asked),
        derived=tuple(plan.derived),
        streams=tuple(sorted(set(plan.renamed.values()))),
        cached_rows=rows,
        markers=len(wanted),
        markers_too_short=len(markers) - len(wanted),
        files=found.files,
        searched_bytes=found.bytes,
        occurrences=found.occurrences,
        beyond_reach=BEYOND_REACH,
    )
