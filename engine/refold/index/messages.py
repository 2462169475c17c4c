"""The index of messages: the terms and the vector of each, in the order of the log, searchable as of any seq. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import log1p
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

import numpy as np
from numpy import float32
from numpy.typing import NDArray

from refold.index.columns import Array, Column, Rows, normalise, product
from refold.index.packed import pack, strings, unpack
from refold.index.ranking import Ranking
from refold.index.signals import coverage_of, rarity
from refold.index.terms import (
    STEMMERS,
    Words,
    can_be_part,
    forms_of,
    mark_stem,
    question_share,
    splits_of,
    terms_of,
    with_name,
    words_of,
    writes_compounds,
)
from refold.message import ROLES

_Floats: TypeAlias = NDArray[float32]

RANKING: Final = Ranking(name="messages", cosine=0.6, coverage=1.0, question=-0.1, pivot_terms=50.0)
"""The ranking of messages: by the query's words in them and in their neighbours, with mere questions slightly lower.

Embedded messages are also ranked by the cosine of their vector and the query's. Its weight is the largest that makes no
set worse with the built-in embedder: python benchmarks/messages.py.
"""

_NONE: Final = -1
_NEVER: Final = -2  # In place of the vector of a message without text, which never gets one.
_LENGTH_MAX: Final = 2**16 - 1
_DECIMALS: Final = 6
_SLICE_ROWS: Final = 4_096  # Vectors unpacked at a time.
_BYTE_MAX: Final = 127
_ASKING_SHARE: Final = 0.5
_USER: Final = ROLES.index("user")
_FEW_COUNT: Final = 32  # Words up to which one look for each is faster than one for all.


class MessageRow(NamedTuple):
    """A message to index: its place in the log, its conversation, the number of its role, and its text."""

    seq: int
    place: int
    stream: str
    role: int
    text: str


class MessageTerms(NamedTuple):
    """The indexed data of a message: the hashes of its terms, its length in words, and its share of questions."""

    hashes: list[int]
    length: int
    question: float
    stems: Sequence[str] = ()
    """Marked stems among which are those of the message, if it has no words."""


class KnownMessages:
    """The indexed data of the messages of some events, packed so that a process need not split their texts.

    A message is identified by its place in the log and the checksum of its text, so that data of another text is not
    used.
    """

    def __init__(self, block: bytes | memoryview) -> None:
        arrays = unpack(block).arrays
        terms, ends = arrays["terms"].tobytes().decode("utf-8", "surrogatepass").split("\n"), arrays["ends"].tolist()
        hashes = list(map(hash, terms))
        numbers: list[int] = arrays["numbers"].tolist()
        found = [hashes[number] for number in numbers]
        columns = (arrays[name].tolist() for name in ("seqs", "places", "checksums", "lengths", "questions"))
        self._known = {
            (seq, place, checksum): MessageTerms(found[begin:end], length, question, terms)
            for seq, place, checksum, length, question, begin, end in zip(*columns, [0, *ends], ends, strict=False)
        }

    @staticmethod
    def pack(messages: Iterable[MessageRow]) -> bytes:
        """Pack the indexed data of messages."""
        numbers: dict[str, int] = {}
        found: list[int] = []
        columns: list[tuple[int, int, int, int, int, float]] = []
        for message in messages:
            text = _indexed_text(message)
            words, length = words_of(text)
            found += {numbers.setdefault(mark_stem(term), len(numbers)) for term in map(_STEM, words)}
            own = (message.seq, message.place, _checksum(text), len(found), min(length, _LENGTH_MAX))
            columns.append((*own, question_share(message.text)))
        kinds = {"seqs": "i8", "places": "i4", "checksums": "u4", "ends": "u4", "lengths": "u2", "questions": "f4"}
        values = zip(*columns, strict=True) if columns else [()] * len(kinds)
        arrays = {name: np.array(column, kind) for (name, kind), column in zip(kinds.items(), values, strict=True)}
        return pack({}, {"terms": strings(list(numbers)), "numbers": np.array(found, np.uint32)} | arrays)

    def find(self, message: MessageRow) -> MessageTerms | None:
        """Return the indexed data of a message, or `None` if it is unknown."""
        return self._known.get((message.seq, message.place, _checksum(_indexed_text(message))))


def _checksum(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"))


def _indexed_text(message: MessageRow) -> str:
    """Return the text whose words a message is found by: of a user who says who they are, it has the word name."""
    return with_name(message.text) if message.role == _USER else message.text


_STEM: Final = STEMMERS[RANKING.stemmer]


def _find_nothing(_: object) -> None:
    """Return `None` for every message."""


class MessageIndex:
    """An append-only index of messages by their terms, so that the messages at a seq are its first rows.

    Each distinct word of a message is stored as a hash of 64 bits, which takes 16 bytes together with its row. The text
    is not stored, and only words that might have a term of the query are stemmed. A vector takes one byte per number.
    Not thread-safe: the caller locks, except to use the result of `view`.

    >>> index = MessageIndex()
    >>> index.add(7, 0, "conversation/a", 3, "The port is 5432.")
    >>> [match.seq for match in search([index.view(None)], "ports?", None, 10)]
    [7]
    """

    def __init__(self) -> None:
        self._words = Words(RANKING.stemmer)
        self._hashes = Column(np.int64)
        self._rows = Column(np.intp)  # The row of each word.
        self._ends = Column(np.intp)  # The end of each row's words.
        self._seqs = Column(np.int64)
        self._places = Column(np.int32)  # The place of a row among the messages of its event.
        self._roles = Column(np.uint8)
        self._lengths = Column(np.uint16)
        self._questions = Column(float32)
        self._before = Column(np.intp)  # The previous row of its conversation.
        self._streams = Column(np.intp)  # The number of its conversation.
        self._last: list[int] = []  # The last row of each conversation.
        self._vectors = Column(np.intp)  # The place of the vector of each row.
        self._codes = Column(np.int8, 0)
        self._lengths_of_codes = Column(float32)
        self.numbers: dict[str, int] = {}
        """The number of each conversation, in the order of their first rows."""

    def __len__(self) -> int:
        return self._seqs.count

    @property
    def nbytes(self) -> int:
        """Approximate bytes in RAM."""
        columns = sum(column.nbytes for column in vars(self).values() if isinstance(column, Column))
        return columns + self._words.nbytes

    def add(self, seq: int, place: int, stream: str, role: int, text: str) -> None:
        """Append a message: its place in the log, its conversation, the number of its role, and its text."""
        self.extend([MessageRow(seq, place, stream, role, text)])

    def extend(
        self, messages: Sequence[MessageRow], known: Callable[[MessageRow], MessageTerms | None] = _find_nothing
    ) -> None:
        """Append messages in the order of the log; many at once take two thirds of the time.

        `known` returns the indexed data of a message if it was computed before.
        """
        hashes: list[int] = []
        counts: list[int] = []
        lengths: list[int] = []
        questions: list[float] = []
        numbers: list[int] = []
        before: list[int] = []
        known_stems: Sequence[str] = ()
        first = len(self)
        for row, message in enumerate(messages, first):
            own, length, question, stems = known(message) or self._split(message)
            if stems is not known_stems:
                self._words.add(stems)
                known_stems = stems
            hashes += own
            counts.append(len(own))
            lengths.append(length)
            questions.append(question)
            number = self.numbers.setdefault(message.stream, len(self._last))
            if number == len(self._last):
                self._last.append(_NONE)
            numbers.append(number)
            before.append(self._last[number])
            self._last[number] = row
        count = len(messages)
        self._hashes.extend(hashes, len(hashes))
        self._ends.extend(self._rows.count + np.cumsum(counts, dtype=np.intp), count)
        self._rows.extend(np.repeat(np.arange(first, first + count), counts), len(hashes))
        self._lengths.extend(lengths, count)
        self._streams.extend(numbers, count)
        self._before.extend(before, count)
        self._places.extend([message.place for message in messages], count)
        self._roles.extend([message.role for message in messages], count)
        self._questions.extend(questions, count)
        self._vectors.extend([_NONE if message.text.strip() else _NEVER for message in messages], count)
        self._seqs.extend([message.seq for message in messages], count)

    def _split(self, message: MessageRow) -> MessageTerms:
        """Split the text of a message into words, which are stemmed only when a query might match them."""
        words, length = words_of(_indexed_text(message))
        self._words.add(words)
        return MessageTerms(list(set(map(hash, words))), min(length, _LENGTH_MAX), question_share(message.text))

    # Vectors: all from one embedder, and added after their messages.

    def begin_vectors(self, dimensions: int) -> None:
        """Drop all vectors, and accept vectors of `dimensions` numbers from now on."""
        self._vectors.change(np.flatnonzero(self._vectors.values >= 0), _NONE)
        self._codes, self._lengths_of_codes = Column(np.int8, dimensions), Column(float32)

    def add_vectors(self, packed: Mapping[tuple[int, int], bytes]) -> None:
        """Add vectors packed by `pack_vectors`, by seq and place; skip unknown messages and those that need none."""
        rows = {row: packed[key] for row, key in self._rows_of(packed) if self._vectors.values[row] == _NONE}
        if not rows:
            return
        codes = np.frombuffer(b"".join(rows.values()), np.int8).reshape(len(rows), -1)
        self._vectors.change(list(rows), self._codes.count + np.arange(len(rows)))
        self._codes.extend(codes, len(rows))
        self._lengths_of_codes.extend(np.sqrt(np.square(codes, dtype=float32).sum(axis=1)), len(rows))

    def _rows_of(self, keys: Collection[tuple[int, int]]) -> Iterator[tuple[int, tuple[int, int]]]:
        seqs, places = self._seqs.values, self._places.values
        wanted = [seq for seq, _ in keys]
        begins: list[int] = np.searchsorted(seqs, wanted, "left").tolist()
        ends: list[int] = np.searchsorted(seqs, wanted, "right").tolist()
        for begin, end, key in zip(begins, ends, keys, strict=True):
            row = begin + int(np.searchsorted(places[begin:end], key[1]))
            if row < end and places[row] == key[1]:
                yield row, key

    def missing_vectors(self, count: int, streams: Collection[int] | None, until: int | None) -> list[tuple[int, int]]:
        """Return seq and place of the newest messages that lack a vector, in `streams` and up to `until` if given."""
        rows = np.flatnonzero(self._vectors.values == _NONE)
        if until is not None:
            rows = rows[self._seqs.values[rows] <= until]
        if streams is not None:
            rows = rows[np.isin(self._streams.values[rows], list(streams))]
        return list(self.keys(rows[-count:]))

    def keys(self, rows: Rows | slice) -> Iterator[tuple[int, int]]:
        """Yield seq and place of the messages of rows."""
        return zip(self._seqs.values[rows].tolist(), self._places.values[rows].tolist(), strict=True)

    def view(self, until: int | None, after: int = 0) -> "MessageView":
        """Return the rows after one seq and up to another, or all of them; the result does not show later rows."""
        seqs = self._seqs.view()
        end = len(seqs) if until is None else int(np.searchsorted(seqs, until, side="right"))
        begin = min(int(np.searchsorted(seqs, after, side="right")), end)
        first, last = (int(self._ends.values[count - 1]) if count else 0 for count in (begin, end))
        columns = (self._places, self._roles, self._lengths, self._questions, self._streams, self._vectors)
        hashes, rows, before = self._hashes.view()[first:last], self._rows.view()[first:last], self._before.view()
        cut = np.maximum(before[begin:end] - begin, _NONE) if begin else before[:end]
        places, roles, lengths, questions, streams, vectors = (column.view()[begin:end] for column in columns)
        rows = rows - begin if begin else rows
        self._words.flush()
        own = (places, roles, lengths, questions, streams, cut, vectors)
        return MessageView(
            self._words, hashes, rows, seqs[begin:end], *own, self._codes.view(), self._lengths_of_codes.view()
        )


class MessageView(NamedTuple):
    """The rows of an index after one seq and up to another."""

    words: Words
    hashes: NDArray[np.int64]
    hash_rows: Rows
    seqs: NDArray[np.int64]
    places: NDArray[np.int32]
    roles: NDArray[np.uint8]
    lengths: NDArray[np.uint16]
    questions: _Floats
    streams: Rows
    before: Rows
    vectors: Rows
    codes: Array
    lengths_of_codes: _Floats
    contents: Rows | None = None
    """For each row, the row of the content that replaced its own; if nothing was replaced, none."""

    def rows_of(self, term: str) -> Rows:
        """Return the rows that have a term or, for an irregular word, any of its forms."""
        forms = forms_of(term, RANKING.stemmer)
        return self._rows_with([word for form in forms for word in (mark_stem(form), *self.words.find_words(form))])

    def rows_of_compounds(self, term: str, *, is_sure: bool) -> Rows:
        """Return the rows that have a compound of which a term is a part, or both parts of it if it is a compound.

        `is_sure` says that the query is in a language that has compounds.
        """
        found = [self._rows_with(self.words.find_compounds(term, is_sure=is_sure))]
        for parts in splits_of(term):
            first, last = map(_STEM, parts)
            if self.words.has_stem(first) and self.words.has_stem(last):
                found.append(np.intersect1d(self.rows_of(first), self.rows_of(last)))
        rows: Rows = np.unique(np.concatenate(found))
        return rows

    def _rows_with(self, words: Sequence[str]) -> Rows:
        """Return the rows that have any of some words, which can be marked stems."""
        if len(words) > _FEW_COUNT:
            found = [self.hash_rows[np.isin(self.hashes, list(map(hash, words)))]]
        else:
            each = (self.hash_rows[self.hashes == hash(word)] for word in words)
            found = [rows for rows in each if len(rows)]
            if len(found) == 1:
                return found[0]
        marks = np.zeros(len(self.seqs), np.bool_)
        for rows in found:
            marks[rows] = True
        united: Rows = np.flatnonzero(marks)
        return united

    def after(self) -> Rows:
        """Return for each row the next row of its conversation, or -1 if there is none."""
        after: Rows = np.full(len(self.before), _NONE, np.intp)
        follows = np.flatnonzero(self.before != _NONE)
        after[self.before[follows]] = follows
        return after

    def row_at(self, seq: int, place: int) -> int | None:
        """Return the row of a message, `None` if it has none."""
        begin, end = (int(np.searchsorted(self.seqs, seq, side)) for side in ("left", "right"))
        rows = np.flatnonzero(self.places[begin:end] == place)
        return begin + int(rows[0]) if len(rows) else None

    def newest(self, row: int) -> int:
        """Return the row of the newest content of a message, given any row of it."""
        return row if self.contents is None else int(self.contents[row])

    def first(self, row: int) -> int:
        """Return the row of the first content of a message, given any row of it."""
        return row if self.contents is None else int((self.contents == self.contents[row]).argmax())

    def has_only(self, row: int, hashes: Collection[int]) -> bool:
        """Return whether all words of a row have one of some hashes."""
        begin, end = np.searchsorted(self.hash_rows, (row, row + 1)).tolist()
        return all(each in hashes for each in self.hashes[begin:end].tolist())

    def limit_vectors(self, streams: Collection[int]) -> "MessageView":
        """Return the same rows, with vectors only in the given conversations."""
        vectors = np.where(np.isin(self.streams, list(streams)), self.vectors, _NEVER)
        return self._replace(vectors=vectors)

    def mask_without(self, keys: Collection[tuple[int, int]]) -> NDArray[np.bool_]:
        """Return the mask of the rows that do not belong to the given messages, identified by seq and place."""
        mask = np.ones(len(self.seqs), np.bool_)
        seqs = np.array([seq for seq, _ in keys], np.int64)
        begins, ends = (np.searchsorted(self.seqs, seqs, side).tolist() for side in ("left", "right"))
        for begin, end, (_, place) in zip(begins, ends, keys, strict=True):
            mask[begin:end] &= self.places[begin:end] != place
        return mask

    @property
    def embedded_count(self) -> int:
        """The number of rows with a vector."""
        return int((self.vectors >= 0).sum())

    @property
    def pending_count(self) -> int:
        """The number of rows that can have a vector and lack one."""
        return int((self.vectors == _NONE).sum())

    def cosines(self, vector: _Floats) -> _Floats:
        """Compute the cosine of each row's vector and a vector of length 1; it is 0 for a row without a vector."""
        cosines: _Floats = np.zeros(len(self.vectors), float32)
        rows = np.flatnonzero(self.vectors >= 0)
        for begin in range(0, len(rows), _SLICE_ROWS):
            part = rows[begin : begin + _SLICE_ROWS]
            places = self.vectors[part]
            cosines[part] = product(self.codes[places].astype(float32), vector) / self.lengths_of_codes[places]
        return cosines


