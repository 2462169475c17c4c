"""Retrieval and eviction on the public sets, by what `refold bench` is made of: figures, not times."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rows.table import Row
from rows.table import found as part_found

from refold.embedders import HashedEmbedder
from refold.evaluation.cases import Case, cases_of
from refold.evaluation.eviction import BUDGETS, evictions, trace_of
from refold.evaluation.retrieval import ALL, SYSTEMS, EmbeddedCase, Figures, answers, embed_cases, figures, load_vectors

HASHED = "built-in embedder"
QUICK_CASES = 2
PRESET = "hybrid"
MINILM = "MiniLM"
LEAST = {
    ("LoCoMo", HASHED): 0.75,
    ("LoCoMo", MINILM): 0.80,
    ("BEAM-100K", HASHED): 0.62,
    ("BEAM-100K", MINILM): 0.68,
}
"""What the default ranking has to find in each set, by whose vectors."""


class Source(NamedTuple):
    """A public set: its file, and the folder of its vectors if it has one."""

    name: str
    file: str
    vectors: str | None
    depth: int = 10

    def cases(self, data: Path) -> list[Case]:
        """Return its conversations."""
        return cases_of(data / self.file)

    def embedded(self, data: Path, cases: list[Case]) -> tuple[str, list[EmbeddedCase]]:
        """Return the cases with the vectors that lie beside the set, else with the built-in embedder's."""
        if self.vectors is not None and (data / self.vectors).is_dir():
            return MINILM, load_vectors(cases, data / self.vectors)
        return HASHED, embed_cases(cases, HashedEmbedder())


SOURCES = (
    Source("LoCoMo", "locomo/locomo7_dev.json", "locomo-emb"),
    Source("BEAM-100K", "beam/beam_100K_dev12.jsonl", "beam-emb"),
    Source("LongMemEval", "longmemeval/longmemeval_s_star_2of3.json", None, 5),
    Source("tau-bench", "tau-bench/gpt4o_airline_dev.jsonl", None),
)


def found(data: Path, *, is_quick: bool) -> Iterator[tuple[Source, str, list[EmbeddedCase]]]:
    """Return every set that is there with its vectors; of a quick run the first conversations of each."""
    for source in SOURCES:
        if (data / source.file).is_file():
            vectors, each = source.embedded(data, source.cases(data))
            yield source, vectors, each[:QUICK_CASES] if is_quick else each


def absent(data: Path) -> list[str]:
    """Return the sets that are not there."""
    return [
        f"{source.name}: {source.file} is not in the data folder"
        for source in SOURCES
        if not (data / source.file).is_file()
    ]


def retrieval(data: Path, *, is_quick: bool) -> dict[str, Any]:
    """Return what every ranking finds in every set, over all questions and by category."""
    told: list[dict[str, Any]] = []
    rows: list[Row] = []
    for source, vectors, each in found(data, is_quick=is_quick):
        if source.name == "tau-bench":
            continue  # Its needs are those of calls, which no ranking was made for; the windows are what it is for.
        hashed = [] if vectors == HASHED else [(HASHED, embed_cases([one.case for one in each], HashedEmbedder()))]
        for kind, cases in [(vectors, each), *hashed]:
            shown = [
                figure for system in SYSTEMS for figure in figures(system.name, answers(cases, system), source.depth)
            ]
            if not is_quick:
                rows += reached(source, kind, shown)
            told.append(
                {
                    "set": source.name,
                    "vectors": kind,
                    "depth": source.depth,
                    "figures": msgspec.to_builtins(shown, str_keys=True),
                }
            )
    return {"retrieval": told, "rows": [row.as_json() for row in rows], "absent": absent(data)}


def reached(source: Source, kind: str, shown: list[Figures]) -> Iterator[Row]:
    """Yield what the preset found in a whole set against what it has to find there, where that is said."""
    least = LEAST.get((source.name, kind))
    (whole,) = (each for each in shown if each.system == PRESET and each.category == ALL)
    if least is not None:
        low, high = (100 * bound for bound in (whole.recall_interval.low, whole.recall_interval.high))
        note = f"95 % interval {low:.1f}-{high:.1f}, {whole.questions:,} questions"
        job = f"evidence recall@{source.depth}, {source.name}, {PRESET}, {kind}"
        yield part_found(job, whole.recall[source.depth], least, note)


def eviction(data: Path, *, is_quick: bool) -> dict[str, Any]:
    """Return what every policy keeps within every budget in every set."""
    told: list[dict[str, Any]] = []
    for source, vectors, each in found(data, is_quick=is_quick):
        traces = [trace_of(one.case) for one in each]
        kept = msgspec.to_builtins(list(evictions(traces, BUDGETS)))
        told.append({"set": source.name, "vectors": vectors, "evictions": kept})
    return {"eviction": told, "absent": absent(data)}
