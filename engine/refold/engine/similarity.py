"""The memories of a project laid out for a search: their vectors, read from the log, and the columns of a ranking.

A cache of two kinds. ``Vectors`` keeps vectors by the seq of their event, which holds the same one for ever, so that
all moments and branches share them. A ``Table`` lays out one state; it is named by the seq of the last event that the
state folded, and brought up to date by the ids that events have touched since then. Neither is needed for an answer.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from refold.engine.loader import Loader
from refold.entry import ACTIVE, CATEGORIES, STATUSES, Entry
from refold.event import Event
from refold.limits import TABLES_COUNT_MAX, VECTOR_CACHE_BYTES
from refold.rank import Columns
from refold.views.facts import Facts

if TYPE_CHECKING:
    from numpy import bool_, float32, intp
    from numpy.typing import NDArray

    Vector: TypeAlias = NDArray[float32]

_NEAR: Final = 1e-4
"""Products of one row differ by less, however many rows a multiplication takes at once."""

_DECIMALS: Final = 6
_ROWS_MIN: Final = 16
_NO_TIME_NS: Final = 2**62
"""For what is of an open batch and was accessed at no time yet: later than any now."""


class Match(NamedTuple):
    """The memory that is most alike to a vector, and their cosine."""

    entry: Entry
    cosine: float


class Vectors:
    """Unit vectors by the seq of the event that holds them: the last that were used, within a bound."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._held: OrderedDict[int, Vector] = OrderedDict()
        self._bytes = 0

    def rows(self, seqs: Sequence[int], pending: Mapping[int, Event]) -> "NDArray[float32]":
        """Return the vectors at the seqs as rows; those of an open batch, with negative seqs, are in ``pending``."""
        import numpy  # noqa: PLC0415 - loads when the first vector is looked at

        found = {seq: self._held[seq] for seq in seqs if seq in self._held}
        for seq in found:
            self._held.move_to_end(seq)
        missing = sorted({seq for seq in seqs if seq > 0} - found.keys())
        if missing:
            fresh = {
                seq: unit(vector_of(recorded.event))
                for seq, recorded in zip(missing, self._loader.recorded(missing), strict=True)
            }
            self._keep(fresh)
            found |= fresh
        found |= {seq: unit(vector_of(pending[seq])) for seq in seqs if seq < 0}
        return numpy.stack([found[seq] for seq in seqs]) if seqs else numpy.empty((0, 0), dtype=numpy.float32)

    def _keep(self, fresh: "dict[int, Vector]") -> None:
        for seq, vector in fresh.items():
            self._held[seq] = vector
            self._bytes += vector.nbytes
        while self._bytes > VECTOR_CACHE_BYTES and self._held:
            _, vector = self._held.popitem(last=False)
            self._bytes -= vector.nbytes


def vector_of(event: Event) -> bytes:
    """Return the vector that an event holds, as raw float32."""
    vector: bytes = getattr(event, "vector")  # noqa: B009 - several kinds of events have one
    return vector


def unit(packed: bytes) -> "Vector":
    """Return a vector of the length 1, from raw float32."""
    import numpy  # noqa: PLC0415 - loads when the first vector is looked at

    wide = numpy.frombuffer(packed, dtype="<f4").astype(numpy.float64)
    wide /= numpy.abs(wide).max()
    rounded: Vector = (wide / numpy.sqrt(wide @ wide)).astype(numpy.float32)
    return rounded


def exact(one: "Vector", other: "Vector") -> float:
    """Return the cosine of two unit vectors to 6 decimals: the same wherever they stand, and on every machine."""
    import numpy  # noqa: PLC0415 - loads when the first vector is looked at

    product = float(numpy.dot(one.astype(numpy.float64), other.astype(numpy.float64)))
    return round(max(-1.0, min(1.0, product)), _DECIMALS)


class Filter(NamedTuple):
    """Which memories a search may find."""

    categories: tuple[str, ...] | None
    statuses: tuple[str, ...] | None
    min_importance: float
    metadata: Mapping[str, Any] | None

    def lets(self, entry: Entry) -> bool:
        """Return whether a memory passes."""
        if self.categories is not None and entry.category not in self.categories:
            return False
        if self.statuses is not None and entry.status not in self.statuses:
            return False
        if entry.importance < self.min_importance:
            return False
        if self.metadata is None:
            return True
        held = entry.metadata or {}
        return all(name in held and held[name] == value for name, value in self.metadata.items())


