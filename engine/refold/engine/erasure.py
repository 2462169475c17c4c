"""Erasure: the events that it reaches, the commit that blanks them, and a file without a trace of them.

One commit appends the ``erased`` events, replaces records with blanked ones, renames erased streams, and removes every
cached row that may hold erased data. In a directory, that commit is a clean copy that replaces the file. In a log on a
server, a second step removes the bytes. Until then a row marks that step as pending, and the next process that opens
the log to write performs it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Final, NamedTuple, cast

import msgspec

from refold import fold
from refold.engine import vectors
from refold.engine.engine import Engine
from refold.engine.kin import Base, affected_streams, family, heirs, own_seqs, pages, read_bases, stored_events
from refold.engine.markers import kept_elsewhere, markers_of, searchable_markers
from refold.engine.new_ids import NewIds, new_ids
from refold.engine.origin import origin_in
from refold.engine.packed import packed_rows_key, page_of, terms_key
from refold.engine.reader import (
    FORGOTTEN,
    TAGS_KEY,
    UNSWEPT_KEY,
    VERB_BYTES,
    Reader,
    answer_of,
    check_time,
    record_at,
)
from refold.engine.rewrite import Part, files_anew, parts_at
from refold.engine.scan import EventFilter, events_with, seqs_with
from refold.engine.spellings import Spelling
from refold.engine.streams import (
    APPLIED_KEY,
    STORE_STREAM,
    CheckpointGaps,
    Stream,
    covered_seq,
    key_of,
    kind_of,
    name_key,
    number_key,
    number_of,
    reports_damage,
    rows_of,
    session_board,
)
from refold.engine.transaction import CommitSeed, Group, Mutation, build_commit
from refold.entry import MemoriesRecalled
from refold.errors import InvalidInput, StoreError
from refold.event import (
    FLAG_ERASED,
    Erased,
    Event,
    Recorded,
    Restored,
    SnapshotNamed,
    StateImported,
)
from refold.limits import (
    ERASED_SEQS_COUNT,
    HASH_BYTES,
    KEYED_HASH_BYTES,
    PAGE_EVENTS,
    SALT_BYTES,
    SEED_BYTES,
)
from refold.log.protocol import LogTurn, Row, TurnLost, retry_turn, scan
from refold.log.record import SEQ, Sealed, digest_of, erase_bodies
from refold.message import MessageAppended, MessageReplaced, messages_of
from refold.results import Receipt
from refold.views.board import BOARD, NODE_ID, PROJECT_ID, node_board
from refold.views.session import ContextShown, MemoriesExtracted
from refold.views.store import ERASED_PREFIX, ContextHashed
from refold.views.window import WINDOW, MessagesRecalled, WindowSummarized

# The reach of an erasure: derived events, forks of erased streams, and every state that may hold erased data.

_MENTIONING: Final = {
    kind.name: frozenset(fold.TAGS[event] for event in kind.handlers if event.mentions is not Event.mentions)
    for kind in fold.KINDS.values()
}
"""Kind of stream -> tags of its events that name conversations."""


_AGAIN: Final = "-again"
"""What a new name ends with if another stream has that name."""


class ErasurePlan(NamedTuple):
    """The reach of an erasure: the events requested, those derived from them, and the streams to rename."""

    seqs: list[int]
    derived: list[int]
    renamed: dict[int, str]
    """Number of a stream -> its new name."""
    naming: list[int]
    """Events that are kept although they name an erased conversation, or are on its board or those of a project."""
    bases: list[Base]
    """All forks and restores of the log."""
    new_ids: NewIds
    """What takes the place of ids that callers chose, also in events that were erased earlier."""


def _plan_events(
    reader: Reader,
    seqs: set[int],
    renamed: dict[int, str],
    mentioned: set[int],
    bases: list[Base],
    *,
    derived: bool,
    text: str | None,
) -> ErasurePlan:
    """Return the plan to erase the given events; with ``derived``, also what names them or was derived from either.

    A summary of messages counts as derived from each of them, and the hashes of a context from everything that it may
    have shown.
    """
    more = set[int]()
    if derived:
        parts = {} if text is None else parts_at(reader, seqs)
        more = mentioned | _derived_seqs(reader, seqs | mentioned, parts)
        fresh = seqs | more
        while summaries := _summaries_of(reader, fresh, bases):
            fresh = (summaries | _derived_seqs(reader, summaries)) - seqs - more
            more |= fresh
    spelling = None if text is None else Spelling(text)
    fresh_ids = new_ids(
        reader,
        seqs | more,
        bases,
        lambda given: spelling is None or spelling.is_in(msgspec.msgpack.encode(given)),
    )
    if derived:
        showable = _showable_seqs(reader, seqs | more | fresh_ids.keys())
        more |= _hashes_of(reader, affected_streams(reader, showable, bases) | dict.fromkeys(renamed, 1))
    naming = unerased_seqs(reader, mentioned - seqs - more)
    own, others = unerased_seqs(reader, seqs), unerased_seqs(reader, more - seqs)
    return ErasurePlan(own, others, renamed, naming, bases, fresh_ids)


def _derived_seqs(reader: Reader, seqs: Iterable[int], parts: Mapping[int, Part] | None = None) -> set[int]:
    """Return the seqs of all events that were derived from the given ones, directly or indirectly.

    Later changes of the files and skills of ``parts`` are not derived from these.
    """
    derived: set[int] = set()
    waiting = list(seqs)
    while waiting:
        source = waiting.pop()
        part = parts.get(source) if parts else None
        for key, _ in scan(reader.log, "derived", SEQ.pack(source), PAGE_EVENTS):
            (seq,) = SEQ.unpack(key[SEQ.size :])
            if seq not in derived and (part is None or parts_at(reader, [seq]).get(seq) != part):
                derived.add(seq)
                waiting.append(seq)
    return derived


class _Contribution(NamedTuple):
    """Messages that a summary can be made of, or the content of one: the seqs where they came and of the event."""

    came: int
    seq: int
    ids: tuple[str, ...]


_CONTRIBUTING: Final = frozenset(fold.TAGS[kind] for kind in (MessageAppended, MessageReplaced, StateImported))


def _summaries_of(reader: Reader, seqs: Collection[int], bases: Sequence[Base]) -> set[int]:
    """Return the seqs of the summaries that were made of messages of the events at the seqs.

    A summary cites no messages, because it can be of many thousands. It cites the summary that it builds on.
    """
    if fold.TAGS[WindowSummarized] not in reader.tags:
        return set()
    contributions = sorted(_contributions(reader, sorted(seqs)))
    if not contributions:
        return set()
    begins = affected_streams(reader, sorted(message.seq for message in contributions), bases)
    summaries = set[int]()
    for page in pages(seqs_with(reader, EventFilter((), (WindowSummarized,)), after=contributions[0].came)):
        numbers = [stored.number for stored in reader.log.events_at(page)]
        for number, recorded in zip(numbers, reader.loader.recorded_events(page), strict=True):
            stamp = recorded.stamp
            key = key_of(reader.streams.branch_of(number), stamp.stream)
            if _may_hold(reader, key, stamp.seq, begins) and _is_summary_of(reader, key, recorded, contributions):
                summaries.add(stamp.seq)
    return summaries


def _contributions(reader: Reader, seqs: Sequence[int]) -> Iterator[_Contribution]:
    for page in pages(seqs):
        own = [stored.seq for stored in reader.log.events_at(page) if fold.tag_of(stored.array) in _CONTRIBUTING]
        for recorded in reader.loader.recorded_events(own):
            event, stamp = recorded
            came = event.origin if isinstance(event, MessageReplaced) else stamp.seq
            yield _Contribution(came, stamp.seq, tuple(message.id for message in messages_of(recorded)))


def _is_summary_of(reader: Reader, key: str, recorded: Recorded, contributions: Sequence[_Contribution]) -> bool:
    """Return whether a summary includes one of the messages: those behind the last summary that had left the window."""
    event, stamp = recorded
    assert isinstance(event, WindowSummarized), event
    until = bisect_right(contributions, event.origin, key=lambda each: each.came)
    if not until:
        return False
    after, live = reader.read(key, _summary_state, stamp.seq - 1)
    begin = bisect_right(contributions, after, 0, until, key=lambda each: each.came)
    return any(each.seq < stamp.seq and not live.issuperset(each.ids) for each in contributions[begin:until])


def _summary_state(state: fold.State) -> tuple[int, frozenset[str]]:
    """Return the seq up to which messages need no summary, and the ids of those in the window."""
    window = state.part(WINDOW)
    return window.summarized, frozenset(message.id for message in window.live())


_NEVER_SHOWN: Final = frozenset(
    fold.TAGS[kind] for kind in (MemoriesRecalled, MessagesRecalled, MemoriesExtracted, ContextShown, ContextHashed)
)
"""The tags of events that no context shows, although they are in streams that contexts show."""


def _showable_seqs(reader: Reader, seqs: Iterable[int]) -> list[int]:
    """Return the seqs whose events a context can show, in order."""
    return [stored.seq for stored in stored_events(reader, seqs) if fold.tag_of(stored.array) not in _NEVER_SHOWN]


def _hashes_of(reader: Reader, begins: Mapping[int, int]) -> set[int]:
    """Return the seqs of the hashes of contexts that may have shown erased data.

    ``begins`` maps the number of a stream to the seq from which its state may hold that data. A context is made of its
    conversation, that conversation's board with the node's board under it, a project, a profile and a journal. Anything
    that it quotes from other conversations is among its sources.
    """
    if not begins or fold.TAGS[ContextHashed] not in reader.tags:
        return set()
    hashed = seqs_with(reader, EventFilter((), (ContextHashed,)), after=min(begins.values()))
    return {seq for page in pages(hashed) for seq in _page_hashes(reader, page, begins)}


def _page_hashes(reader: Reader, page: Sequence[int], begins: Mapping[int, int]) -> Iterator[int]:
    owners = {stamp.seq: event.sources[0] for event, stamp in reader.loader.recorded_events(page)}
    contexts = sorted(owners.values())
    numbers = {stored.seq: stored.number for stored in reader.log.events_at(contexts)}
    recorded = {context.stamp.seq: context for context in reader.loader.recorded_events(contexts)}
    for seq, owner in owners.items():
        event, stamp = recorded[owner]
        # If the source is no context or was erased, there is no record of what it showed, and it cannot be rebuilt.
        if not isinstance(event, ContextShown) or stamp.erased:
            yield seq
            continue
        branch = reader.streams.branch_of(numbers[owner])
        for name in _context_streams(reader, branch, stamp.stream, event):
            if _may_hold(reader, key_of(branch, name), event.origin, begins):
                yield seq
                break


def _context_streams(reader: Reader, branch: int, stream: str, event: ContextShown) -> Iterator[str]:
    """Yield the streams that a context was made of."""
    yield from (stream, f"project/{event.project}", f"profile/{event.profile}", f"journal/{event.journal}")
    board = session_board(stream.partition("/")[2])
    if reader.streams.find(key_of(branch, board)) is not None:
        yield board
        yield from reader.read(key_of(branch, board), _node_boards, event.origin)


def _node_boards(state: fold.State) -> list[str]:
    """Return the stream of the node's board under a session's board; empty if the session works on no node."""
    own = state.part(BOARD)
    project, node = own.text(PROJECT_ID), own.text(NODE_ID)
    return [node_board(project, node)] if project and node else []


def _may_hold(reader: Reader, key: str, seq: int, begins: Mapping[int, int]) -> bool:
    """Return whether the state of a stream at a seq may hold erased data, including what it inherited."""
    stream = reader.streams.find(key)
    while stream is not None:
        if begins.get(stream.number, seq + 1) <= seq:
            return True
        if stream.base is None:
            return False
        number, last = stream.base
        stream, seq = reader.streams.at_number(number), min(seq, last)
    return False


def _mentions_of(reader: Reader, places: Iterable[tuple[int, str]]) -> set[int]:
    """Return the seqs of the events that name a conversation, given by branch and name, from other streams there."""
    names: dict[int, set[str]] = {}
    for branch, name in places:
        if kind_of(name) == "conversation":
            names.setdefault(branch, set()).add(name.partition("/")[2])
    mentions = set[int]()
    for branch, conversations in names.items():
        for kind, tags in _MENTIONING.items():
            for name in reader.streams.names(branch, f"{kind}/") if reader.tags & tags else ():
                stream = reader.streams.find(key_of(branch, name))
                seqs = own_seqs(reader, stream.number) if stream is not None and stream.number else []
                mentions |= {seq for page in pages(seqs) for seq in _page_mentions(reader, page, tags, conversations)}
    return mentions


def _page_mentions(
    reader: Reader, page: Sequence[int], tags: Collection[int], conversations: set[str]
) -> Iterator[int]:
    """Yield the seqs of the events with these tags that name one of the conversations; few others are decoded."""
    names = [name.encode() for name in conversations]
    events = [stored for stored in reader.log.events_at(page) if fold.tag_of(stored.array) in tags]
    seqs = [stored.seq for stored in events if any(name in stored.array for name in names)]
    for event, stamp in reader.loader.recorded_events(seqs):
        if not conversations.isdisjoint(event.mentions()):
            yield stamp.seq


def unerased_seqs(reader: Reader, seqs: Iterable[int]) -> list[int]:
    """Return the seqs whose events still have a body to erase, in order."""
    return [
        stored.seq
        for stored in stored_events(reader, seqs)
        if not stored.flags & FLAG_ERASED and fold.tag_of(stored.array) != fold.TAGS[Erased]
    ]


def _new_names(reader: Reader, streams: Collection[int]) -> dict[int, str]:
    """Return the names of streams after their erasure by number, without those of which nothing is left to erase.

    A branch's stream shares the name of the one that it continues.
    """
    sharing: dict[int, list[int]] = {}
    for number in sorted(streams):
        first = reader.streams.at_number(number)
        while first.base is not None and first.base[0] in streams:
            first = reader.streams.at_number(first.base[0])
        sharing.setdefault(first.number, []).append(number)
    names: dict[int, str] = {}
    for first_number, numbers in sharing.items():
        if not all(_is_erased(reader, number) for number in numbers):
            first = reader.streams.at_number(first_number)
            names |= dict.fromkeys(numbers, _free_name(reader, first))
    return names


def _free_name(reader: Reader, stream: Stream) -> str:
    name = _erased_name(stream)
    while reader.log.row("names", name_key(stream.branch, name)) is not None:
        name += _AGAIN
    return name


def _erased_name(stream: Stream) -> str:
    return f"{kind_of(stream.name)}/{ERASED_PREFIX}{stream.number}"


def _is_erased(reader: Reader, number: int) -> bool:
    """Return whether an erasure has renamed a stream and left nothing of it, so that another one would do the same."""
    stream = first = reader.streams.at_number(number)
    name = stream.name
    while name.endswith(_AGAIN):
        name = name.removesuffix(_AGAIN)
    while first.base is not None and name != _erased_name(first):
        first = reader.streams.at_number(first.base[0])
    if name != _erased_name(first):
        return False
    seqs = unerased_seqs(reader, _events_of(reader, [number]))
    left = [event for page in pages(seqs) for event, _ in reader.loader.recorded_events(page)]
    return all(isinstance(event, Restored) and not event.base_stream for event in left)


def snapshots_of(reader: Reader, streams: Collection[int]) -> set[int]:
    """Return the seqs of the events that named states of the streams."""
    return {
        stamp.seq
        for branch in range(len(reader.loader.branches()) + 1)
        for event, stamp in events_with(reader, EventFilter((), (SnapshotNamed,)), branch=branch, stream=STORE_STREAM)
        if cast("SnapshotNamed", event).base_stream in streams
    }


BEYOND_REACH: Final = (
    "exports and backups made earlier",
    "snapshots that were handed out as bytes",
    "copies that callers, subscribers and models received",
    "derived data that names neither its events as sources nor the conversation",
    "files of a mirror until its next run, and skills written to files",
    "the RAM of other processes that have the store open, until each reads or writes again",
    "blocks of deleted files that the file system or the disk still keeps",
)


ON_A_SERVER: Final = (
    "copies of the log on other machines, under another address or another cache=, until a process opens it there",
    "the write logs of the server and its replicas, and its backups, until they are deleted",
)
"""Also beyond reach, for a log on a server."""


class Target(NamedTuple):
    """What is to be erased: events, and whole streams by branch and name.

    ``text`` says that the events are all those that contain it. A string that another event holds too, such as a key or
    the name of a tool, is then no part of what was to be erased, and the receipt does not count it.
    """

    seqs: Collection[int] = ()
    streams: Collection[tuple[int, str]] = ()
    text: str | None = None


def make_plan(reader: Reader, target: Target, *, derived: bool, forks: bool) -> ErasurePlan:
    """Return the plan to erase a target; it raises as ``erase`` does."""
    beyond = [seq for seq in target.seqs if not 0 < seq <= reader.head]
    if beyond:
        raise InvalidInput(f"seq {beyond[0]} is not in the log, which ends at {reader.head}; give seqs of events")
    bases = read_bases(reader)
    streams = list(_streams_of(reader, target.streams))
    own = _family_of(reader, streams, bases, forks=forks)
    places = _places(reader, target.streams, own)
    boards = [board for branch, name in sorted(places) for board in _boards_of(reader, branch, name)]
    renamed = _family_of(reader, [*streams, *boards], bases, forks=forks) if derived else own
    mentioned = _mentions_of(reader, places) | _events_of(reader, {board.number for board in boards} | renamed - own)
    names = _new_names(reader, renamed)
    seqs, done = {*target.seqs, *_events_of(reader, own & names.keys())}, _events_of(reader, own - names.keys())
    seqs |= done.difference(unerased_seqs(reader, done))  # What was derived from these may have been kept.
    return _plan_events(reader, seqs, names, mentioned, bases, derived=derived, text=target.text)


def _streams_of(reader: Reader, names: Iterable[tuple[int, str]]) -> Iterator[Stream]:
    for branch, name in names:
        stream = reader.streams.find(key_of(branch, name))
        if stream is not None and stream.base is not None:
            raise InvalidInput(
                f"{name} was inherited when this memory was forked; erase it in the memory it was forked from"
            )
        if stream is not None:
            yield stream


def _events_of(reader: Reader, streams: Collection[int]) -> set[int]:
    """Return the seqs of the streams' own events, and of the events that named states of them."""
    return {seq for number in streams for seq in own_seqs(reader, number)} | snapshots_of(reader, streams)


