"""What becomes of each caller when a group is cut short: nobody is told one thing and written another."""

from pathlib import Path
from typing import Any

import pytest

from refold import InvalidInput, LimitExceeded, Memory
from refold.engine.transaction import Mutation
from refold.engine.writer import Ticket
from refold.fold import State
from refold.log.lmdb_log import LmdbTurn
from refold.log.protocol import TurnLost
from refold.views.scratchpad import NoteAdded
from tests.support.bounds import lowered
from tests.support.memories import remembering
from tests.support.seams import engine_of


def test_who_was_refused_in_an_overtaken_turn_is_decided_anew_and_told_what_is_so_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[str] = []
    write = LmdbTurn.write

    def overtaken_once(turn: LmdbTurn, *arguments: Any) -> int:
        attempts.append("write")
        if len(attempts) == 1:
            raise TurnLost("another process wrote while the map grew")
        return write(turn, *arguments)

    refusals = iter([InvalidInput("not this time")])

    def decide(_: State) -> NoteAdded:
        for refusal in refusals:
            raise refusal
        return NoteAdded((), "refused")

    with remembering(tmp_path / "store") as memory:
        memory.conversation("chat").scratchpad.note("before")
        monkeypatch.setattr(LmdbTurn, "write", overtaken_once)
        refused = Ticket(Mutation("conversation/a", decide))
        good = Ticket(Mutation("conversation/b", NoteAdded((), "good")))
        engine_of(memory).writer.write([refused, good])
        monkeypatch.undo()
        assert attempts == ["write", "write"]
        assert refused.error is None
        assert refused.recorded is not None
        assert good.recorded is not None
        assert memory.conversation("a").scratchpad.notes() == ["refused"]
        assert memory.conversation("b").scratchpad.notes() == ["good"]


def test_a_stream_found_open_for_an_event_that_was_refused_is_no_part_of_the_batch(memory: Memory) -> None:
    first, second = memory.conversation("first"), memory.conversation("second")
    first.append("user", "open", tokens=1)
    second.append("user", "open", tokens=1)
    with lowered(BATCH_EVENTS_MAX=1), memory.batch():
        first.append("user", "fits", tokens=1)
        with pytest.raises(LimitExceeded):
            second.append("user", "does not", tokens=1)
    assert [message.content for message in first.window()] == ["open", "fits"]
    assert [message.content for message in second.window()] == ["open"]
