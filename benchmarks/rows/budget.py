"""Everything at the default budget: windows of about 2,400 messages, read, verified, forked and filled in batches."""

from collections.abc import Iterator
from itertools import count

import workloads
from rounds import alternate, median
from rows.append import against_puts, batches
from rows.replay import verified
from rows.table import Options, Row, limited
from rows.travel import PASSES, at_samples, judged, timed

from refold import Memory

CONVERSATIONS = 10
WINDOW_TOKENS = 128_000
"""The default of the library, given so that what was published stays what it was."""

FULL_MESSAGES = 2_500
"""More than a window of that budget holds."""

AT_NS = (4_000_000.0, 8_000_000.0)
VERIFY_PER_SECOND = 300_000
FORKED_NS = 2_000_000.0


def rows(options: Options) -> Iterator[Row]:
    """Measure windows at random seqs, verification, first reads of forks, and batches into full windows."""
    sizes = options.sizes
    said = f"{WINDOW_TOKENS:,} tokens"
    path = options.directory / "default-budget"
    with workloads.fill(path, sizes.budget_events, CONVERSATIONS, window_tokens=WINDOW_TOKENS) as memory:
        passes = [at_samples(memory, CONVERSATIONS, sizes.targets, seed) for seed in range(PASSES)]
        yield from judged(f"window of {said} at a random seq of {memory.head:,} events", passes, AT_NS)
        yield verified(memory, f"verify, windows of {said}, per event", VERIFY_PER_SECOND, max(options.rounds // 20, 3))
        samples = forked_samples(memory, sizes.targets)
        note = f"(median of {len(samples)} forks)"
        yield limited(f"first read of a fork, window of {said}", median(samples), FORKED_NS, note)
    for conversations in (1, 100):
        yield from _batch_rows(options, conversations)


def forked_samples(memory: Memory, forks: int) -> list[float]:
    """Return how long the first read of each of some forks takes, each of another seq."""
    step = max(memory.head // (2 * forks), 1)
    seqs = count(memory.head // 2, step)
    chats = workloads.handles(memory, CONVERSATIONS)
    places = zip(range(forks), seqs, strict=False)
    made = [chats[place % CONVERSATIONS].fork(f"first-{place}", at=seq) for place, seq in places]
    return [timed(fork.window) for fork in made]


def _batch_rows(options: Options, conversations: int) -> Iterator[Row]:
    """Measure batches when the windows are full, and evict as many messages as they take."""
    events = options.sizes.batch_events
    wide = options.directory / "default-budget-batches"
    wide.mkdir(exist_ok=True)
    with batches(wide, conversations, events, window_tokens=WINDOW_TOKENS) as batch:
        for _ in range(min(FULL_MESSAGES * conversations, 3 * options.sizes.budget_events) // events + 1):
            batch.append()
        samples = alternate(batch.jobs(), max(options.rounds // 2, 3))
    said = f"{conversations} conversation{'s' if conversations > 1 else ''}"
    job = f"batched append, {said}, windows of {WINDOW_TOKENS:,} tokens, per event"
    yield from against_puts(job, samples, conversations)
