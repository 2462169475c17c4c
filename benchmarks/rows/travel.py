"""Travel through time: the state of any conversation at any seq, and forks; every read is cold.

The engine keeps a few states of earlier seqs. No seq is read twice here, so that none of them is ever found.
"""

import random
from collections.abc import Callable, Iterator
from time import perf_counter_ns

import workloads
from rounds import median
from rows.table import Options, Row, limited

from refold import Conversation, Memory

AT_NS = (700_000.0, 1_000_000.0)
"""What the median and the slowest of the windows at random seqs may take, at 4,000 tokens."""

FORK_NS = 500_000.0
FORKED_NS = (500_000.0, None)
"""What the median and the slowest of the first reads of a fork may take."""

Limits = tuple[float | None, float | None]
FORK_DEPTH = 5
PASSES = 5


def timed(run: Callable[[], object]) -> float:
    """Return how many nanoseconds a call takes."""
    begin = perf_counter_ns()
    run()
    return float(perf_counter_ns() - begin)


def targets(memory: Memory, conversations: int, count: int, seed: int) -> list[tuple[Conversation, int]]:
    """Return conversations and seqs of their own events, drawn without repetition."""
    generator = random.Random(seed)
    chats = workloads.handles(memory, conversations)
    seqs = generator.sample(range(1, memory.head + 1), count)
    return [(generator.choice(chats), seq) for seq in seqs]


def at_samples(memory: Memory, conversations: int, count: int, seed: int) -> list[float]:
    """Return how long it takes to read a whole window as it was at each of some random seqs."""
    chosen = targets(memory, conversations, count, seed)
    return [timed(lambda chat=chat, seq=seq: chat.at(seq).window()) for chat, seq in chosen]  # type: ignore[misc]


def at_rows(options: Options) -> Iterator[Row]:
    """Measure windows at random seqs, in one long conversation and in many."""
    for conversations in (1, workloads.WIDE):
        memory = options.stores.filled(conversations)
        passes = [at_samples(memory, conversations, options.sizes.targets, seed) for seed in range(PASSES)]
        said = f"{conversations} conversation{'s' if conversations > 1 else ''}"
        yield from judged(f"window at a random seq of {memory.head:,} events, {said}", passes, AT_NS)


def judged(job: str, passes: list[list[float]], limits: Limits) -> Iterator[Row]:
    """Return a row for the median and one for the slowest of a pass, each the median over the passes."""
    note = f"(median of {len(passes)} passes over {len(passes[0])} targets)"
    yield limited(f"{job}, p50", median([median(samples) for samples in passes]), limits[0], note)
    yield limited(f"{job}, slowest", median([max(samples) for samples in passes]), limits[1], note)


class Forks:
    """Forks of forks of a conversation, each with some events of its own."""

    def __init__(self, memory: Memory, events: int, prefix: str) -> None:
        self._memory = memory
        self._prefix = prefix
        self.chain = [memory.conversation("chat-0000")]
        self.firsts: list[int] = []
        """The first seq of each fork's own messages."""
        self.create_ns: list[float] = []
        for depth in range(FORK_DEPTH):
            self._fork(depth)
            self.firsts.append(memory.head + 1)
            workloads.append_batch(memory, self.chain[-1:], workloads.texts()[:events])

    def _fork(self, depth: int) -> None:
        begin = perf_counter_ns()
        fork = self.chain[-1].fork(f"{self._prefix}-{depth + 1}")
        self.create_ns.append(float(perf_counter_ns() - begin))
        self.chain.append(fork)

    def read_samples(self) -> list[float]:
        """Return how long each first read of the deepest fork takes, at every seq of its own messages."""
        deepest = self.chain[-1]
        return [timed(lambda seq=seq: deepest.at(seq).window()) for seq in range(self.firsts[-1], self._memory.head)]  # type: ignore[misc]


def fork_samples(memory: Memory, count: int, prefix: str, seed: int) -> list[float]:
    """Return how long it takes to fork a conversation at each of some random seqs."""
    chat = memory.conversation("chat-0000")
    seqs = random.Random(seed).sample(range(memory.head // 2, memory.head + 1), count)
    return [timed(lambda seq=seq: chat.fork(f"{prefix}-at-{seq}", at=seq)) for seq in seqs]  # type: ignore[misc]


def fork_rows(options: Options) -> Iterator[Row]:
    """Measure making forks and reading one five deep."""
    memory = options.stores.filled(workloads.WIDE)
    head = memory.head
    passes = [fork_samples(memory, options.sizes.targets, f"fork-{seed}", seed) for seed in range(PASSES)]
    note = f"(median of {PASSES} passes over {len(passes[0])} seqs; one durable commit each)"
    yield limited(f"fork at a random seq of {head:,} events", median([median(one) for one in passes]), FORK_NS, note)
    reads = [Forks(memory, options.sizes.fork_events, f"deep-{turn}").read_samples() for turn in range(PASSES)]
    own = options.sizes.fork_events
    job = f"first read of a fork {FORK_DEPTH} deep, {own} events each"
    yield from judged(job, reads, FORKED_NS)
