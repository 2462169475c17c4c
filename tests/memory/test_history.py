"""History: every message that a conversation ever held, and single messages and events by id or seq."""

from contextlib import suppress
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from refold import InvalidInput, LimitExceeded, Memory, NotFound
from refold.memory.conversation import Conversation
from refold.message import Message, MessageAppended, MessageReplaced
from refold.views.window import POLICIES, Window, WindowResized


def texts(chat: Conversation, **options: object) -> list[object]:
    return [message.content for message in chat.history(**options)]  # type: ignore[arg-type]


def test_history_holds_what_has_left_the_window() -> None:
    chat = Memory().conversation("chat", window_tokens=3)
    for number in range(10):
        chat.append("user", f"{number}", tokens=1)
    assert [message.content for message in chat.window()] == ["7", "8", "9"]
    assert texts(chat) == [f"{number}" for number in range(10)]


def test_a_page_is_of_the_newest_messages_between_two_seqs() -> None:
    chat = Memory().conversation("chat", window_tokens=3)
    appended = [chat.append("user", f"{number}", tokens=1) for number in range(10)]
    assert texts(chat, limit=2) == ["8", "9"], "the newest"
    assert texts(chat, limit=2, before=appended[8].seq) == ["6", "7"]
    assert texts(chat, limit=2, after=appended[3].seq) == ["8", "9"]
    assert texts(chat, after=appended[3].seq, before=appended[6].seq) == ["4", "5"]
    assert texts(chat, limit=0) == []
    assert texts(chat, after=appended[-1].seq) == []


def test_pages_are_longer_than_one_read() -> None:
    memory = Memory()
    chat = memory.conversation("chat", window_tokens=3)
    with memory.batch():
        for number in range(1_000):
            chat.append("user", f"{number}", tokens=1)
            chat.scratchpad.set("key", f"{number}")
    assert texts(chat, limit=700) == [f"{number}" for number in range(300, 1_000)]
    last = chat.history(limit=700)[0]
    assert texts(chat, limit=700, before=last.seq) == [f"{number}" for number in range(300)]


def test_a_fork_goes_on_from_the_history_of_its_base() -> None:
    chat = Memory().conversation("chat", window_tokens=2)
    kept = [chat.append("user", text, tokens=1) for text in ("a", "b", "c")]
    fork = chat.fork("fork", at=kept[1].seq)
    chat.append("user", "d", tokens=1)
    fork.append("user", "e", tokens=1)
    assert texts(fork) == ["a", "b", "e"]
    assert texts(fork.fork("again"), limit=2) == ["b", "e"]
    assert texts(chat) == ["a", "b", "c", "d"]


def test_a_state_restored_from_elsewhere_brings_its_messages() -> None:
    memory = Memory()
    one, two = memory.conversation("one"), memory.conversation("two")
    one.append("user", "a")
    two.append("user", "b")
    one.append("user", "c")
    two.restore(one.snapshot())
    two.append("user", "d")
    assert texts(two) == ["a", "b", "c", "d"], "in the order in which they were said"
    other = Memory().conversation("imported")
    other.restore(type(two.snapshot()).from_bytes(two.snapshot().to_bytes()))
    assert texts(other) == ["a", "c", "d"], "of another store, what was in the window"


def test_an_earlier_moment_has_its_own_history() -> None:
    memory = Memory()
    chat = memory.conversation("chat")
    first = chat.append("user", "a")
    chat.append("user", "b")
    assert first.seq is not None
    assert texts(chat.at(first.seq)) == ["a"]
    assert texts(chat.at(0)) == []
    fork = memory.fork("branch", at=first.seq).conversation("chat")
    fork.append("user", "c")
    assert texts(fork) == ["a", "c"]


def test_an_open_batch_sees_its_own_messages() -> None:
    memory = Memory()
    chat = memory.conversation("chat")
    chat.append("user", "a")
    with memory.batch():
        chat.append("user", "b")
        assert texts(chat) == ["a", "b"]
        assert texts(chat, limit=1) == ["b"]


def test_an_erased_message_keeps_its_place() -> None:
    memory = Memory()
    chat = memory.conversation("chat")
    secret = chat.append("user", "secret")
    chat.append("user", "b")
    memory.erase([secret])
    assert texts(chat) == [None, "b"]