def _places(reader: Reader, named: Iterable[tuple[int, str]], numbers: Iterable[int]) -> set[tuple[int, str]]:
    """Return branch and name of streams, including where forks of the memory inherited them."""
    streams = [reader.streams.at_number(number) for number in numbers]
    streams += [heir for stream in streams for heir, _ in heirs(reader, stream)]
    return {*named, *((stream.branch, stream.name) for stream in streams)}


def _boards_of(reader: Reader, branch: int, name: str) -> Iterator[Stream]:
    """Yield the boards that go with a stream: that of a conversation, or those of the nodes of a project."""
    owner, boards = name.partition("/")[2], list[str]()
    if kind_of(name) == "conversation":
        boards = [session_board(owner)]
    elif kind_of(name) == "project":
        boards = list(reader.streams.names(branch, node_board(owner, "")))
    for board in boards:
        stream = reader.streams.find(key_of(branch, board))
        if stream is not None and stream.base is None:
            yield stream


def _family_of(reader: Reader, streams: Sequence[Stream], bases: Sequence[Base], *, forks: bool) -> set[int]:
    """Return the numbers of streams, with ``forks`` also of their forks; refuse if other live forks are to be kept."""
    numbers = {stream.number for stream in streams}
    more = set[int]()
    for stream in streams:
        kin, dependents = family(reader, stream, bases, () if forks else numbers)
        if dependents and not forks:
            others = f" and {len(dependents) - 1} more go" if len(dependents) > 1 else " goes"
            advice = "erase them too with forks='erase'"
            if stream.kind == "conversation":  # A fork of the whole memory exists as long as the store.
                advice = f"drop forks of the conversation with close(drop=True), or {advice}"
            raise InvalidInput(f"{dependents[0]}{others} on from {stream.name}; {advice}")
        more.update(kin)
    return more if forks else numbers


