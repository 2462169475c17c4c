"""Searching vectors: one bare product with all of them, and bare hnswlib, are the floors."""

import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import workloads
from floors import BareGraph, BareProduct
from msgspec.structs import replace
from rounds import Job, Target, alternate, median
from rows.table import Options, Row, compared, limited, recalled, skipped

from refold.index.cache import IndexCache
from refold.index.columns import DAY_NS, Array, normalise
from refold.index.hnsw import library
from refold.index.ranking import Filter, Query
from refold.index.search import nearest, search, search_many
from refold.index.table import Crossover, TableView, VectorTable

EXACT = "refold, exact hybrid"
CATEGORY = "refold, one of five categories"
HALF = "refold, as of half of the rows"
HALF_PRODUCT = "bare product of that half"
CATEGORY_PRODUCT = "bare product of that category"
END = "refold, as of the last row"
MANY = "refold, 32 queries at once"
APPROXIMATE = "refold, approximate hybrid"
WHOLE = "refold, a pass over all rows"
NEAREST = "refold, nearest"
PRODUCT = "bare matrix-vector product"
GRAPH = "bare hnswlib, same breadth"
FLOORS = {HALF: HALF_PRODUCT, CATEGORY: CATEGORY_PRODUCT}
DIMENSIONS = 384
TOPICS = 200
QUERIES = 64
TOP = 10
GONE_SHARE = 10
CATEGORIES = ("preference", "convention", "pattern", "correction", "fact")
WORDS = tuple(f"word{place}" for place in range(2_000))
NOW_NS = 1_764_000_000_000_000_000
CANDIDATES = (10, 50, 100, 500)
ALWAYS = Crossover(1, 1)
NEVER = Crossover(2**31, 2**31)
PROJECT_ROWS = 1_000
BOUND_BYTES = 256 * 1024**2
ADD_NS = 15_000.0
GRAPH_BYTES = 200
GRAPH_ROWS = 1_000_000
"""From so many on an answer by the graph has to be faster than the exact one."""

HYBRID_RECALL = 0.995
NEAREST_RECALL = 0.98
SETS = (("beam-emb", "beam_100K_dev12_messages", "beam_100K_dev12_questions"), ("locomo-emb", "turns", "questions"))


def vectors(rows: int, seed: int) -> Array:
    """Return vectors spread as those of texts are: topics, a common direction, most difference in few directions."""
    generator = np.random.default_rng(seed)
    shape = np.random.default_rng(workloads.SEED)
    spread = np.linspace(1.0, 0.2, 48, dtype=np.float32)
    topics = shape.standard_normal((TOPICS, 48), np.float32)
    mixing = shape.standard_normal((48, DIMENSIONS), np.float32)
    latent = topics[generator.integers(0, TOPICS, rows)] + spread * generator.standard_normal((rows, 48), np.float32)
    found: Array = latent @ mixing + 2.0 + 0.5 * generator.standard_normal((rows, DIMENSIONS), np.float32)
    return found


def keywords(rows: int, each: int, generator: np.random.Generator) -> list[list[str]]:
    """Return keywords, few of which are frequent."""
    chances = 1 / np.arange(1, len(WORDS) + 1)
    drawn = generator.choice(len(WORDS), (rows, each), p=chances / chances.sum())
    return [[WORDS[word] for word in line] for line in drawn.tolist()]


def _queries(found: Array, words: list[list[str]]) -> list[Query]:
    return [
        Query(vector=vector, words=tuple(line), now_ns=NOW_NS, top_k=TOP)
        for vector, line in zip(found, words, strict=True)
    ]


def of_a_category(matrix: Any) -> Any:
    """Return the rows of one of the categories that the rows have in turn, in a matrix of their own."""
    return np.ascontiguousarray(matrix[1 :: len(CATEGORIES)])


