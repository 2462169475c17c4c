"""Windows at random seqs, forks and openings after a kill: each read gives what a fold from zero gives."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import workloads
from rounds import Job, Measure
from rows import startup, travel

from refold import Memory

SEED = 7


@pytest.fixture(params=[1, workloads.WIDE])
def memory(request: pytest.FixtureRequest, sizes: workloads.Sizes, tmp_path: Path) -> Iterator[Memory]:
    with workloads.fill(tmp_path / "filled", sizes.log_events, request.param, sizes.batch_events) as filled:
        yield filled


def folded_contents(memory: Memory, name: str, seq: int) -> list[str]:
    """Return the texts that fit the window at a seq, found by counting tokens over the whole conversation."""
    appended = [pair for pair in memory.conversation(name).events() if pair.stamp.seq <= seq]
    tokens = 0
    kept: list[str] = []
    for event, _ in reversed(appended):
        tokens += getattr(event, "tokens", workloads.WINDOW_TOKENS + 1)
        if tokens > workloads.WINDOW_TOKENS:
            break
        kept.append(event.content)  # type: ignore[attr-defined]
    return kept[::-1]


def test_window_at_a_random_seq(memory: Memory, measure: Measure, sizes: workloads.Sizes) -> None:
    conversations = len(memory.conversations())
    seeds = count(SEED + 1)
    # Other targets in each round: a state that the engine has kept would answer at once.
    measure(Job(lambda: travel.at_samples(memory, conversations, sizes.targets, next(seeds)), sizes.targets))
    for chat, seq in travel.targets(memory, conversations, sizes.targets, SEED):
        found = [message.content for message in chat.at(seq).window()]
        assert found == folded_contents(memory, chat.id, seq)


def test_fork_at_a_random_seq(memory: Memory, measure: Measure, sizes: workloads.Sizes) -> None:
    chat = memory.conversation("chat-0000")
    runs = count(SEED)
    measure(Job(lambda: travel.fork_samples(memory, sizes.targets, f"fork-{next(runs)}", next(runs)), sizes.targets))
    forked = [name for name in memory.conversations() if name.startswith("fork-")]
    assert len(forked) >= sizes.targets
    for name in forked:
        seq = int(name.rpartition("-")[2])
        assert memory.conversation(name).window() == chat.at(seq).window()


def test_first_read_of_a_deep_fork(memory: Memory, measure: Measure, sizes: workloads.Sizes) -> None:
    made: list[travel.Forks] = []

    def prepare() -> None:
        made.append(travel.Forks(memory, sizes.fork_events, f"deep-{len(made)}"))

    def read() -> list[float]:
        return made[-1].read_samples()

    measure(Job(read, prepare=prepare))
    forks = made[-1]
    assert len(forks.chain) == travel.FORK_DEPTH + 1
    own = [text.content for text in workloads.texts()[: sizes.fork_events]] * travel.FORK_DEPTH
    deepest = [message.content for message in forks.chain[-1].window()]
    assert deepest[-len(own) :] == own[-len(deepest) :]


def test_open_after_a_kill(measure: Measure, sizes: workloads.Sizes, tmp_path: Path) -> None:
    path = tmp_path / "killed"
    startup.killed_store(path, sizes.log_events, workloads.WIDE)
    measure(Job(lambda: startup.open_killed(path)))
    opened = startup.open_killed(path)
    assert opened.head == sizes.log_events + workloads.WIDE
    with Memory(path) as memory:
        assert opened.messages == len(memory.conversation("chat-0000").window()) > 0
        assert memory.verify().ok