def erase(engine: Engine, target: Target, *, derived: bool, forks: bool = False) -> Receipt:
    """Erase the bodies of events and the names of whole streams while nothing else writes, and return the receipt.

    With ``derived``, this also erases what was derived from them, the board of a conversation, every event that names
    the conversation, and the boards of the nodes of a project; with ``forks``, the forks of a stream. Raises
    ``InvalidInput`` and changes nothing if a seq is not in the log, a stream was inherited, or live forks continue from
    it and are not to be erased too.
    """
    reader = engine.reader

    def erase_now() -> Receipt:
        reader.notice()
        return reader.log.files.alone(partial(_erase_alone, engine, target, derived=derived, forks=forks))

    with engine.exclusive():
        reader.check_writable()
        # Another machine can write to a log on a server meanwhile; the erasure is then planned again.
        return retry_turn(erase_now)


class _ErasureResult(NamedTuple):
    """The outcome of writing an erasure."""

    plan: ErasurePlan
    markers: set[bytes]
    """Byte strings that must not be found any more."""
    stale_count: int
    """Number of cached rows deleted."""
    gaps: CheckpointGaps | None
    """The events that no row covers now; ``None`` if there was nothing to write."""
    rewritten: tuple[tuple[str, str], ...] = ()
    """The streams and paths of the files that were written once more, because they do not hold the text."""


