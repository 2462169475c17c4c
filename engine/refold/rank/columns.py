"""What of every memory is compared with a query: one column for each, kept row by row."""

from typing import TYPE_CHECKING

from msgspec import Struct

from refold.errors import InvalidInput
from refold.rank.growing import grown
from refold.rank.lexicon import Lexicon
from refold.rank.postings import Postings
from refold.rank.questions import question_share

if TYPE_CHECKING:
    from numpy import bool_, float32, int64, intp
    from numpy.typing import NDArray


class Row(Struct, frozen=True):
    """What of a memory is compared as text, and where it stands."""

    text: str
    keywords: tuple[str, ...]
    session: str | int | None
    occurred_ns: int | None


class Columns:
    """The columns of a project's memories, brought up to date memory by memory.

    Rows have numbers from 0, in the order of their memories' seqs. A row that is removed keeps its number and is never
    found; it may be added again, with other values, when its memory was changed. Indexes of terms are built when a
    ranking first asks for their stemmer, and kept from then on. Nothing here locks: who adds while another thread
    scores sees to that.

    >>> columns = Columns()
    >>> columns.add(0, "Ada likes tea", keywords=("tea",), importance=0.5, accessed_ns=0)
    >>> len(columns)
    1
    """

    def __init__(self) -> None:
        import numpy  # noqa: PLC0415 - loads when the first memory comes

        self._rows: list[Row | None] = []
        self._count = 0
        self._importance: NDArray[float32] = numpy.empty(0, dtype=numpy.float32)
        self._accessed_ns: NDArray[int64] = numpy.empty(0, dtype=numpy.int64)
        self._keyword_counts: NDArray[float32] = numpy.empty(0, dtype=numpy.float32)
        self._live: NDArray[bool_] = numpy.empty(0, dtype=numpy.bool_)
        self._keywords = Postings()
        self._lexicons: dict[str, Lexicon] = {}
        self._questions: NDArray[float32] | None = None

    def __len__(self) -> int:
        """How many rows are live."""
        return self._count

    @property
    def size(self) -> int:
        """How many rows there are, the removed ones included."""
        return len(self._rows)

    def is_live(self, row: int) -> bool:
        """Return whether a row is there and was not removed."""
        return row < len(self._rows) and self._rows[row] is not None

    def add(
        self,
        row: int,
        text: str,
        *,
        keywords: tuple[str, ...],
        importance: float,
        accessed_ns: int,
        session: str | int | None = None,
        occurred_ns: int | None = None,
    ) -> None:
        """Add a row that is new or was removed. Keywords are compared in lower case.

        Raises ``InvalidInput`` if the row is live, or if its number leaves a gap.
        """
        if row > len(self._rows) or self.is_live(row):
            message = f"row {row} cannot be added where there are {len(self._rows)}; give that number, or a removed row"
            raise InvalidInput(message)
        lowered = tuple(dict.fromkeys(keyword.lower() for keyword in keywords))
        added = Row(text, lowered, session, occurred_ns)
        if row == len(self._rows):
            self._rows.append(None)
            self._grow(row + 1)
        self._rows[row] = added
        self._count += 1
        self._live[row] = True
        self._importance[row] = importance
        self._accessed_ns[row] = accessed_ns
        self._keyword_counts[row] = len(lowered)
        self._keywords.add(row, lowered)
        for lexicon in self._lexicons.values():
            lexicon.add(row, text, session, occurred_ns)
        if self._questions is not None:
            self._questions[row] = question_share(text)

    def remove(self, row: int) -> None:
        """Take a live row out; raises ``InvalidInput`` for any other."""
        held = self._rows[row] if row < len(self._rows) else None
        if held is None:
            message = f"row {row} is not live; remove a row that was added"
            raise InvalidInput(message)
        self._rows[row] = None
        self._count -= 1
        self._live[row] = False
        self._keywords.remove(row)
        for lexicon in self._lexicons.values():
            lexicon.remove(row, held.session)

    def set_importance(self, row: int, importance: float) -> None:
        """Change the importance of a row."""
        self._importance[row] = importance

    def set_accessed(self, row: int, accessed_ns: int) -> None:
        """Change when a row was accessed last."""
        self._accessed_ns[row] = accessed_ns

    def importance(self) -> "NDArray[float32]":
        """Return the importance of each row."""
        return self._importance[: self.size]

    def accessed_ns(self) -> "NDArray[int64]":
        """Return when each row was accessed last."""
        return self._accessed_ns[: self.size]

    def live_rows(self) -> "NDArray[intp]":
        """Return the numbers of the live rows."""
        return self._live[: self.size].nonzero()[0]

    def jaccard(self, keywords: tuple[str, ...]) -> "NDArray[float32]":
        """Return for each row how many keywords it shares with the query, of all that either has."""
        import numpy  # noqa: PLC0415 - loads when the first query comes

        asked = dict.fromkeys(keyword.lower() for keyword in keywords)
        shared = numpy.zeros(self.size, dtype=numpy.float32)
        for keyword in asked:
            posting = self._keywords.get(keyword)
            if posting is not None:
                shared[posting.rows()] += 1
        either = self._keyword_counts[: self.size] + len(asked) - shared
        shared /= numpy.maximum(either, 1)
        return shared

    def lexicon(self, stemmer: str) -> Lexicon:
        """Return the index of terms with a stemmer, built now if it was not asked for before."""
        lexicon = self._lexicons.get(stemmer)
        if lexicon is None:
            lexicon = Lexicon(stemmer)
            for row, held in enumerate(self._rows):
                if held is not None:
                    lexicon.add(row, held.text, held.session, held.occurred_ns)
            lexicon.reach(self.size)
            self._lexicons[stemmer] = lexicon
        return lexicon

    def questions(self) -> "NDArray[float32]":
        """Return how much of each row's text is a question."""
        import numpy  # noqa: PLC0415 - loads when the first query comes

        if self._questions is None:
            self._questions = numpy.zeros(len(self._importance), dtype=numpy.float32)
            for row, held in enumerate(self._rows):
                if held is not None:
                    self._questions[row] = question_share(held.text)
        return self._questions[: self.size]

    def _grow(self, size: int) -> None:
        self._live = grown(self._live, size, 0)
        self._importance = grown(self._importance, size, 0)
        self._accessed_ns = grown(self._accessed_ns, size, 0)
        self._keyword_counts = grown(self._keyword_counts, size, 0)
        if self._questions is not None:
            self._questions = grown(self._questions, size, 0)