def pack_vectors(vectors: Array, dimensions: int) -> list[bytes]:
    """Pack the directions of vectors, one in each line, with one byte per number."""
    units = normalise(vectors, dimensions, count=len(vectors))
    codes = np.rint(units * (_BYTE_MAX / np.abs(units).max(axis=1, keepdims=True))).astype(np.int8)
    return [line.tobytes() for line in codes]


class MessageMatch(NamedTuple):
    """A found message: its look, its place in the log, its score, its signals.

    `words` is the number of the query's words that it has, `length` that of all its words. `is_end` says that only the
    question at its end is shown, with the answer to it.
    """

    look: int
    seq: int
    place: int
    score: float
    words: int
    length: int
    parts: dict[str, float]
    is_end: bool = False


def search(
    looks: Sequence[MessageView],
    query: str,
    roles: Collection[int] | None,
    top_k: int,
    *,
    explain: bool = False,
    words_min: int = 1,
    among: Sequence[NDArray[np.bool_]] | None = None,
    vector: _Floats | None = None,
    floor_rate: float = 0.0,
    has_compounds: bool | None = None,
) -> list[MessageMatch]:
    """Return the messages that have the most of a query's words, weighted by rarity; ties go to the newest.

    The forms of an irregular word count as one word, and so do the compounds of a word that no message says. A message
    that has at least `words_min` of the query's words also scores for the words of its neighbours. With the query's
    `vector`, of length 1, the cosine of each embedded message counts too, and a message with a positive cosine is found
    without such words if its score reaches a floor: `floor_rate`, which is the rate of one signal, times the weights of
    both signals, times the logarithm of one plus the number of rows. The rarity of a word is counted among all rows of
    all looks, before `roles` and `among` apply; `among` marks the rows of each look that can be found. A message in
    several looks is found once. `has_compounds` says whether the language of the query writes compounds as one word, if
    the query was cut and does not tell. With `explain`, a match also has the share of each of the query's words in it.
    """
    words = {forms_of(term, RANKING.stemmer): term for term in terms_of(query, RANKING.stemmer)[0]}.values()
    is_sure = writes_compounds(query) if has_compounds is None else has_compounds
    found = {word: rows_of_word(looks, word, among, has_compounds=is_sure) for word in words}
    total = sum(len(look.seqs) for look in looks)
    weights = {word: rarity(total, sum(map(len, rows))) for word, rows in found.items()}
    floor = (RANKING.coverage + RANKING.cosine) * floor_rate * log1p(total)
    matches: dict[tuple[int, int], MessageMatch] = {}
    for number, look in enumerate(looks):
        own = {word: rows[number] for word, rows in found.items()}
        mask = np.ones(len(look.seqs), np.bool_) if among is None else among[number]
        if roles is not None:
            mask = mask & np.isin(look.roles, list(roles))
        near = None if vector is None or not look.embedded_count else CosineScores(look.cosines(vector), floor)
        for row, score, count, parts in _best(look, own, weights, mask, top_k, words_min, near):
            if explain:
                whole = sum(weights.values())
                parts |= {word: weights[word] / whole for word, rows in own.items() if row in rows}
            match = MessageMatch(
                number, int(look.seqs[row]), int(look.places[row]), score, count, int(look.lengths[row]), parts
            )
            matches[match.seq, match.place] = max(match, matches.get((match.seq, match.place), match), key=_score)
    return sorted(matches.values(), key=lambda match: (-match.score, -match.seq, -match.place))[:top_k]


