"""How much of what answers a question each ranking finds: evidence recall at 10 on recorded conversations.

    python benchmarks/retrieval.py                  # every set and preset, with 95 % intervals over the questions
    python benchmarks/retrieval.py --by-category    # the same by the questions' category
    python benchmarks/retrieval.py --split-half     # settings chosen on half of the conversations, judged on the rest
    python benchmarks/retrieval.py --embedder hashed  # vectors of the built-in embedder in place of the stored ones
    python benchmarks/retrieval.py --data DIRECTORY

A set whose files are absent is left out, with the reason.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy
from retrieval_sets import SETS, stored_vectors

from refold.embedders import HashedEmbedder
from refold.evaluation.retrieval import ALL, SEED, SYSTEMS, EmbeddedCase, System, answers, figures, sweep_rankings
from refold.index.ranking import Ranking

DATA: Final = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
SPLITS: Final = 200


def system(name: str) -> System:
    """What stands under a name in the table."""
    return next(each for each in SYSTEMS if each.name == name)


def recall(conversations: list[EmbeddedCase], name: str, count: int) -> float:
    """The part of the evidence that is found, in percent."""
    return 100 * figures(name, answers(conversations, system(name)), count)[0].recall[count]


def counted(conversations: list[EmbeddedCase]) -> int:
    """How many questions have evidence."""
    return sum(bool(question.evidence) for each in conversations for question in each.case.questions)


def print_presets(name: str, conversations: list[EmbeddedCase], count: int, *, by_category: bool) -> None:
    """One line for each ranking."""
    tables = [figures(each.name, answers(conversations, each), count) for each in SYSTEMS]
    columns = [each.category for each in tables[0] if each.category != ALL] if by_category else []
    print(f"\n## {name}: recall@{count}, {counted(conversations)} questions, {len(conversations)} conversations\n")
    print(f"| ranking | all | 95 % | {' | '.join(columns)} |" if columns else "| ranking | all | 95 % |")
    print("|---|---|---|" + "---|" * len(columns))
    for whole, *kinds in tables:
        interval = f"{100 * whole.recall_interval.low:.1f}-{100 * whole.recall_interval.high:.1f}"
        cells = [f" {100 * each.recall[count]:.1f} |" for each in kinds if each.category in columns]
        print(f"| {whole.system} | {100 * whole.recall[count]:.1f} | {interval} |" + "".join(cells))


# What is chosen from in the split-half: shapes of the coverage, and weights.
SHAPES: Final = [
    {"stemmer": stemmer, "gate_terms": gate, "pivot_terms": pivot, "neighbours": neighbours, "irregular": True}
    for stemmer in ("light", "porter")
    for gate in (60.0, 80.0, 120.0)
    for pivot in (30.0, 40.0, 50.0)
    for neighbours in ((0.8, 0.5, 0.2), (0.6, 0.3), (1.0, 0.8, 0.6, 0.4))
]
WEIGHTS: Final = [(cosine, question) for cosine in (0.45, 0.5, 0.55) for question in (0.0, -0.1, -0.2)]


SETTINGS: Final = [
    Ranking(name=f"{shape}/{weight}", cosine=cosine, coverage=1 - cosine, question=asking, **shapes)  # type: ignore[arg-type]
    for shape, shapes in enumerate(SHAPES)
    for weight, (cosine, asking) in enumerate(WEIGHTS)
]


def grid(conversations: list[EmbeddedCase], count: int) -> "numpy.ndarray[Any, Any]":
    """The recall of every setting on every conversation: settings down, conversations across."""
    table = numpy.zeros((len(SETTINGS), len(conversations)))
    place_of = {setting.name: place for place, setting in enumerate(SETTINGS)}
    for place, conversation in enumerate(conversations):
        for found in sweep_rankings([conversation], SETTINGS, count):
            table[place_of[found.system], place] = found.recall[count]
        print(f"  {conversation.case.name}: {len(SETTINGS)} settings", file=sys.stderr)
    return table


def print_split_half(sets: dict[str, list[EmbeddedCase]]) -> None:
    """Choose the best sum of both sets on half of the conversations, and judge it on the others."""
    tables = {name: grid(conversations, 10) for name, conversations in sets.items()}
    weights = {name: numpy.array([counted([each]) for each in conversations]) for name, conversations in sets.items()}
    whole = {name: 100 * table @ weights[name] / weights[name].sum() for name, table in tables.items()}
    random = numpy.random.default_rng(SEED)
    outcomes: dict[str, list[float]] = {name: [] for name in sets}
    chosen: dict[int, int] = {}
    for _ in range(SPLITS):
        halves = {name: random.permutation(len(sets[name])) for name in sets}
        training = sum(
            tables[name][:, half[: (len(half) + 1) // 2]]
            @ weights[name][half[: (len(half) + 1) // 2]]
            / weights[name][half[: (len(half) + 1) // 2]].sum()
            for name, half in halves.items()
        )
        setting = int(numpy.argmax(training))
        chosen[setting] = chosen.get(setting, 0) + 1
        for name, half in halves.items():
            rest = half[(len(half) + 1) // 2 :]
            outcomes[name].append(
                100 * float(tables[name][setting, rest] @ weights[name][rest] / weights[name][rest].sum())
            )
    print(f"\n## Split-half: {len(SETTINGS)} settings, {SPLITS} splits\n")
    print("| set | chosen on one half, judged on the other | all settings on all: least, median, most |")
    print("|---|---|---|")
    for name in sets:
        spread = numpy.percentile(whole[name], [0, 50, 100])
        print(f"| {name} | {numpy.mean(outcomes[name]):.1f} | {spread[0]:.1f}, {spread[1]:.1f}, {spread[2]:.1f} |")
    print("\nMost often chosen:")
    for setting, times in sorted(chosen.items(), key=lambda pair: -pair[1])[:3]:
        shape, weight = divmod(setting, len(WEIGHTS))
        print(f"- {times} of {SPLITS}: {SHAPES[shape]}, cosine and question {WEIGHTS[weight]}")


def hashed_vectors(texts: list[str], _stored: Path | None) -> Any:
    """Vectors of the built-in embedder."""
    return HashedEmbedder().embed(texts)


EMBEDDERS: Final = {"stored": stored_vectors, "hashed": hashed_vectors}


def loaded(data: Path, embedder: str) -> Iterator[tuple[str, list[EmbeddedCase], int]]:
    """Every set whose files are there, with how many rows its recall looks at."""
    for name, (load, count) in SETS.items():
        try:
            conversations = load(data, EMBEDDERS[embedder])
        except FileNotFoundError as error:
            print(f"\n{name}: left out, {error.filename} is not on this machine")
            continue
        yield name, conversations, count


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--embedder", choices=sorted(EMBEDDERS), default="stored")
    parser.add_argument("--by-category", action="store_true")
    parser.add_argument("--split-half", action="store_true")
    parser.add_argument("--only", action="append", choices=sorted(SETS), help="a set; may be repeated")
    options = parser.parse_args()
    print(f"seed {SEED}, vectors: {options.embedder}")
    sets = [each for each in loaded(options.data, options.embedder) if not options.only or each[0] in options.only]
    if options.split_half:
        print_split_half({name: conversations for name, conversations, _ in sets if name in {"LoCoMo", "BEAM-100K"}})
        return
    for name, conversations, count in sets:
        print_presets(name, conversations, count, by_category=options.by_category)


if __name__ == "__main__":
    main()