@reports_damage
def _erase_alone(engine: Engine, target: Target, *, derived: bool, forks: bool) -> Receipt:
    reader = engine.reader
    with reader.state_lock:
        reader.check_open()
        reader.notice()
        engine.settle()  # The restart below drops rows that wait in RAM.
        result = reader.log.in_turn(partial(_take_turn, reader, target, derived=derived, forks=forks))
        try:
            if result.gaps is not None:
                reader.restart(result.gaps)
                for number in result.gaps.tails:
                    reader.packer.settle(reader.streams.at_number(number))
            if result.gaps is not None or engine.is_unswept:
                _finish(engine)
        except BaseException:
            reader.is_torn = True
            raise
    if reader.ring is not None:
        reader.ring()
    return _receipt(engine, result, target.text)


def _finish(engine: Engine) -> None:
    """Store the rows that the erasure packed again, and make a server drop the erased bytes."""
    if not engine.is_unswept:
        with suppress(StoreError):  # The erasure is complete; rows that this cannot store are computed again.
            engine.settle()
        return
    try:
        engine.settle()
        engine.sweep()
    except StoreError as error:
        raise type(error)(
            f"the events are erased, but the server may keep their bytes: {error}; it is asked again by whoever erases "
            f"something, or opens the memory to write"
        ) from error