def rows_of_word(
    looks: Sequence[MessageView],
    term: str,
    among: Sequence[NDArray[np.bool_]] | None = None,
    *,
    has_compounds: bool,
) -> list[Rows]:
    """Return the rows of each look that have a term; if no row that can be found says it, those of its compounds too.

    A row that only asks does not say it. Unless the language of the query `has_compounds`, fewer
    words count as compounds.
    """
    rows = [look.rows_of(term) for look in looks]
    if not can_be_part(term):
        return rows
    for number, (look, own) in enumerate(zip(looks, rows, strict=True)):
        said = look.questions[own] <= _ASKING_SHARE
        if (said if among is None else said & among[number][own]).any():
            return rows
    compounds = [look.rows_of_compounds(term, is_sure=has_compounds) for look in looks]
    return [np.union1d(own, others) for own, others in zip(rows, compounds, strict=True)]


class CosineScores(NamedTuple):
    """The cosines of a look's rows, and the score from which a row is found without any word of the query."""

    cosines: _Floats
    floor: float


def _score(match: MessageMatch) -> float:
    return match.score


def _best(
    look: MessageView,
    rows: dict[str, Rows],
    weights: dict[str, float],
    among: NDArray[np.bool_],
    top_k: int,
    words_min: int,
    near: CosineScores | None,
) -> Iterator[tuple[int, float, int, dict[str, float]]]:
    terms = [(rows[word], weight) for word, weight in weights.items()]
    counts: NDArray[np.intp] = np.zeros(len(look.seqs), np.intp)
    for found, _ in terms:
        counts[found] += 1
    is_found = counts >= words_min  # A mere neighbour of a match is not a match.
    if near is None and not (is_found & among).any():
        return
    coverage = coverage_of(RANKING, look.lengths, (look.before, look.after()), terms)
    questions = look.questions * (look.lengths < RANKING.question_terms)
    total = (RANKING.coverage * coverage + RANKING.question * questions).astype(np.float64)
    if near is not None:
        total += RANKING.cosine * near.cosines
        is_found |= (near.cosines > 0) & (total >= near.floor)
    total = np.round(total, _DECIMALS)
    places = np.flatnonzero(is_found & among)
    order = np.lexsort((-places, -total[places]))[:top_k]
    for row in places[order].tolist():
        parts = {"coverage": float(coverage[row]), "question": float(questions[row])}
        if near is not None and look.vectors[row] >= 0:
            parts["cosine"] = float(near.cosines[row])
        yield row, float(total[row]), int(counts[row]), parts