class Searches:
    """One shelf, its floors, and queries that take turns; every job answers the next one."""

    def __init__(self, rows: int) -> None:
        generator = np.random.default_rng(workloads.SEED)
        self.shelf = VectorTable(DIMENSIONS, "benchmark", crossover=NEVER)
        self.vectors = vectors(rows, 1)
        self.words = keywords(rows, 6, generator)
        self.shelf.extend(
            np.arange(1, rows + 1),
            self.vectors,
            categories=[CATEGORIES[place % len(CATEGORIES)] for place in range(rows)],
            keywords=self.words,
            importance=generator.random(rows),
            accessed_ns=NOW_NS - (generator.random(rows) * 90 * DAY_NS).astype(np.int64),
        )
        self.shelf.remove(rows + 1, generator.choice(rows, rows // GONE_SHARE, replace=False))
        self.queries = _queries(vectors(QUERIES, 2), keywords(QUERIES, 4, generator))
        matrix = self.shelf.view().columns.matrix
        self.product = BareProduct(matrix, self.vectors[0])
        self.half_product = BareProduct(matrix[: rows // 2], self.vectors[0])
        self.category_product = BareProduct(of_a_category(matrix), self.vectors[0])
        self.turn = cycle(self.queries)
        self._seqs = count(rows + 2)

    def search(self, chosen: Filter | None = None, view: TableView | None = None) -> Any:
        """Answer the next query."""
        query = next(self.turn)
        return search(self.shelf, replace(query, filter=chosen) if chosen else query, view=view)

    def nearest(self) -> Any:
        """Return the nearest rows for the next query."""
        return nearest(self.shelf, next(self.turn))

    def add(self) -> int:
        """Add a row like those that are there."""
        seq = next(self._seqs)
        place = seq % len(self.words)
        return self.shelf.add(
            seq,
            self.vectors[place],
            category=CATEGORIES[0],
            keywords=self.words[place],
            importance=0.5,
            accessed_ns=NOW_NS,
        )

    def exact_jobs(self) -> dict[str, Job]:
        """Return the exact searches and their floor."""
        rows = len(self.shelf)
        narrow = Filter(categories=(CATEGORIES[1],))
        half, end = self.shelf.view_at(rows // 2), self.shelf.view_at(rows)
        while (short := self.shelf.short_rows(half)) is not None and short.count < rows:
            short.extend(self.shelf.view().columns.matrix)
        return {
            EXACT: Job(self.search),
            CATEGORY: Job(partial(self.search, narrow)),
            HALF: Job(partial(self.search, view=half)),
            END: Job(partial(self.search, view=end)),
            MANY: Job(lambda: search_many(self.shelf.view(), self.queries[:32], [None] * 32), 32),
            PRODUCT: Job(self.product.multiply),
            HALF_PRODUCT: Job(self.half_product.multiply),
            CATEGORY_PRODUCT: Job(self.category_product.multiply),
        }

    def grow(self) -> int:
        """Let a graph be built from now on, and return how long the first took, in nanoseconds."""
        self.shelf.builder.fixed = ALWAYS
        begin = time.perf_counter_ns()
        self.nearest()
        self.shelf.builder.wait()
        return time.perf_counter_ns() - begin

    def bare_graph(self) -> BareGraph:
        """Return hnswlib's index of the rows of the graph, as broad as ours."""
        moment = self.shelf.view()
        assert moment.graph is not None
        return BareGraph(moment.columns.matrix[moment.graph.rows], moment.graph.breadth)

    def recalls(self) -> tuple[float, float, int]:
        """Return which shares of the exact answers the approximate and the nearest search give, and how many scan."""
        hybrid = near = scans = 0
        for query in self.queries:
            found = search(self.shelf, replace(query, approximate=True))
            scans += found.scanned
            hybrid += shared(found, search(self.shelf, query, exact=True))
            exact = nearest(self.shelf, query, exact=True)
            near += shared(nearest(self.shelf, query), exact)
        whole = TOP * len(self.queries)
        return hybrid / whole, near / whole, scans

    def bare_recall(self, bare: BareGraph) -> float:
        """Return which share of the exact answers hnswlib's index gives."""
        graph = self.shelf.view().graph
        assert graph is not None
        found = 0
        for query in self.queries:
            exact = nearest(self.shelf, query, exact=True)
            (asked,) = normalise(np.array([query.vector]), DIMENSIONS)
            labels, _ = bare.nearest(asked, TOP)
            found += len({hit.row for hit in exact.hits} & set(np.asarray(graph.rows)[labels[0]].tolist()))
        return found / (TOP * len(self.queries))


def shared(one: Any, other: Any) -> int:
    """Return how many rows two answers have in common."""
    return len({hit.row for hit in one.hits} & {hit.row for hit in other.hits})


def rows(options: Options) -> Iterator[Row]:
    """Measure ten thousand rows, and what re-ranking would find among real vectors."""
    yield from _measured(options.sizes.search_rows, options)
    yield from rerank_rows(options.data, options.sizes.search_queries)


def large_rows(options: Options) -> Iterator[Row]:
    """Measure a hundred thousand rows, and a million over many projects."""
    yield from _measured(options.sizes.large_search_rows, options._replace(rounds=max(options.rounds // 2, 1)))
    yield projects_row(options.sizes.search_projects)


def million_rows(options: Options) -> Iterator[Row]:
    """Measure a million rows with a graph, whose building takes most of an hour."""
    yield from _with_graph(Searches(options.sizes.million_rows), options, f"{options.sizes.million_rows:,} rows")


def _measured(size: int, options: Options) -> Iterator[Row]:
    searches = Searches(size)
    said = f"{size:,} rows"
    samples = alternate(searches.exact_jobs(), options.rounds)
    for name in (EXACT, CATEGORY, HALF, END, MANY):
        # What looks at fewer rows is held against a product of those alone; `projects` says what is to be reached.
        floor = FLOORS.get(name, PRODUCT)
        job = f"{name.removeprefix('refold, ')}, {said}"
        yield compared(job, samples[name], floor, samples[floor], None, sense="at most")
    added = alternate({"add": Job(searches.add)}, 10 * options.rounds)["add"]
    yield limited(f"add one memory, {said}", median(added), ADD_NS, "vector given")
    if library() is None:
        yield skipped(f"with a graph, {said}", GRAPH, "hnswlib is not installed")
        return
    yield from _with_graph(searches, options, said)
    searches.shelf.close()


def _with_graph(searches: Searches, options: Options, said: str) -> Iterator[Row]:
    built_ns = searches.grow()
    begin = time.perf_counter_ns()
    bare = searches.bare_graph()
    bare_ns = time.perf_counter_ns() - begin
    yield compared(f"build a graph, probes included, {said}", [built_ns], GRAPH, [bare_ns], None, sense="at most")
    asked = cycle(normalise(np.array([query.vector for query in searches.queries]), DIMENSIONS))
    jobs = {
        APPROXIMATE: Job(lambda: search(searches.shelf, replace(next(searches.turn), approximate=True))),
        EXACT: Job(searches.search),
        WHOLE: Job(lambda: search(searches.shelf, next(searches.turn), exact=True)),
        NEAREST: Job(searches.nearest),
        GRAPH: Job(lambda: bare.nearest(next(asked), TOP)),
    }
    samples = alternate(jobs, options.rounds)
    hybrid, near, scans = searches.recalls()
    note = f"recall {hybrid:.3f}, {scans} of {QUERIES} scanned"
    # With few rows a pass over all of them is faster: no short rows are made, and no graph is asked unless a benchmark
    # fixes the crossover.
    yield compared(f"exact by short rows, {said}", samples[EXACT], WHOLE, samples[WHOLE], None)
    target = Target("at least", 3) if len(searches.vectors) >= GRAPH_ROWS else None
    approximate = compared(f"approximate, {said}", samples[APPROXIMATE], EXACT, samples[EXACT], target, note=note)
    yield recalled(approximate, HYBRID_RECALL, hybrid)
    theirs = searches.bare_recall(bare)
    breadth = f"recall {near:.3f} at breadth {bare.breadth}, its {theirs:.3f}"
    nearest = compared(
        f"nearest, {said}", samples[NEAREST], GRAPH, samples[GRAPH], Target("at most", 1.2), note=breadth
    )
    yield recalled(nearest, NEAREST_RECALL, near, theirs)
    yield from _checkpoint_rows(searches, built_ns, said)


def _checkpoint_rows(searches: Searches, built_ns: int, said: str) -> Iterator[Row]:
    blob = searches.shelf.graph_to_bytes(1)
    assert blob is not None
    begin = time.perf_counter_ns()
    searches.shelf.graph_from_bytes(blob)
    opened_ns = time.perf_counter_ns() - begin
    graph = searches.shelf.view().graph
    assert graph is not None
    bytes_each = len(blob) / graph.row_count
    note = f"{bytes_each:.0f} bytes for each vector"
    job = f"checkpoint of a graph, {said}"
    yield Row(job, None, "-", target=f"at most {GRAPH_BYTES} B a vector", is_met=bytes_each <= GRAPH_BYTES, note=note)
    yield compared(f"open a graph, {said}", [opened_ns], "build it", [built_ns], None, note=note)


class Real(NamedTuple):
    """Vectors and questions of a public set, and the words of both where they are given."""

    name: str
    rows: Array
    questions: Array
    words: list[list[str]]
    asked: list[list[str]]


def real_set(data: Path, name: str, rows: str, questions: str, limit: int) -> Real | None:
    """Return one of the sets, ``None`` where it is not there."""
    folder = data / name
    paths = [folder / f"{stem}_minilm_l6_f16.npy" for stem in (rows, questions)]
    if not all(path.is_file() for path in paths):
        return None
    found, asked = (np.load(path).astype(np.float32) for path in paths)
    step = max(1, len(asked) // limit)
    said = _words(folder / f"{rows}.jsonl", "text", len(found))
    queried = _words(folder / f"{questions}.jsonl", "question", len(asked))
    return Real(name, found, asked[::step], said, queried[::step])


def _words(path: Path, field: str, size: int) -> list[list[str]]:
    """Return the longer words of texts; of vectors without texts some that are drawn."""
    if not path.is_file():
        return keywords(size, 6, np.random.default_rng(size))
    lines = path.read_text(encoding="utf-8").splitlines()
    return [[word for word in json.loads(line)[field].lower().split() if len(word) > 3][:12] for line in lines]


def rerank_rows(data: Path, limit: int) -> Iterator[Row]:
    """Tell which share of the ten best is found by re-ranking the nearest, and which by the approximate search."""
    for names in SETS:
        job = f"ten best by re-ranking, {names[0]}"
        real = real_set(data, *names, limit)
        if real is None:
            yield skipped(job, "-", "its vectors are not there; --data says where they lie")
        else:
            nanoseconds, recalls, ours = reranked(real)
            told = ", ".join(f"{share:.2f} of {size}" for size, share in recalls.items())
            yield limited(job, nanoseconds, None, f"recall {told} nearest; ours {ours:.3f}")


def reranked(real: Real) -> tuple[float, dict[int, float], float]:
    """Return what a search takes, the recall of re-ranking by candidates, and that of our search with a graph."""
    generator = np.random.default_rng(workloads.SEED)
    size = len(real.rows)
    shelf = VectorTable(real.rows.shape[1], "real", crossover=ALWAYS)
    shelf.extend(
        np.arange(1, size + 1),
        real.rows,
        categories=["fact"],
        keywords=real.words,
        importance=generator.random(size),
        accessed_ns=NOW_NS - (generator.random(size) * 90 * DAY_NS).astype(np.int64),
    )
    found: dict[int, int] = dict.fromkeys(CANDIDATES, 0)
    queries = _queries(real.questions, real.asked)
    nearest(shelf, queries[0])
    shelf.builder.wait()
    ours, times = 0, list[int]()
    for query in queries:
        exact = search(shelf, query, exact=True)
        begin = time.perf_counter_ns()
        ours += shared(search(shelf, replace(query, approximate=True)), exact)
        times.append(time.perf_counter_ns() - begin)
        products = shelf.view().columns.matrix @ np.asarray(query.vector)
        order = np.argsort(-products)
        for candidates in CANDIDATES:
            found[candidates] += len({hit.row for hit in exact.hits} & set(order[:candidates].tolist()))
    shelf.close()
    whole = TOP * len(queries)
    return median(times), {candidates: hits / whole for candidates, hits in found.items()}, ours / whole


def projects_row(projects: int) -> Row:
    """Search in turn in many projects whose vectors do not fit the bound together."""
    shelves = IndexCache[VectorTable](BOUND_BYTES)
    query = Query(vector=vectors(1, 3)[0], now_ns=NOW_NS)
    before, peak, times = _resident_bytes(), 0, list[int]()
    for place in range(projects):
        fill = _filler(place)
        begin = time.perf_counter_ns()
        assert search(shelves.get(place, fill), query).hits
        times.append(time.perf_counter_ns() - begin)
        peak = max(peak, _resident_bytes() - before)
        assert shelves.nbytes <= BOUND_BYTES
    shelves.close()
    size = f"{projects * PROJECT_ROWS:,} vectors in {projects:,} projects"
    note = f"at most {peak // 1024**2} MiB more in RAM, bound {BOUND_BYTES // 1024**2} MiB; making the vectors included"
    return limited(f"fill and search a cold one, {size}", median(times), None, note)


def _filler(place: int) -> Callable[[], VectorTable]:
    def fill() -> VectorTable:
        shelf = VectorTable(DIMENSIONS, "benchmark", crossover=NEVER)
        seqs = np.arange(1, PROJECT_ROWS + 1)
        made = np.random.default_rng(place).standard_normal((PROJECT_ROWS, DIMENSIONS), np.float32)
        shelf.extend(seqs, made, categories=["fact"], importance=0.5, accessed_ns=NOW_NS)
        return shelf

    return fill


def _resident_bytes() -> int:
    """Return what the process has in RAM, 0 where the system does not tell."""
    path = Path("/proc/self/statm")
    if not path.is_file():
        return 0
    return int(path.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