class Table:
    """One state in rows, in the order of its memories; the row of a memory that went is left empty."""

    def __init__(self) -> None:
        import numpy  # noqa: PLC0415 - loads when the first vector is looked at

        self.columns = Columns()
        self.entries: list[Entry | None] = []
        """The memory of each row."""
        self._rows: dict[str, int] = {}
        self._matrix: NDArray[float32] = numpy.empty((0, 0), dtype=numpy.float32)
        self._codes: NDArray[Any] = numpy.empty((0, 2), dtype=numpy.int8)
        self._importance: NDArray[Any] = numpy.empty(0, dtype=numpy.float64)

    @property
    def is_sparse(self) -> bool:
        """Whether most rows are empty, so that the table is better made anew."""
        return len(self.entries) > 2 * len(self._rows) + _ROWS_MIN

    def cosines(self, vector: "Vector") -> "NDArray[float32]":
        """Return the product of each row with a unit vector; that of an empty row means nothing."""
        products: NDArray[float32] = self._matrix[: len(self.entries)] @ vector
        return products

    def vector(self, row: int) -> "Vector":
        """Return the vector of a row."""
        found: Vector = self._matrix[row]
        return found

    def update(self, entries: Mapping[str, Entry], ids: Iterable[str], load: "Callable[[list[int]], Any]") -> None:
        """Hold the memories of these ids as they are now; ``load`` returns the vectors at given seqs."""
        fresh: list[int] = []
        for entry_id in dict.fromkeys(ids):
            entry, row = entries.get(entry_id), self._rows.get(entry_id)
            if entry is None:
                if row is not None:
                    self._remove(entry_id, row)
            elif row is None:
                fresh.append(self._add(entry))
            elif self._change(entry, row):
                fresh.append(row)
        if fresh:
            vectors = load([held.vector_seq for row in fresh if (held := self.entries[row]) is not None])
            self._make_room(vectors.shape[1])
            self._matrix[fresh] = vectors

    def _add(self, entry: Entry) -> int:
        row = len(self.entries)
        self.entries.append(entry)
        self._rows[entry.id] = row
        self._index(row, entry)
        self._note(row, entry)
        return row

    def _remove(self, entry_id: str, row: int) -> None:
        del self._rows[entry_id]
        self.entries[row] = None
        self.columns.remove(row)

    def _change(self, entry: Entry, row: int) -> bool:
        """Hold a memory as it is now; return whether it has another vector."""
        held = self.entries[row]
        assert held is not None, entry.id
        self.entries[row] = entry
        if (held.content, held.words, held.session) != (entry.content, entry.words, entry.session):
            self.columns.remove(row)
            self._index(row, entry)
        else:
            self.columns.set_importance(row, entry.importance)
            self.columns.set_accessed(row, _accessed(entry))
        self._note(row, entry)
        return held.vector_seq != entry.vector_seq

    def _index(self, row: int, entry: Entry) -> None:
        self.columns.add(
            row,
            entry.content,
            keywords=entry.words,
            importance=entry.importance,
            accessed_ns=_accessed(entry),
            session=entry.session,
            occurred_ns=entry.occurred_ns if entry.dated else None,
        )

    def _note(self, row: int, entry: Entry) -> None:
        """Hold what a search filters by."""
        if row >= len(self._importance):
            self._codes = _grown(self._codes, row + 1, 2)
            self._importance = _grown(self._importance, row + 1)
        self._codes[row] = CATEGORIES.index(entry.category), STATUSES.index(entry.status)
        self._importance[row] = entry.importance

    def _make_room(self, dim: int) -> None:
        """Make room in the matrix for a row of each memory; another dimension only ever comes to an empty one."""
        if self._matrix.shape[1] != dim:
            self._matrix = self._matrix[:0, :0]
        if len(self._matrix) < len(self.entries):
            self._matrix = _grown(self._matrix, len(self.entries), dim)

    def passing(self, wanted: Filter) -> "NDArray[intp]":
        """Return the rows of the memories that pass a filter."""
        import numpy  # noqa: PLC0415 - loads when the first vector is looked at

        live = self.columns.live_rows()
        passes: NDArray[bool_] = self._importance[live] >= wanted.min_importance
        for place, (known, chosen) in enumerate(((CATEGORIES, wanted.categories), (STATUSES, wanted.statuses))):
            if chosen is not None:
                codes = [known.index(name) for name in chosen]
                passes &= numpy.isin(self._codes[live, place], codes)
        rows = live[passes]
        if wanted.metadata is None:
            return rows
        places: list[int] = rows.tolist()
        return numpy.array([row for row in places if wanted.lets(_held(self, row))], dtype=numpy.intp)