@pytest.mark.parametrize("options", [{"after": -1}, {"before": -1}, {"limit": -1}, {"limit": "2"}, {"after": "x"}])
def test_bad_bounds_are_refused(options: dict[str, object]) -> None:
    chat = Memory().conversation("chat")
    with pytest.raises(InvalidInput):
        texts(chat, **options)


def test_one_message_is_found_by_its_id_or_seq() -> None:
    chat = Memory().conversation("chat", window_tokens=1)
    gone, live = chat.append("user", "gone", tokens=1), chat.append("user", "live", tokens=1)
    for message in (gone, live):
        assert chat.message(message.id) == message
        assert message.seq is not None
        assert chat.message(message.seq) == message
    assert chat.message("unknown") is None
    assert chat.message(10**6) is None
    assert chat.fork("fork").message(gone.id) == gone


def test_one_event_is_read_by_its_seq() -> None:
    memory = Memory()
    message = memory.conversation("chat").append("user", "a")
    assert message.seq is not None
    event, stamp = memory.event(message.seq)
    assert (event, stamp) == (message.event, message.stamp)
    assert [memory.event(seq).stamp.seq for seq in range(1, memory.head + 1)] == list(range(1, memory.head + 1))
    with pytest.raises(NotFound, match="seq 99"):
        memory.event(99)
    with pytest.raises(NotFound, match=f"seq {message.seq}"):
        memory.at(message.seq - 1).event(message.seq)
    with pytest.raises(InvalidInput):
        memory.event(0)


def test_one_branch_reads_no_event_of_another() -> None:
    memory = Memory()
    memory.conversation("chat").append("user", "a")
    fork = memory.fork("branch")
    own = fork.conversation("chat").append("user", "b")
    later = memory.conversation("chat").append("user", "c")
    assert own.seq is not None
    assert later.seq is not None
    assert fork.event(own.seq).stamp == own.stamp
    with pytest.raises(NotFound):
        memory.event(own.seq)
    with pytest.raises(NotFound):
        fork.event(later.seq)


STEPS = st.lists(st.sampled_from(("append", "fork", "restore", "set", "clear")), max_size=40)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(0, 12))
@example(["append", "fork", "append", "append", "restore", "restore"], 0)
def test_history_is_what_was_said_on_the_way_to_the_state(steps: list[str], limit: int) -> None:
    memory = Memory()
    chats = [memory.conversation("c0", window_tokens=4)]
    said: list[dict[int, str]] = [{}]  # Of each conversation: seq -> text.
    for number, step in enumerate(steps):
        place = number % len(chats)
        chat = chats[place]
        match step:
            case "append":
                message = chat.append("user", f"m{number}", tokens=1)
                assert message.seq is not None
                said[place][message.seq] = f"m{number}"
            case "fork":
                chats.append(chat.fork(f"c{len(chats)}"))
                said.append(dict(said[place]))
            case "restore":
                other = (place + 1) % len(chats)
                before = memory.head
                chat.restore(chats[other].snapshot(), keep_budget=True)
                if memory.head > before:  # Where the states are equal nothing is restored.
                    said[place] |= said[other]
            case "set":
                chat.scratchpad.set("key", f"{number}")
            case _:
                chat.clear_window()
    for chat, expected in zip(chats, said, strict=True):
        wanted = [expected[seq] for seq in sorted(expected)]
        assert texts(chat) == wanted
        assert texts(chat, limit=limit) == wanted[max(len(wanted) - limit, 0) :]
        assert {message.id for message in chat.window()} <= {message.id for message in chat.history()}


def test_an_open_batch_sees_what_it_has_restored() -> None:
    memory = Memory()
    chat, other = memory.conversation("chat"), memory.conversation("other")
    said = other.append("user", "elsewhere")
    chat.append("user", "a")
    snapshot = other.snapshot()
    with memory.batch():
        chat.restore(snapshot)
        chat.append("user", "b")
        assert texts(chat) == ["elsewhere", "a", "b"]
        assert chat.message(said.id) is not None
    assert texts(chat) == ["elsewhere", "a", "b"]