def _take_turn(reader: Reader, target: Target, turn: LogTurn, *, derived: bool, forks: bool) -> _ErasureResult:
    """Catch up with all other writers, plan the erasure, and write it as one transaction."""
    if turn.last_commit != reader.last_commit:
        reader.catch_up()
    reader.check_writable()
    plan, text = make_plan(reader, target, derived=derived, forks=forks), target.text
    seqs, renamed = sorted({*plan.seqs, *plan.derived, *plan.new_ids}), plan.renamed
    if not (seqs or renamed):
        if not turn.is_current():
            raise TurnLost("another machine wrote meanwhile; nothing was written, call again")
        return _ErasureResult(plan, set(), 0, None)
    markers = _collect_markers(reader, seqs, plan)
    begins = affected_streams(reader, seqs, plan.bases) | dict.fromkeys(renamed, 1)
    stale = _stale_rows(reader, begins, seqs)
    gaps = CheckpointGaps(covered := covered_seq(reader.log), _gap_tails(reader, begins, covered))
    remains = list(blank_records(reader, seqs, plan.new_ids))
    based = {base.number for base in plan.bases if base.base_seq}
    emptied = [reader.streams.at_number(number).key for number in sorted(based.intersection(renamed))]
    group = _group(reader, seqs, remains, emptied)
    anew = () if text is None else tuple(files_anew(reader, parts_at(reader, seqs), plan.derived, text))
    for mutation, _ in anew:
        group.apply(mutation)
        group.starts.append(group.command)
    seed = CommitSeed(check_time(reader.clock_ns()), reader.random_bytes(SEED_BYTES))
    commit = build_commit(group, seed, first_seq=reader.head + 1, after_ns=reader.time_ns, link=reader.link)
    tags = sorted(reader.tags | {fold.TAGS[type(event)] for event in group.events})
    lowest = min([covered, *(uncovered[0] - 1 for _, uncovered in gaps.tails.values())])
    rows: list[Row] = [
        *stale,
        *_rename_rows(reader, renamed),
        *_request_rows(reader, seqs),
        *rows_of(list(group.new_streams.values())),
        *commit.rows,
        ("meta", TAGS_KEY, msgspec.msgpack.encode(tags)),
        ("checkpoints", APPLIED_KEY, SEQ.pack(lowest)),
    ]
    if reader.log.files.keeps_erased:
        rows.append(("meta", UNSWEPT_KEY, SEQ.pack(commit.first_seq)))
    reader.is_torn = True  # Until the log is read again, only the log says what is erased.
    try:
        turn.write(commit.records, rows, remains, is_clean=True)
    except TurnLost:
        reader.is_torn = False
        raise
    return _ErasureResult(plan, markers, len(stale), gaps, tuple(dict.fromkeys(place for _, place in anew)))


