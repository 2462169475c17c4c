"""Selecting skills: of five that are selected for a task, how often the right one is among them."""

import json
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rows.table import Options, Row, found, skipped

from refold.skills import SelectionPolicy, Selector, SkillIndex, SkillLoader, SkillRoots
from refold.skills.selection import text_of

JOB = "skill selection recall@5"
LEAST = 0.79
DIMENSIONS = 384
POLICY = SelectionPolicy(ranking="hybrid", top_k=5, min_score=0.0)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the JSON values of a file, line by line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def vectors_of(index: SkillIndex, queries: Sequence[dict[str, Any]], folder: Path) -> Callable[[Sequence[str]], Any]:
    """Return what gives the vectors of a folder for skills and queries; skills that have none there get zeros."""
    rows = np.load(folder / "skills_minilm_l6_f16.npy").astype(np.float32)
    named = {line["name"]: row for line, row in zip(lines_of(folder / "skills.jsonl"), rows, strict=True)}
    nothing = np.zeros(DIMENSIONS, dtype=np.float32)
    known = {text_of(skill): named.get(skill.name, nothing) for skill in index.skills}
    asked = np.load(folder / "selection_queries_minilm_l6_f16.npy").astype(np.float32)
    known |= {query["query"]: row for query, row in zip(queries, asked, strict=True)}
    return lambda texts: np.stack([known[text] for text in texts])


def rows(options: Options) -> Iterator[Row]:
    """Measure the selection among real skills, for tasks that their own texts name."""
    corpus, folder = options.data / "skills", options.data / "skills-emb"
    if not corpus.is_dir() or not folder.is_dir():
        yield skipped(JOB, "-", "skills and skills-emb are not in the data folder")
        return
    if find_spec("yaml") is None:
        yield skipped(JOB, "-", "PyYAML is not installed; refold[skills] installs it")
        return
    index = SkillLoader(SkillRoots(builtin=(str(corpus),))).load()
    queries = lines_of(corpus / "selection_queries.jsonl")
    selector = Selector(index, vectors=vectors_of(index, queries, folder))
    chosen = (selector.select(query["query"], policy=POLICY) for query in queries)
    right = [
        query["skill"] in {match.skill.name for match in matches}
        for query, matches in zip(queries, chosen, strict=True)
    ]
    note = f"{len(right):,} tasks, {len(index)} skills, ranking {POLICY.ranking}, MiniLM vectors"
    yield found(f"{JOB}, {POLICY.ranking}", sum(right) / len(right), LEAST, note)
