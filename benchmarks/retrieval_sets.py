"""The sets of the published figures, as `refold bench` measures them; two are made of other files than chats."""

import errno
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy

from refold.embedders import HashedEmbedder
from refold.evaluation.cases import Case, CaseQuestion, Item, cases_of
from refold.evaluation.retrieval import EmbeddedCase

VectorsOf: TypeAlias = Callable[[list[str], Path | None], Any]
"""Vectors for texts, by a model or from a file."""


def stored_vectors(texts: list[str], stored: Path | None) -> Any:
    """Vectors that lie beside the texts; where none do, those of the built-in embedder."""
    if stored is None:
        return HashedEmbedder().embed(texts)
    rows = numpy.load(stored).astype(numpy.float32)
    assert len(rows) == len(texts), f"{stored.name} has {len(rows)} vectors for {len(texts)} texts"
    return rows


def lines_of(path: Path) -> list[Any]:
    """The JSON values of a file, line by line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def there(path: Path) -> Path:
    """The path, if there is a file."""
    if not path.is_file():
        raise FileNotFoundError(errno.ENOENT, "there is no such file", path.name)
    return path


def embedded(
    cases: Sequence[Case], vectors_of: VectorsOf, items: Path | None, questions: Path | None
) -> list[EmbeddedCase]:
    """The cases with vectors of all their items, and of all their questions, in their order."""
    found = vectors_of([item.text for case in cases for item in case.items], items)
    asked = vectors_of([question.text for case in cases for question in case.questions], questions)
    made, item_end, question_end = [], 0, 0
    for case in cases:
        item_begin, item_end = item_end, item_end + len(case.items)
        question_begin, question_end = question_end, question_end + len(case.questions)
        made.append(EmbeddedCase(case, found[item_begin:item_end], asked[question_begin:question_end]))
    return made


def locomo(data: Path, vectors_of: VectorsOf) -> list[EmbeddedCase]:
    """LoCoMo: chat turns with their speakers and dates, questions of categories 1 to 4."""
    folder = data / "locomo-emb"
    vectors = folder / "turns_minilm_l6_f16.npy", folder / "questions_minilm_l6_f16.npy"
    return embedded(cases_of(there(data / "locomo" / "locomo7_dev.json")), vectors_of, *vectors)


def beam(data: Path, vectors_of: VectorsOf) -> list[EmbeddedCase]:
    """BEAM: long messages."""
    stem = data / "beam-emb" / "beam_100K_dev12"
    vectors = [stem.with_name(f"{stem.name}_{part}_minilm_l6_f16.npy") for part in ("messages", "questions")]
    return embedded(cases_of(there(data / "beam" / "beam_100K_dev12.jsonl")), vectors_of, *vectors)


def locomo_facts(data: Path, vectors_of: VectorsOf) -> list[EmbeddedCase]:
    """The facts that LoCoMo has about its conversations; evidence is any fact that cites a turn of the evidence."""
    path = there(data / "locomo" / "locomo7_dev.json")
    samples = json.loads(path.read_text(encoding="utf-8"))
    cases = [_facts(case, sample) for case, sample in zip(cases_of(path), samples, strict=True)]
    return embedded(cases, vectors_of, None, None)


def _facts(case: Case, sample: dict[str, Any]) -> Case:
    facts = list(facts_of(sample["observation"]))
    cited = [{row for row, (_, keys) in enumerate(facts) if item.key in keys} for item in case.items]
    evidence = [frozenset(row for turn in question.evidence for row in cited[turn]) for question in case.questions]
    questions = tuple(
        CaseQuestion(question.text, question.category, rows, len(facts))
        for question, rows in zip(case.questions, evidence, strict=True)
        if rows
    )
    return Case("LoCoMo facts", case.name, described([text for text, _ in facts]), questions)


def facts_of(observation: dict[str, Any]) -> Iterator[tuple[str, set[str]]]:
    """Each fact with the turns that it cites."""
    for session in observation.values():
        for facts in session.values():
            for text, cited in facts:
                keys = cited if isinstance(cited, list) else [cited]
                yield text, {part.strip() for key in keys for part in key.replace(";", ",").split(",")}


def described(texts: Sequence[str]) -> tuple[Item, ...]:
    """Texts that stand for themselves: without a session or a time."""
    return tuple(Item(place, str(place), text, 0, "user") for place, text in enumerate(texts))


def skills(data: Path, vectors_of: VectorsOf) -> list[EmbeddedCase]:
    """Skills by name and description; the questions are the bullets that say when to use them."""
    folder = data / "skills-emb"
    indexed, asked = lines_of(folder / "skills.jsonl"), lines_of(data / "skills" / "selection_queries.jsonl")
    row_of = {skill["path"]: row for row, skill in enumerate(indexed)}
    questions = tuple(
        CaseQuestion(
            each["query"], "all", frozenset({row_of[each["path"]]} if each["path"] in row_of else ()), len(indexed)
        )
        for each in asked
    )
    items = described([f"{skill['name']}. {skill['description']}" for skill in indexed])
    vectors = folder / "skills_minilm_l6_f16.npy", folder / "selection_queries_minilm_l6_f16.npy"
    return embedded([Case("skills", "skills", items, questions)], vectors_of, *vectors)


SETS: dict[str, tuple[Callable[[Path, VectorsOf], list[EmbeddedCase]], int]] = {
    "LoCoMo": (locomo, 10),
    "BEAM-100K": (beam, 10),
    "LoCoMo facts": (locomo_facts, 10),
    "skills": (skills, 5),
}
"""The sets by name, with how many rows their recall looks at."""