def _group(reader: Reader, seqs: Sequence[int], remains: Sequence[Sealed], emptied: Iterable[str]) -> Group:
    """Return the events that record the erasure, with the digest of what is left of each record.

    A stream that is erased whole and continued from another one is emptied, because the data that it took from that one
    is not erased.
    """
    digests = {last: digest_of(record[HASH_BYTES:]) for last, record in remains}
    group = Group(reader)
    for begin in range(0, max(len(seqs), 1), ERASED_SEQS_COUNT):
        named = tuple(seqs[begin : begin + ERASED_SEQS_COUNT])
        # A record's digest goes with its last erased event: the seqs after that are in later records.
        until = seqs[begin + ERASED_SEQS_COUNT] if begin + ERASED_SEQS_COUNT < len(seqs) else reader.head + 1
        proofs = tuple((last, digests.pop(last)) for last in list(digests) if last < until)
        group.apply(Mutation(STORE_STREAM, Erased((), named, proofs), origin=origin_in(reader)))
        group.starts.append(group.command)
    for key in emptied:
        group.apply(Mutation(key, Restored((), 0, 0, 0), origin=origin_in(reader)))
        group.starts.append(group.command)
    return group


def blank_records(reader: Reader, seqs: Sequence[int], fresh_ids: NewIds) -> Iterator[Sealed]:
    """Yield each record that holds some of the seqs, without their bodies; the seqs must be in order."""
    begin = 0
    while begin < len(seqs):
        record = record_at(reader.log, seqs[begin])
        end = bisect_right(seqs, record.last_seq)
        places = [seq - record.first_seq for seq in seqs[begin:end]]
        salt = reader.random_bytes(SALT_BYTES)
        packed = erase_bodies(record.packed, places, fold.strip_body, salt)
        for seq in seqs[begin:end]:
            if seq in fresh_ids:
                blank = partial(fold.strip_body, new_ids=fresh_ids[seq])
                packed = erase_bodies(packed, [seq - record.first_seq], blank, salt)
        yield record.last_seq, packed
        begin = end


