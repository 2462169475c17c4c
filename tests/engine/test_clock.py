"""A clock that is far behind the newest event of the log: what is written and read meanwhile goes by the clock."""

import datetime
import logging
from pathlib import Path

import pytest

from refold import Memory
from refold.agent import CallableProvider, extract_idle
from refold.limits import CLOCK_BEHIND_NS
from tests.support.memories import BEGIN_NS, Clock, remembering

DAY = 86_400
DAY_NS = DAY * 10**9
YEARS = 3_650 * DAY
BEGIN = datetime.datetime.fromtimestamp(BEGIN_NS // 10**9, datetime.UTC)
TODAY = BEGIN.date().isoformat()


def glitch(memory: Memory, clock: Clock) -> None:
    """Write one message while the clock runs ten years ahead."""
    clock.advance(YEARS)
    memory.conversation("glitch").append("user", "Hello from 2036.", tokens=1)
    clock.advance(-YEARS)


def fill(memory: Memory) -> None:
    """Write something of each kind."""
    chat = memory.conversation("chat", project="p")
    chat.append("user", "What day is it?", tokens=1)
    memory.project("p").add("The demo is tomorrow.")
    memory.journal().append("The release was today.")
    with memory.batch():
        chat.append("assistant", "Monday.", tokens=1)
        memory.project("p").add("Ada likes tea.")
        chat.append("user", "long ago", tokens=1, occurred=BEGIN_NS - 5 * DAY_NS)
    memory.skills.library.learn(f"deploy-{memory.head}", "How to deploy.", "Push, then wait.")


@pytest.fixture
def clock() -> Clock:
    return Clock()


class TestFarBehind:
    def test_today_is_that_of_the_clock(self, clock: Clock) -> None:
        with remembering(clock_ns=clock) as memory:
            glitch(memory, clock)
            fill(memory)
            context = memory.context(memory.conversation("chat"), journal="default")
            text = "\n".join(str(message["content"]) for message in context.messages())
            assert TODAY in text
            assert str(BEGIN.year + 10) not in text
            assert [note.day for note in memory.journal().recent()] == [TODAY]
            assert memory.rebuild(memory.show(context)).matches

    def test_what_is_written_happened_when_the_clock_says(self, clock: Clock, tmp_path: Path) -> None:
        with remembering(tmp_path / "store", clock_ns=clock) as memory:
            glitch(memory, clock)
            newest_ns = BEGIN_NS + YEARS * 10**9
            before = memory.head
            fill(memory)
            events = list(memory.events(after=before))
            assert {event.stamp.time_ns for event in events} == {newest_ns}
            given = [event.stamp.occurred_ns for event in events if event.stamp.occurred_ns != BEGIN_NS]
            assert given == [BEGIN_NS - 5 * DAY_NS]
            for entry in memory.project("p").list():
                assert entry.created_ns == entry.updated_ns == entry.occurred_ns == entry.accessed_ns == BEGIN_NS
            assert [skill.created_ns for skill in memory.skills.library.list()] == [BEGIN_NS]

    def test_what_a_batch_returns_is_what_is_there(self, clock: Clock) -> None:
        with remembering(clock_ns=clock) as memory:
            glitch(memory, clock)
            with memory.batch():
                plain = memory.project().add("Ada likes tea.")
                given = memory.project().add("Ada moved to Oslo.", occurred=BEGIN_NS - DAY_NS)
                said = memory.conversation("chat").append("user", "x", tokens=1)
                learned = memory.skills.library.learn("deploy", "How to deploy.", "Push, then wait.")
            assert [memory.project().get(entry.id) for entry in (plain, given)] == [plain, given]
            assert (plain.created_ns, given.occurred_ns) == (BEGIN_NS, BEGIN_NS - DAY_NS)
            assert memory.conversation("chat").window() == [said]
            assert said.occurred_ns == BEGIN_NS
            assert memory.skills.library.get("deploy") == learned

    def test_an_update_does_not_move_what_happened(self, clock: Clock) -> None:
        with remembering(clock_ns=clock) as memory:
            entry = memory.project().add("Ada likes tea.", occurred=BEGIN_NS - 9 * DAY_NS)
            glitch(memory, clock)
            changed = memory.project().update(entry.id, content="Ada likes coffee.")
            assert (changed.occurred_ns, changed.updated_ns) == (entry.occurred_ns, BEGIN_NS)

    def test_a_frozen_handle_goes_by_the_clock_of_its_moment(self, clock: Clock) -> None:
        with remembering(clock_ns=clock) as memory:
            glitch(memory, clock)
            memory.journal().append("The release was today.")
            memory.table("t").put("k", 1, expires=datetime.timedelta(hours=1))
            assert [note.day for note in memory.at(memory.head).journal().recent()] == [TODAY]
            assert memory.at(memory.head).table("t").get("k") is not None
            clock.advance(2 * 3_600)
            assert memory.table("t").get("k") is None
            assert memory.table("t").expire() == 1

    def test_decay_goes_by_the_clock(self, clock: Clock) -> None:
        with remembering(clock_ns=clock) as memory:
            project = memory.project()
            old = project.add("Ada likes tea.", importance=0.8)
            glitch(memory, clock)
            new = project.add("Bo likes coffee.", importance=0.8)
            clock.advance(7 * DAY)
            assert project.decay().changed == 2
            assert [project.get(entry.id).importance for entry in (old, new)] == [pytest.approx(0.76)] * 2  # type: ignore[union-attr]

    def test_what_was_written_ahead_decays_from_the_next_pass_on(self, clock: Clock) -> None:
        with remembering(clock_ns=clock) as memory:
            project = memory.project()
            clock.advance(YEARS)
            ahead = project.add("Ada likes tea.", importance=0.8)
            clock.advance(-YEARS)
            given = project.add("Ada was born.", importance=0.8, occurred=BEGIN_NS - YEARS * 10**9)
            clock.advance(7 * DAY)
            assert project.decay().changed == 2
            assert project.decay().changed == 0
            clock.advance(7 * DAY)
            assert project.decay().changed == 2
            assert [project.get(entry.id).importance for entry in (ahead, given)] == [pytest.approx(0.76)] * 2  # type: ignore[union-attr]

    def test_an_idle_conversation_is_extracted(self, clock: Clock) -> None:
        with remembering(clock_ns=clock) as memory:
            glitch(memory, clock)
            memory.conversation("chat", project="p").append("user", "My name is Ada.", tokens=1)
            memory.conversation("given", project="p").append("user", "Mine is Bo.", tokens=1, occurred=BEGIN_NS)
            asked = CallableProvider(lambda _, __, ___: {"memories": []}, id="scripted")
            assert set(extract_idle(memory, asked, idle_seconds=60)) == {"glitch"}
            clock.advance(61)
            assert set(extract_idle(memory, asked, idle_seconds=60)) == {"chat", "given"}

    def test_an_export_and_a_load_keep_it(self, clock: Clock, tmp_path: Path) -> None:
        with remembering(tmp_path / "store", clock_ns=clock) as memory:
            glitch(memory, clock)
            fill(memory)
            memory.export(tmp_path / "out.jsonl")
            with Memory(tmp_path / "new", clock_ns=clock) as loaded:
                loaded.load(tmp_path / "out.jsonl")
                assert loaded.state_hash() == memory.state_hash()
                assert [event.stamp for event in loaded.events()] == [event.stamp for event in memory.events()]
            with Memory(tmp_path / "beside", clock_ns=clock) as beside:
                beside.journal("other").append("x")
                beside.load(tmp_path / "out.jsonl")
                occurred = [event.stamp.occurred_ns for event in memory.events()]
                assert [event.stamp.occurred_ns for event in beside.events()][1:] == occurred

    def test_of_an_hour_or_less_counts_as_the_newest_event(self, clock: Clock) -> None:
        for behind_ns, happened_ns in (
            (CLOCK_BEHIND_NS, BEGIN_NS),
            (CLOCK_BEHIND_NS + 1, BEGIN_NS - CLOCK_BEHIND_NS - 1),
        ):
            clock.now_ns = BEGIN_NS
            with remembering(clock_ns=clock) as memory:
                chat = memory.conversation("chat")
                chat.append("user", "one", tokens=1)
                clock.now_ns -= behind_ns
                said = chat.append("user", "two", tokens=1)
                assert (said.time_ns, said.occurred_ns) == (BEGIN_NS, happened_ns)
                assert chat.session.now_ns() == happened_ns

    def test_at_an_occurred_time_leaves_out_what_was_written_ahead(self, clock: Clock) -> None:
        with remembering(clock_ns=clock) as memory:
            glitch(memory, clock)
            memory.conversation("chat").append("user", "now", tokens=1)
            assert memory.at(occurred=BEGIN).conversations() == ["chat"]


class TestWarning:
    def test_is_logged_once_for_each_opening(
        self, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "refold")
        with Memory(tmp_path, clock_ns=clock) as memory:
            glitch(memory, clock)
        assert caplog.messages == []
        for _ in range(2):
            caplog.clear()
            with Memory(tmp_path, clock_ns=clock) as memory:
                fill(memory)
                memory.context(memory.conversation("chat"))
            assert len(caplog.messages) == 1
            assert "3,650 days ahead of this machine's clock" in caplog.messages[0]

    def test_is_part_of_health(self, clock: Clock) -> None:
        with Memory(clock_ns=clock) as memory:
            memory.journal().append("x")
            assert memory.health().warning == ""
            clock.advance(-2 * 3_600)
            health = memory.health()
            assert health.ok
            assert "2 h ahead of this machine's clock" in health.warning
