"""Real sessions, edited by hand in their mirror, by Python and over MCP at once.

Nothing is lost, and the replay is the state.
"""

import asyncio
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom

import pytest
from mcp import Client

from refold import Memory
from refold.mirror import Mirror, mirror
from refold.views.profile import JournalAppended
from tests.mcp.servers import stdio
from tests.mcp.tour import call
from tests.mirror.files import day_path, facts_in, held, kept, put, put_facts, rendered, texts_of
from tests.support.memories import remembering
from tests.support.paths import DATA

AIRLINE = DATA / "tau-bench" / "gpt4o_airline_dev.jsonl"
DAYS = ["2026-11-21", "2026-11-22"]


def made_up(turns: int) -> list[str]:
    """What is said in a session that nobody has had."""
    return [f"turn {number} of a session\nwith a second line" for number in range(turns)]


def real(turns: int) -> list[str]:
    """What is said in real sessions."""
    if not AIRLINE.is_file():
        pytest.skip("the tau-bench trajectories are not on this machine")
    lines = AIRLINE.read_text(encoding="utf-8").splitlines()
    messages = [message for line in lines for message in json.loads(line)["traj"]]
    return [message["content"] for message in messages if message["content"]][:turns]


class Hand:
    """Somebody who edits the files the way editors and scripts do, and remembers what was written."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.directory = directory
        self.random = random
        self.lines: list[str] = []
        self.facts: dict[str, str] = {}
        self.older: dict[str, str] = {}

    def add_in_place(self) -> None:
        """Open a day's file, write behind its end, close it."""
        path = day_path(self.directory, self.random.choice(DAYS))
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{self.line()}\n")

    def rewrite(self) -> None:
        """Read a day's file, add a line anywhere, save it over the other."""
        path = day_path(self.directory, self.random.choice(DAYS))
        lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
        at = self.random.randint(min(2, len(lines)), len(lines))
        put(path, "\n".join([*lines[:at], self.line(), *lines[at:]]))

    def change(self) -> None:
        """Set a key of one's own in the file as it is."""
        self.set_in(facts_in(self.directory))

    def change_older(self) -> None:
        """Set a key in a copy that was read a while ago."""
        copy, self.older = self.older, facts_in(self.directory)
        self.set_in(copy | self.facts)

    def set_in(self, facts: dict[str, str]) -> None:
        key = f"hand {len(self.facts)}"
        self.facts[key] = f"value {len(self.facts)}"
        put_facts(self.directory, facts | {key: self.facts[key]})

    def line(self) -> str:
        self.lines.append(f"by hand {len(self.lines):04} end")
        return self.lines[-1]


WAYS = (Hand.add_in_place, Hand.rewrite, Hand.change, Hand.change_older)


def speak(memory: Memory, said: list[str], pause: Callable[[], object]) -> None:
    """What an agent does with a session: messages, notes by day, facts."""
    chat = memory.conversation("session", window_tokens=10_000_000)
    for number, text in enumerate(said):
        chat.append("user", text)
        memory.journal().append(f"note {number:04} {text}", day=DAYS[number % 2])
        memory.profile().set(f"fact {number % 7}", f"value {number}")
        pause()


def edit(hand: Hand, mirror: Mirror, edits: int, pause: Callable[[], object]) -> None:
    """Edit again and again; who reads a file that is half written by another editor tries again, as people do."""
    for _ in range(edits):
        with suppress(json.JSONDecodeError):
            hand.random.choice(WAYS)(hand)
        if hand.random.random() < 0.3:
            mirror.sync()
        pause()


def ask(store: Path, calls: int) -> None:
    """What a program does that knows the protocol alone: its server is a process of its own, on the same store."""

    async def work() -> None:
        async with Client(stdio("--db", str(store), "--conversation", "protocol")) as client:
            for number in range(calls):
                await call(client, "memory_set", {"key": f"protocol {number}", "value": f"value {number}"})
                await call(client, "journal_append", {"text": f"by protocol {number:04}"})
                await call(client, "memory_write", {"action": "note", "value": f"seen {number}"})

    asyncio.run(work())


def run(path: Path, said: list[str], edits: int, calls: int = 0) -> None:
    seed = SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    directory, meeting = path / "mirror", threading.Event()
    failed: list[BaseException] = []
    with remembering(path / "store") as memory:
        with memory.mirror(directory) as mirror:
            hand = Hand(directory, Random(seed))

            def guarded(work: Callable[[], None]) -> Callable[[], None]:
                def guard() -> None:
                    try:
                        work()
                    except BaseException as error:  # noqa: BLE001 - it is raised below, where it is seen
                        failed.append(error)

                return guard

            threads = [
                threading.Thread(target=guarded(lambda: speak(memory, said, lambda: meeting.wait(0.001)))),
                threading.Thread(target=guarded(lambda: edit(hand, mirror, edits, lambda: meeting.wait(0.002)))),
            ]
            if calls:
                threads.append(threading.Thread(target=guarded(lambda: ask(path / "store", calls))))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert failed == [], failed
        assert mirror.report.problems == ()
        assert_nothing_lost(memory, directory, hand, said)
        assert_protocol_kept(memory, directory, calls)
        with memory.mirror(directory) as mirror:
            assert not mirror.report


def assert_nothing_lost(memory: Memory, directory: Path, hand: Hand, said: list[str]) -> None:
    journal = "\n".join(text for day in DAYS for text in texts_of(memory, day))
    beside = "\n".join(kept(directory).values())
    for line in hand.lines:
        assert (journal.count(line), line in beside) in {(1, False), (1, True), (0, True)}, line
    for number, text in enumerate(said):
        assert texts_of(memory, DAYS[number % 2]).count(f"note {number:04} {text}") == 1
    facts = dict(memory.profile().items())
    for key, value in hand.facts.items():
        assert facts.get(key) == value or value in beside, key
    for number in range(min(7, len(said))):
        assert facts[f"fact {number}"] == f"value {max(range(number, len(said), 7))}"
    days = sorted({found.event.day for found in memory.events() if isinstance(found.event, JournalAppended)})
    assert held(directory) == rendered(memory, days)
    assert [message.content for message in memory.conversation("session").window()] == said


def assert_protocol_kept(memory: Memory, directory: Path, calls: int) -> None:
    noted = "".join(path.read_text(encoding="utf-8") for path in directory.glob("*/*.md"))
    facts = facts_in(directory)
    for number in range(calls):
        assert facts[f"protocol {number}"] == f"value {number}"
        assert noted.count(f"by protocol {number:04}\n") == 1
    assert memory.conversation("protocol").scratchpad.notes() == [f"seen {number}" for number in range(calls)]


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "_POLL_SECONDS", 0.01)


def test_a_session_edited_by_hand_and_by_python_at_once_loses_nothing(tmp_path: Path) -> None:
    run(tmp_path, made_up(40), 40)


@pytest.mark.slow
def test_a_session_edited_by_hand_by_python_and_by_protocol_at_once_loses_nothing(tmp_path: Path) -> None:
    run(tmp_path, made_up(80), 80, 40)


@pytest.mark.slow
def test_a_real_session_edited_by_hand_by_python_and_by_protocol_at_once_loses_nothing(tmp_path: Path) -> None:
    run(tmp_path, real(150), 150, 60)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_real_sessions_edited_for_long_lose_nothing(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        run(tmp_path / str(number), real(600), 600, 300)