def _stale_rows(reader: Reader, begins: Mapping[int, int], seqs: Sequence[int]) -> list[Row]:
    """Return deletions of the cached rows that may hold data that is about to be erased."""
    stale: list[Row] = [("vectors", key, None) for key, _ in vectors.rows_of(reader.log, seqs)]
    terms = sorted({terms_key(page_of(seq)) for seq in seqs})
    stale.extend(("graphs", key, None) for key in terms if reader.log.row("graphs", key) is not None)
    for number, begin in begins.items():
        prefix = number_key(number)
        for key, _ in scan(reader.log, "checkpoints", prefix, PAGE_EVENTS, prefix + SEQ.pack(begin)):
            assert number_of(key) == number, key
            stale.append(("checkpoints", key, None))
        stale.append(("digests", prefix, None))
        stale.append(("graphs", prefix, None))
        stale.append(("graphs", packed_rows_key(number), None))
    return stale


def _gap_tails(reader: Reader, begins: Mapping[int, int], applied: int) -> dict[int, tuple[int, list[int]]]:
    """Return, by stream, version and seqs of the events up to ``applied`` that no row covers after the deletions."""
    tails: dict[int, tuple[int, list[int]]] = {}
    for number, begin in begins.items():
        row = reader.checkpoints.before(number, begin - 1) if begin > 1 else None
        stream = reader.streams.at_number(number)
        seqs = list(reader.streams.own_seqs(stream, 0 if row is None else row.seq, min(stream.seq, applied)))
        if seqs:
            tails[number] = (reader.loader.recorded_events([seqs[-1]])[0].stamp.version, seqs)
    return dict(sorted(tails.items(), key=lambda item: item[1][1][0]))


