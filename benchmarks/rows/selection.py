"""Selecting skills by default: is the right one among five for a task, and does small talk select none?"""

from collections.abc import Iterator
from importlib.util import find_spec

from rows.table import Options, Row, found, skipped
from selection import corpus_of, judged, talks

JOB = "skill selection recall@5"
TALK = "small talk that selects no skill"
LEAST = 0.78
TALK_LEAST = 0.9


def rows(options: Options) -> Iterator[Row]:
    """Measure the selection among real skills, for tasks that their own texts name, and for talk."""
    folders = [options.data / name for name in ("skills", "locomo", "tau-bench")]
    if not all(folder.is_dir() for folder in folders):
        yield skipped(JOB, "-", "skills, locomo and tau-bench are not all in the data folder")
        return
    if find_spec("yaml") is None:
        yield skipped(JOB, "-", "PyYAML is not installed; refold[skills] installs it")
        return
    corpus = corpus_of(folders[0])
    result, whole = judged(corpus, talks(options.data)), slice(None)
    note = f"{len(corpus.tasks):,} tasks, {len(corpus.skills)} skills without what they say of their use"
    yield found(JOB, result.recall(1.0, whole), LEAST, note)
    quiet = result.quiet(1.0, whole)
    for kind in ("people", "to an agent"):
        yield found(f"{TALK}, {kind}", quiet[kind], TALK_LEAST, f"{len(result.talk[kind]):,} messages")