def test_a_step_of_a_replay_has_the_tokens_and_the_budget_after_it(memory: Memory) -> None:
    chat = memory.conversation("chat", window_tokens=8)
    chat.append("user", "one", tokens=3)
    memory.conversation("chat").set_window_tokens(10)
    for tokens in (4, 5):
        chat.append("user", "more", tokens=tokens)
    fork = chat.fork("fork")
    fork.append("user", "in the fork", tokens=2)
    for each in (chat, fork):
        steps = list(each.replay())
        reads = [(step.after.token_count(), step.after.window_tokens) for step in steps]
        assert [(step.tokens, step.window_tokens) for step in steps] == reads
    assert (steps[-1].tokens, steps[-1].window_tokens) == (7, 10)


def at_random(memory: Memory, eviction: str, dice: Random) -> Conversation:
    """A conversation in which whatever moves a window has happened."""
    chat = memory.conversation("chat", window_tokens=60, eviction=eviction)
    ids: list[str] = []
    for number in range(60):
        live = chat.window()
        one = dice.choice(live) if live else None
        with suppress(LimitExceeded):  # More is pinned than there is room for.
            match dice.randrange(12):
                case 0 if one is not None:
                    chat.replace(one, f"other words {number}", tokens=dice.randrange(1, 20))
                case 1 if one is not None:
                    chat.remove(one)
                case 2 if one is not None and one.tokens < 10:
                    (chat.unpin if one.pinned else chat.pin)(one)
                case 3 if one is not None and eviction == "least-important":
                    chat.rate(one, dice.random())
                case 4:
                    chat.scratchpad.set("key", str(number))
                case 5 | 6:
                    ids.append(f"c{number}")
                    call = {"id": ids[-1], "function": {"name": "f", "arguments": "{}"}}
                    chat.append("assistant", None, tool_calls=[call], tokens=dice.randrange(1, 20))
                case 7 | 8 if ids:
                    chat.append("tool", "done", tool_call_id=dice.choice(ids), tokens=dice.randrange(1, 20))
                case _:
                    chat.append("user", f"message {number}", tokens=dice.randrange(1, 80), pinned=dice.random() < 0.03)
        if number == 20:
            chat.snapshot("then")
        elif number == 40:
            chat.restore("then")
        elif number == 50:
            with suppress(LimitExceeded):
                chat.set_window_tokens(45)
    return chat


@pytest.mark.parametrize("eviction", POLICIES)
@pytest.mark.parametrize("seed", range(4))
def test_a_step_has_what_moved_between_the_windows_around_it(eviction: str, seed: int) -> None:
    memory = Memory()
    chat = at_random(memory, eviction, Random(seed))
    for source in (chat, memory.what_if(window_tokens=20).conversation("chat")):
        for step in source.replay():
            before, after = ({each.id: each for each in side.window()} for side in (step.before, step.after))
            moved = [(name, before.get(name), after.get(name)) for name in dict.fromkeys((*before, *after))]
            changes = [each for each in step.changes if each.view == "window" and each.path[0] == "messages"]
            assert {each.path[1] for each in changes} == {name for name, old, new in moved if old != new}
            assert {each.path[1] for each in changes if len(each.path) == 2 and each.after is None} == {
                name for name, old, new in moved if new is None
            }
            pushed = isinstance(step.event, (MessageAppended, MessageReplaced, WindowResized))
            left = [old for _, old, new in moved if old is not None and new is None] if pushed else []
            assert [each for each in step.evicted if each.id in before] == left
            assert step.tokens == sum(each.tokens for each in after.values())


def test_a_replay_takes_no_time_for_the_messages_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    chat = memory.conversation("chat", window_tokens=100)
    for number in range(200):
        chat.append("user", f"message {number}", tokens=2)
    walks = 0
    walk = Window.live

    def counted(window: Window) -> list[Message]:
        nonlocal walks
        walks += 1
        return walk(window)

    monkeypatch.setattr(Window, "live", counted)
    steps = list(chat.replay())
    assert (len(steps), walks) == (201, 2), "for the state before the first event, and for the opening"
    assert [len(step.evicted) for step in steps] == [0] * 51 + [1] * 150