def _rename_rows(reader: Reader, renamed: Mapping[int, str]) -> Iterator[Row]:
    for number, name in renamed.items():
        stream = reader.streams.at_number(number)
        yield "names", name_key(stream.branch, stream.name), None
        yield "names", name_key(stream.branch, name), number_key(number)
        yield "streams", number_key(number), msgspec.msgpack.encode((name, stream.branch))


def _request_rows(reader: Reader, seqs: Sequence[int]) -> Iterator[Row]:
    """Yield the rows of the requests that made the events at the seqs, without the hash of the content requested.

    Anyone who has the file has the key of that hash, and could try contents until one fits. A request that changed
    nothing may have asked for erased data, so its row is among them.
    """
    for key, row in scan(reader.log, "requests", b"", PAGE_EVENTS):
        first, last = answer_of(row)
        place = bisect_left(seqs, first)
        if not first or (place < len(seqs) and seqs[place] <= last):
            yield "requests", key, row[:VERB_BYTES] + FORGOTTEN + row[KEYED_HASH_BYTES:]


# The receipt.


def _beyond_reach(engine: Engine) -> tuple[str, ...]:
    """Return the places that the erasure does not reach; for a log on a server, with the copies that processes use."""
    if engine.shared is None:
        return BEYOND_REACH
    paths = engine.shared.remove_stale_copies()
    copies = (f"the copy in {path}, until the process that uses it has taken in the erasure" for path in paths)
    return (*BEYOND_REACH, *copies, *ON_A_SERVER)


def _collect_markers(reader: Reader, seqs: Sequence[int], plan: ErasurePlan) -> set[bytes]:
    """Return the texts and byte strings of the bodies at the seqs, their vectors, and the ids that go."""
    ids = {reader.streams.name_of(number).partition("/")[2].encode() for number in plan.renamed}
    ids.update(vectors.unpack_row(key, value) or value for key, value in vectors.rows_of(reader.log, seqs))
    return ids | markers_of(chain.from_iterable(map(reader.loader.recorded_events, pages(seqs))), plan.new_ids)


def _replaced_ids(plan: ErasurePlan) -> set[bytes]:
    return {given.encode() for fresh in plan.new_ids.values() for given in fresh}


def _receipt(engine: Engine, result: _ErasureResult, text: str | None) -> Receipt:
    """Search every file of the store for erased data and return the receipt."""
    plan, files = result.plan, engine.reader.log.files
    markers, unexplained = searchable_markers(result.markers), 0
    counts = files.search(markers)
    if counts.occurrences:
        kept = kept_elsewhere(engine.reader, markers, {*plan.seqs, *plan.derived})
        # The id of a call can be that of one in another conversation too.
        others = _replaced_ids(plan) if text is None else {each for each in markers if text.encode() not in each}
        if others & kept:
            markers -= others & kept
            counts = files.search(markers)
        unexplained = files.search(markers - kept).occurrences if counts.occurrences and kept else counts.occurrences
    return Receipt(
        seqs=tuple(plan.seqs),
        derived=tuple(plan.derived),
        naming=tuple(plan.naming),
        streams=tuple(sorted(set(plan.renamed.values()))),
        cached_rows=result.stale_count,
        markers=len(markers),
        markers_too_short=len(result.markers) - len(markers),
        files=counts.files,
        searched_bytes=counts.bytes,
        occurrences=counts.occurrences,
        beyond_reach=_beyond_reach(engine),
        rewritten=result.rewritten,
        unexplained=unexplained,
    )
