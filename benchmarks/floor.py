"""How much a relevance floor hides: questions asked of their own conversation, and of others.

    python benchmarks/floor.py                      # MiniLM's stored vectors: rates from 0.02 to 0.06
    python benchmarks/floor.py --embedder hashed    # vectors of the built-in embedder

The floor of a project is a rate times the logarithm of one and the number of its memories: the best of many scores by
chance grows like that. A question finds nothing where its best score is below the floor. "Others" are the other
conversations of the same set, some of which are about the same people or work; "strangers" those of the other set.

Of rates, the largest is chosen that costs at most one point of recall@10 on each set. Split halves choose it on half of
the conversations of both sets and judge it on the rest.
"""

import argparse
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy
from retrieval import DATA, EMBEDDERS, SPLITS, system
from retrieval_sets import SETS

from refold.evaluation.retrieval import SEED, EmbeddedCase, texts_of
from refold.index.ranking import RANKINGS, Query

NAMES: Final = ("LoCoMo", "BEAM-100K")
DEPTH: Final = 10
RATES: Final = tuple(round(0.02 + 0.0025 * step, 4) for step in range(17))
LOST_MAX: Final = 1.0
HYBRID: Final = system("hybrid")


class Asked(NamedTuple):
    """Questions of one conversation: the number of it and of the one that was asked, and what each found there."""

    home: tuple[str, int]
    place: tuple[str, int]
    rates: Any  # The best score, over the logarithm.
    recall: Any  # Zero where a stranger was asked.
    categories: list[str]


def asked(sets: dict[str, list[EmbeddedCase]]) -> list[Asked]:
    """Ask every question of every conversation of every set."""
    rows: list[Asked] = []
    for name, conversations in sets.items():
        for number, one in enumerate(conversations):
            texts = texts_of(one, HYBRID)
            now_ns = int(texts.accessed_ns.values.max(initial=0))
            for home, cases in sets.items():
                for origin, other in enumerate(cases):
                    pairs = [
                        (question, one.items @ vector)
                        for question, vector in zip(other.case.questions, other.questions, strict=True)
                        if question.evidence
                    ]
                    best, recall = [], []
                    for question, cosine in pairs:
                        query = Query(text=question.text, ranking=RANKINGS["hybrid"], now_ns=now_ns)
                        hits = texts.best(texts.score(query, cosine)[0], DEPTH)
                        best.append(hits[0][1])
                        found = question.evidence & {row for row, _ in hits} if (home, origin) == (name, number) else ()
                        recall.append(len(found) / len(question.evidence))
                    rows.append(
                        Asked(
                            (home, origin),
                            (name, number),
                            numpy.array(best) / numpy.log1p(len(one.case.items)),
                            numpy.array(recall),
                            [question.category for question, _ in pairs],
                        )
                    )
    return rows


def joined(rows: list[Asked], field: str) -> Any:
    """One column of many rows."""
    return numpy.concatenate([getattr(row, field) for row in rows])


def lost(rows: list[Asked], rate: float) -> float:
    """The points of recall that a floor costs questions asked of their own conversation."""
    return 100 * float(numpy.mean(joined(rows, "recall") * (joined(rows, "rates") < rate)))


def nothing(rows: list[Asked], rate: float) -> float:
    """The percentage of questions that find nothing."""
    return 100 * float(numpy.mean(joined(rows, "rates") < rate))


def kinds(rows: list[Asked], name: str) -> tuple[list[Asked], list[Asked], list[Asked]]:
    """The questions of a set asked of their own conversation, of others, and of strangers."""
    of = [row for row in rows if row.home[0] == name]
    return (
        [row for row in of if row.place == row.home],
        [row for row in of if row.place != row.home and row.place[0] == name],
        [row for row in of if row.place[0] != name],
    )


def chosen(rows: list[Asked]) -> float:
    """The largest rate that costs at most a point on each set."""
    fine = [rate for rate in FINE if all(lost(kinds(rows, name)[0], rate) <= LOST_MAX for name in NAMES)]
    return max(fine, default=0.0)


FINE: Final = tuple(round(0.01 + 0.0005 * step, 4) for step in range(120))


def print_rates(rows: list[Asked]) -> None:
    """The cost and the use of each rate."""
    for name in NAMES:
        own, others, strangers = kinds(rows, name)
        print(f"\n## {name}: recall@{DEPTH} {100 * joined(own, 'recall').mean():.1f} without a floor\n")
        print("| rate | recall | lost | others: nothing | strangers: nothing |\n|---|---|---|---|---|")
        for rate in (*RATES, chosen(rows)):
            cost = lost(own, rate)
            recall = 100 * joined(own, "recall").mean() - cost
            print(
                f"| {rate} | {recall:.1f} | {cost:.1f} | {nothing(others, rate):.1f} | {nothing(strangers, rate):.1f} |"
            )


def print_categories(rows: list[Asked], rate: float) -> None:
    """What a rate costs each kind of question."""
    print(f"\n## By category, at {rate}\n\n| set | category | questions | without | with |\n|---|---|---|---|---|")
    for name in NAMES:
        own = kinds(rows, name)[0]
        labels = numpy.array([category for row in own for category in row.categories])
        recall, rates = joined(own, "recall"), joined(own, "rates")
        for label in sorted(set(labels.tolist())):
            mask = labels == label
            after = 100 * float((recall * (rates >= rate))[mask].mean())
            print(f"| {name} | {label} | {mask.sum()} | {100 * float(recall[mask].mean()):.1f} | {after:.1f} |")


def print_split_half(rows: list[Asked]) -> None:
    """Choose on half of the conversations, judge on the other."""
    random = numpy.random.default_rng(SEED)
    homes = {name: sorted({row.home for row in kinds(rows, name)[0]}) for name in NAMES}
    rates: list[float] = []
    judged: dict[str, list[tuple[float, float, float]]] = {name: [] for name in NAMES}
    for _ in range(SPLITS):
        half = {
            homes[name][place]
            for name in NAMES
            for place in random.permutation(len(homes[name]))[: (len(homes[name]) + 1) // 2]
        }
        rate = chosen([row for row in rows if row.home in half and row.place in half])
        rest = [row for row in rows if row.home not in half and row.place not in half]
        rates.append(rate)
        for name in NAMES:
            own, others, strangers = kinds(rest, name)
            judged[name].append((lost(own, rate), nothing(others, rate), nothing(strangers, rate)))
    least, most = numpy.percentile(rates, [5, 95])
    print(f"\n## Split halves: {SPLITS}, rates {numpy.mean(rates):.4f} ({least:.4f} to {most:.4f})\n")
    print("| set | lost | others: nothing | strangers: nothing |\n|---|---|---|---|")
    for name in NAMES:
        print(f"| {name} | {' | '.join(f'{value:.1f}' for value in numpy.mean(judged[name], axis=0))} |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--embedder", choices=sorted(EMBEDDERS), default="stored")
    parser.add_argument("--rate", type=float, help="print the categories at this rate, not at the chosen one")
    options = parser.parse_args()
    rows = asked({name: SETS[name][0](options.data, EMBEDDERS[options.embedder]) for name in NAMES})
    print(f"seed {SEED}, vectors: {options.embedder}, chosen: {chosen(rows)}")
    print_rates(rows)
    print_categories(rows, options.rate or chosen(rows))
    print_split_half(rows)


if __name__ == "__main__":
    main()