def _accessed(entry: Entry) -> int:
    return _NO_TIME_NS if entry.accessed_ns is None else entry.accessed_ns


def _grown(array: "NDArray[Any]", count: int, *width: int) -> "NDArray[Any]":
    """Return an array with room for twice as many rows."""
    import numpy  # noqa: PLC0415 - loads when the first vector is looked at

    grown = numpy.zeros((max(2 * count, _ROWS_MIN), *width), dtype=array.dtype)
    if array.size:
        grown[: len(array)] = array
    return grown


class Similarity:
    """What an engine keeps of the memories of its projects; whoever uses it holds the state lock."""

    def __init__(self, loader: Loader) -> None:
        self.vectors = Vectors(loader)
        self._tables: OrderedDict[int, Table] = OrderedDict()
        self._in_batch: tuple[Facts, int, Table] | None = None
        """The state of an open batch that was laid out last, its seq then, and its table: that of nobody else."""

    def table(self, facts: Facts, pending: Mapping[int, Event]) -> Table:
        """Return a state laid out; ``pending`` are the events of the open batch whose state it is."""
        if facts.seq in self._tables:
            self._tables.move_to_end(facts.seq)
            return self._tables[facts.seq]

        def load(seqs: list[int]) -> Any:
            return self.vectors.rows(seqs, pending)

        table, ids = self._earlier(facts) if facts.seq > 0 else self._earlier_in_batch(facts)
        if table is not None:
            table.update(facts.entries, ids, load)
        if table is None or table.is_sparse:
            table = Table()
            table.update(facts.entries, facts.entries, load)
        if facts.seq > 0:
            self._tables[facts.seq] = table
            if len(self._tables) > TABLES_COUNT_MAX:
                self._tables.popitem(last=False)
        elif facts.seq:
            self._in_batch = (facts, facts.seq, table)
        return table

    def _earlier(self, facts: Facts) -> tuple[Table | None, dict[str, None]]:
        """Return the table of an earlier state, which it is no more, and the ids that were touched since."""
        ids: dict[str, None] = {}
        for before, after, touched in reversed(facts.recent):
            if after < 0 or touched is None:
                break
            ids = dict.fromkeys(touched) | ids
            if before in self._tables:
                return self._tables.pop(before), ids
        return None, ids

    def _earlier_in_batch(self, facts: Facts) -> tuple[Table | None, dict[str, None]]:
        """Return the same for a state that an open batch folds on: it is the same object, only later."""
        ids: dict[str, None] = {}
        if self._in_batch is None or self._in_batch[0] is not facts:
            return None, ids
        _, seq, table = self._in_batch
        if facts.seq == seq:
            return table, ids
        for before, _, touched in reversed(facts.recent):
            if touched is None:
                break
            ids = dict.fromkeys(touched) | ids
            if before == seq:
                return table, ids
        return None, ids

    def best(self, facts: Facts, packed: bytes, pending: Mapping[int, Event]) -> Match | None:
        """Return the active memory that is most alike to a vector; of several the most important, then the oldest."""
        if not facts.entries:
            return None
        table, vector = self.table(facts, pending), unit(packed)
        rows = table.passing(Filter(None, (ACTIVE,), 0.0, None))
        if not len(rows):
            return None
        products = table.cosines(vector)[rows]
        near = rows[products >= products.max() - _NEAR].tolist()
        found = [(exact(table.vector(row), vector), _held(table, row).importance, -row) for row in near]
        cosine, _, row = max(found)
        return Match(_held(table, -row), cosine)


def _held(table: Table, row: int) -> Entry:
    entry = table.entries[row]
    assert entry is not None, f"row {row} is empty"
    return entry
