"""Searching a project by its public verbs: Hits with parts against one bare product, and promised times."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, cycle

import numpy as np
import workloads
from floors import BareProduct
from rounds import Job, Target, alternate, median
from rows.search import (
    CATEGORIES,
    CATEGORY_PRODUCT,
    HALF_PRODUCT,
    NEVER,
    NOW_NS,
    QUERIES,
    TOP,
    keywords,
    of_a_category,
    vectors,
)
from rows.table import Options, Row, compared, limited

from refold import Hits, Memory, Project
from refold.index.columns import DAY_NS

SEARCH = "refold, project.search"
CATEGORY = "refold, project.search of one of five categories"
HALF = "refold, project.search as of half of the events"
LAST = "refold, project.search as of the last but one"
WINDOW = "refold, project.search by ranking window"
MANY = "refold, project.search_many, 32 queries"
MANY_COUNT = 32
PRODUCT = "bare matrix-vector product"
SEARCH_NS = 50e6
TENDING_NS = 100e6
SEED_ROWS = 10_000
"""The memories for which the times of searching and tending are promised."""

ADD_NS = 15_000.0
BOUNDS = {10_000: (1.0, 1.6), 100_000: (0.5, 0.65), 1_000_000: (0.45, None)}
"""What a search may take of a product of all rows, and of fewer rows of a product of those, by the size."""

FLOORS = {HALF: HALF_PRODUCT, CATEGORY: CATEGORY_PRODUCT}
ROOM_BYTES = 4 * 1024**3
MILLION_ROOM_BYTES = 16 * 1024**3
COMPACT_COSINE = 0.9
BLOCK_ROWS = 256


class Recalls:
    """A project in RAM, searched by its verbs; each job takes the next query."""

    def __init__(self, size: int, room_bytes: int = ROOM_BYTES) -> None:
        generator = np.random.default_rng(workloads.SEED)
        # Room for the rows of now and of two earlier states: where they do not fit they are filled at each turn.
        self.memory = Memory(clock_ns=lambda: NOW_NS, memory_bytes=room_bytes)
        self.project: Project = self.memory.project("benchmark")
        self.vectors = vectors(size, 1)
        self.words = keywords(size, 6, generator)
        self.importance: list[float] = generator.uniform(0.2, 1.0, size).tolist()
        self.ages: list[int] = (generator.random(size) * 90 * DAY_NS).astype(np.int64).tolist()
        for begin in range(0, size, 1_000):
            with self.memory.batch():
                for place in range(begin, min(begin + 1_000, size)):
                    self.add(place)
        queries = list(zip(vectors(QUERIES, 2), keywords(QUERIES, 4, generator), strict=True))
        self.turn = cycle([(vector, " ".join(words)) for vector, words in queries])
        self._places = count(size)
        self.search()
        slot = self.memory._core.engine.reader.find("project/benchmark")
        assert slot is not None
        assert slot.index is not None
        # The floor multiplies all rows, so that is what is held against it.
        slot.index.table.builder.fixed = NEVER
        matrix = slot.index.table.view().columns.matrix
        self.product = BareProduct(matrix, self.vectors[0])
        self.half_product = BareProduct(matrix[: size // 2], self.vectors[0])
        self.category_product = BareProduct(of_a_category(matrix), self.vectors[0])

    def add(self, place: int) -> None:
        """Add the memory of a place."""
        row = place % len(self.vectors)
        self.project.add(
            f"memory {place}",
            vector=self.vectors[row],
            category=CATEGORIES[place % len(CATEGORIES)],
            keywords=self.words[row],
            importance=self.importance[row],
            occurred=NOW_NS - self.ages[row],
        )

    def add_next(self) -> None:
        """Add another memory."""
        self.add(next(self._places))

    def search(self, project: Project | None = None, ranking: str = "seed", category: str | None = None) -> Hits:
        """Answer the next query."""
        vector, text = next(self.turn)
        categories = None if category is None else [category]
        where = project or self.project
        return where.search(text, vector=vector, top_k=TOP, ranking=ranking, categories=categories, now=NOW_NS)

    def search_many(self) -> list[Hits]:
        """Answer the next queries at once."""
        asked = [next(self.turn) for _ in range(MANY_COUNT)]
        vectors, texts = [vector for vector, _ in asked], [text for _, text in asked]
        return self.project.search_many(texts, vectors=vectors, ranking="seed", top_k=TOP, now=NOW_NS)

    def upsert(self) -> object:
        """Look for what is most alike, which is not alike enough."""
        return self.project.upsert("memory", vector=next(self.turn)[0], threshold=1)

    def multiply_all_pairs(self) -> int:
        """Multiply every row with every later one, in blocks, and count those that are alike."""
        matrix = self.product.matrix
        blocks = range(0, len(matrix), BLOCK_ROWS)
        return sum(int((matrix[at : at + BLOCK_ROWS] @ matrix[at:].T > COMPACT_COSINE).sum()) for at in blocks)

    def jobs(self) -> dict[str, Job]:
        """Return the searches and their floor."""
        head = self.memory.head
        half, last = (self.memory.at(seq).project("benchmark") for seq in (head // 2, head - 1))
        return {
            SEARCH: Job(self.search),
            CATEGORY: Job(partial(self.search, category=CATEGORIES[1])),
            HALF: Job(partial(self.search, half)),
            LAST: Job(partial(self.search, last)),
            WINDOW: Job(partial(self.search, ranking="window")),
            MANY: Job(self.search_many, MANY_COUNT),
            PRODUCT: Job(self.product.multiply),
            HALF_PRODUCT: Job(self.half_product.multiply),
            CATEGORY_PRODUCT: Job(self.category_product.multiply),
        }

    def detached(self) -> None:
        """Let the index follow no events any more, as before the first search."""
        slot = self.memory._core.engine.reader.find("project/benchmark")
        assert slot is not None
        if slot.index is not None:
            slot.index.detach()


def rows(options: Options) -> Iterator[Row]:
    """Measure ten thousand memories."""
    yield from _measured(options.sizes.search_rows, options)


def large_rows(options: Options) -> Iterator[Row]:
    """Measure a hundred thousand."""
    yield from _measured(options.sizes.large_search_rows, options._replace(rounds=max(options.rounds // 2, 1)))


def million_rows(options: Options) -> Iterator[Row]:
    """Measure searches of a million, which need about ten gigabytes of RAM."""
    recalls = Recalls(options.sizes.million_rows, MILLION_ROOM_BYTES)
    yield from _search_rows(recalls, max(options.rounds // 4, 3), f"{options.sizes.million_rows:,} memories")
    recalls.memory.close()


def _search_rows(recalls: Recalls, rounds: int, said: str) -> Iterator[Row]:
    samples = alternate(recalls.jobs(), rounds)
    size = len(recalls.vectors)
    whole, part = BOUNDS.get(size, (None, None))
    bounds = {SEARCH: whole, LAST: whole, CATEGORY: part, HALF: part, WINDOW: None, MANY: None}
    for name, bound in bounds.items():
        target = None if bound is None else Target("at most", bound)
        floor = FLOORS.get(name, PRODUCT)
        job = f"{name.removeprefix('refold, ')}, {said}"
        yield compared(job, samples[name], floor, samples[floor], target, sense="at most")
    limit = SEARCH_NS if size <= SEED_ROWS else None
    yield limited(f"search, {said}", median(samples[SEARCH]), limit, "seed 002, 11.4")


def _measured(size: int, options: Options) -> Iterator[Row]:
    recalls = Recalls(size)
    said = f"{size:,} memories"
    yield from _search_rows(recalls, options.rounds, said)
    yield _add_row(recalls, options, said)
    is_seed = size <= SEED_ROWS
    for name, job in _tending(recalls):
        yield limited(f"{name}, {said}", _once(job), TENDING_NS if is_seed else None, "once")
    pairs_ns = _once(recalls.multiply_all_pairs)
    compact_ns = _once(partial(recalls.project.compact, COMPACT_COSINE, dry_run=True))
    note = f"once; {compact_ns / pairs_ns:.2f} x the bare products of all pairs"
    yield limited(f"decide a compaction, {said}", compact_ns, None, note)
    recalls.memory.close()


def _add_row(recalls: Recalls, options: Options, said: str) -> Row:
    """Tell what an addition takes more where its project is searched."""
    told = alternate({"told": Job(recalls.add_next)}, 10 * options.rounds)["told"]
    recalls.detached()
    alone = alternate({"alone": Job(recalls.add_next)}, 10 * options.rounds)["alone"]
    more = median(told) - median(alone)
    return limited(f"add one memory to rows that are searched, {said}", more, ADD_NS, "beyond the same without rows")


def _tending(recalls: Recalls) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "look for a match of an upsert", recalls.upsert
    yield "decay", recalls.project.decay
    yield "prune", partial(recalls.project.prune, 0.3)


def _once(job: Callable[[], object]) -> float:
    begin = time.perf_counter_ns()
    job()
    return time.perf_counter_ns() - begin
