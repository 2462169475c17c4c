"""The vectors of messages, made on a thread of their own and kept in the store, so that nothing is embedded twice.

Messages that this process writes are embedded moments later, together with those that arrive meanwhile. Other messages
without a vector are embedded once a search has come across them, the newest first.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from refold.embedders import MissingVectors
from refold.engine import vectors
from refold.engine.reader import Reader
from refold.engine.streams import Stream, split_key
from refold.engine.transaction import erased_count
from refold.engine.vectors import VectorModel
from refold.errors import Closed
from refold.event import Forked, Restored, StateImported
from refold.limits import (
    EMBED_CLOSE_SECONDS,
    EMBED_LINGER_SECONDS,
    EMBED_PAUSE_SECONDS_MAX,
    EMBED_PAUSE_SECONDS_MIN,
    EMBEDDED_CHARS_MAX,
    REEMBEDDED_PAGE_COUNT,
)
from refold.memory.snapshot import is_embedded
from refold.message import MessageAppended, MessageReplaced, messages_of
from refold.threads import Bell, Worker
from refold.views.session import EmbeddingChanged

if TYPE_CHECKING:
    from refold.memory.core import Core
    from refold.memory.message_indexes import MessageIndexes

_logger = logging.getLogger("refold")

_STEP_SECONDS: Final = 0.01
_LOOK_SECONDS: Final = 1.0  # How often the thread checks that its memory still exists.
_TURNING: Final = (EmbeddingChanged, Forked, Restored, StateImported)
"""The events after which earlier messages may have to be embedded."""


def vector_of(core: "Core", query: str) -> Any:
    """Return the unit vector of a query, or ``None`` if the embedder fails, which is logged."""
    from refold.index.project import unit  # noqa: PLC0415 - loads numpy, which few contexts need

    try:
        return unit(core.embedding.of(clip_text(query)).packed)
    except MissingVectors:
        raise
    except Exception as error:  # noqa: BLE001 - an embedder can raise anything; the search then uses words alone
        core.part(MessageVectors).report(error)
        return None


def model_of(core: "Core") -> VectorModel:
    """Return the embedder of a memory, as the store names it."""
    embedder = core.embedding.embedder
    return VectorModel.of(embedder.id, embedder.dim)


def clip_text(text: str) -> str:
    """Return the part of a text that is embedded: its beginning."""
    return text.strip()[:EMBEDDED_CHARS_MAX]


def follow(core: "Core") -> None:
    """Embed, from now on, the messages that this process writes to embedded conversations."""
    core.part(MessageVectors).follow()


class MessageVectors:
    """Embeds messages in the background, for all branches of a memory, which it does not keep alive."""

    def __init__(self, core: "Core") -> None:
        self._core = ref(core)
        self._bell = Bell()
        self._thread: Worker | None = None
        self._new: dict[str, int] = {}
        """Stream key -> the seq of its first event not examined yet; guarded by the state lock."""
        self._wanted: dict[str, None] = {}
        """The keys of the indexes in which messages without a vector were found."""
        self._pause_seconds = 0.0
        """The pause after a failure, 0 while embedding works."""
        self._is_closed = False
        core.before_close.append(self.close)

    def follow(self) -> None:
        """Embed, from now on, the messages that this process writes to embedded conversations."""
        core = self._core()
        if core is not None and core.engine.reader.is_writable:
            core.engine.reader.follow = self._note

    def schedule(self, key: str) -> None:
        """Embed the messages of an index that lack a vector."""
        core = self._core()
        if core is not None and core.engine.reader.is_writable:
            self._wanted[key] = None
            with core.engine.reader.state_lock:
                self.follow()
                self._wake()

    def _note(self, streams: Iterable[Stream], first_seq: int) -> None:
        """Record the streams of a commit that was folded; the state lock is held, and the writers wait."""
        new = self._new
        is_known = bool(new)  # Then the thread was woken already, and takes these too.
        for stream in streams:
            new.setdefault(stream.key, first_seq)
        if not is_known:
            self._wake()

    def _wake(self) -> None:
        if self._thread is None or self._thread.is_over:
            self._thread = Worker(partial(Context().run, self._run), "refold-embedding")
            self._thread.start()
        self._bell.ring()

    def report(self, error: BaseException) -> None:
        """Log that embedding failed, once until it works again, and lengthen the pause."""
        if not self._pause_seconds:
            _logger.error("messages could not be embedded; they are found by words until it works", exc_info=error)
        self._pause_seconds = min(max(2 * self._pause_seconds, EMBED_PAUSE_SECONDS_MIN), EMBED_PAUSE_SECONDS_MAX)

    def close(self) -> None:
        """End the thread; wait up to ``EMBED_CLOSE_SECONDS`` for an embedding in progress."""
        self._is_closed, core = True, self._core()
        if core is not None:
            core.engine.reader.follow = None
        if self._thread is None or core is None or core.engine.reader.is_closed:
            return
        self._bell.ring()
        until = time.monotonic() + EMBED_CLOSE_SECONDS
        while not self._thread.is_over and time.monotonic() < until:
            time.sleep(_STEP_SECONDS / 10)

    # The work of the thread.

    def _run(self) -> None:
        while self._is_needed:
            if self._bell.wait(_LOOK_SECONDS) and self._wait(max(self._pause_seconds, EMBED_LINGER_SECONDS)):
                try:
                    self._round()
                except Closed:
                    return
                except Exception as error:  # noqa: BLE001 - any error of an embedder; it is retried
                    self.report(error)
                    self._bell.ring()

    @property
    def _is_needed(self) -> bool:
        return not self._is_closed and self._core() is not None

    def _wait(self, seconds: float) -> bool:
        """Wait, and return whether the thread is still needed."""
        until = time.monotonic() + seconds
        while self._is_needed and time.monotonic() < until:
            time.sleep(_STEP_SECONDS)
        return self._is_needed

    def _round(self) -> None:
        """Embed everything that is known to lack a vector; on a failure, keep it for the next round."""
        while not self._is_closed and (core := self._core()) is not None:
            with core.engine.reader.state_lock:
                new, self._new = self._new, {}
            wanted = next(iter(self._wanted), None)
            try:
                if new:
                    self._embed_new(core, new)
                elif wanted is None:
                    return
                elif not self._embed_backlog(core, wanted):
                    self._wanted.pop(wanted, None)
            except BaseException:
                with core.engine.reader.state_lock:
                    self._new |= new
                raise

    def _embed_new(self, core: "Core", new: dict[str, int]) -> None:
        """Embed the messages of conversations from a seq of each on, those of a branch together."""
        reader = core.engine.reader
        found: dict[int, list[tuple[int, int]]] = {}
        for key, first in new.items():
            branch, name = split_key(key)
            if name.startswith("conversation/") and reader.read(key, is_embedded):
                for event, stamp in reader.events(key, first - 1):
                    if isinstance(event, (MessageAppended, MessageReplaced)):
                        found.setdefault(branch, []).append((stamp.seq, 0))
                    elif isinstance(event, _TURNING):
                        self._wanted[key] = None
        for branch, places in found.items():
            for begin in range(0, len(places), REEMBEDDED_PAGE_COUNT):
                self._embed(core.with_branch(branch), places[begin : begin + REEMBEDDED_PAGE_COUNT])

    def _embed_backlog(self, core: "Core", key: str) -> bool:
        """Embed the newest messages of an index that lack a vector; return whether there were any."""
        branch, name = split_key(key)
        if name and not core.engine.reader.read(key, is_embedded):
            return False
        own = core.with_branch(branch)
        page = _indexes(core).pending(key, model_of(own), REEMBEDDED_PAGE_COUNT)
        if page:
            self._embed(own, page)
        return bool(page)

    def _embed(self, core: "Core", page: Sequence[tuple[int, int]]) -> None:
        """Embed the messages, given by seq and place, whose vectors the store lacks."""
        from refold.index.messages import pack_vectors  # noqa: PLC0415 - loads numpy, which an append does not need

        reader, is_stored = core.engine.reader, False
        while not is_stored and not self._is_closed:
            # Repeated if something was erased meanwhile, because no vector of it must be stored.
            before = erased_count(reader)
            model = model_of(core)
            known = vectors.load_vectors(reader.log, model, page, is_dense=False)
            texts = _texts(reader, [place for place in page if place not in known])
            fresh: dict[tuple[int, int], bytes] = {}
            if texts:
                rows = core.embedding.embedder.embed(list(texts.values()))
                fresh = dict(zip(texts, pack_vectors(rows, model.dimensions), strict=True))
            sealed = [vectors.pack_row(model, place, vector) for place, vector in fresh.items()]
            is_stored = core.engine.writer.store(sealed, partial(_is_erased_count, reader, before))
            if is_stored:
                _indexes(core).add_vectors(model, known | fresh)
                self._pause_seconds = 0.0


def _indexes(core: "Core") -> "MessageIndexes":
    from refold.memory.message_indexes import MessageIndexes  # noqa: PLC0415 - loads numpy, which an append does not need

    return core.part(MessageIndexes)


def _is_erased_count(reader: Reader, count: int) -> bool:
    return erased_count(reader) == count


def _texts(reader: Reader, page: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """Return the texts of messages, given by seq and place, without erased messages and those that have no text."""
    from refold.memory.message_indexes import text_of  # noqa: PLC0415 - as above

    seqs = list(dict.fromkeys(seq for seq, _ in page))
    with reader.state_lock:
        events = reader.loader.recorded_events(seqs)
    messages = {seq: list(messages_of(recorded)) for seq, recorded in zip(seqs, events, strict=True)}
    found = ((key, messages[key[0]][key[1]]) for key in page)
    texts = {key: clip_text(text_of(message)) for key, message in found if not message.erased}
    return {key: text for key, text in texts.items() if text}
