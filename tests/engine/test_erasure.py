"""Erasing: bytes are gone from every file, everything else stays where it is, and a receipt says what was reached."""

import base64
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold import Closed, InvalidInput, Memory, ReadOnly, Recorded, Snapshot, StoreError
from tests.support.bounds import Clock, lowered
from tests.support.memories import Child, assert_sound, refused
from tests.support.other_process import Elsewhere
from tests.support.seams import log_of, reader_of

SECRETS = ("my number is 4111-1111-1111-1111", "Frau M\u00fcller wohnt in der Beethovenstra\u00dfe 12", "x" * 5_000)
SMALL = {"CHECKPOINT_EVENTS": 3, "TAIL_EVENTS_MAX": 10, "PACKED_COUNT_MIN": 1}


def occurrences(directory: Path, secret: str) -> int:
    """How often a text stands in the files of a directory: as it is, in msgpack, JSON and base64."""
    raw = secret.encode()
    forms = {raw, msgspec.msgpack.encode(secret), msgspec.json.encode(secret), base64.b64encode(raw)}
    forms |= {base64.b64encode(bytes(shift) + raw)[4 : -4 or None] for shift in (1, 2)}
    content = contents(directory)
    return sum(content.count(form) for form in forms)


def contents(directory: Path) -> bytes:
    """The bytes of all files of a directory."""
    files = [str(path) for path in directory.rglob("*") if path.is_file()]
    # In another process: one that closes LMDB's lock file gives up its locks on it.
    return subprocess.run(["cat", *files], capture_output=True, check=True).stdout


def inode(directory: Path) -> int:
    """The number of the data file, which an erasure replaces."""
    return (directory / "data.mdb").stat().st_ino


def fill(memory: Memory, secret: str) -> None:
    """Writes a secret in every way a conversation can hold one, among much that is none."""
    for number in range(20):
        memory.conversation(f"other-{number % 3}").append("user", f"harmless message number {number}")
    chat = memory.conversation("chat-42", project="p")
    chat.append("user", secret)
    chat.append("assistant", [{"type": "text", "text": secret}], metadata={"about": secret}, name="n")
    chat.append("assistant", None, tool_calls=[{"id": "c", "function": {"name": "f", "arguments": secret}}])
    chat.append("tool", secret, tool_call_id="c")
    chat.scratchpad.set("key", secret)
    chat.scratchpad.set("key", "harmless value of a key")
    chat.scratchpad.note(secret)
    chat.state.set("k", {"deep": [secret]})
    chat.snapshot(f"named {secret}"[:100])
    memory.flush()
    for number in range(20):
        memory.conversation(f"other-{number % 3}").append("user", f"harmless message number {number}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture(params=["durable", "delayed"])
def memory(request: pytest.FixtureRequest, path: Path) -> Iterator[Memory]:
    with lowered(**SMALL):
        with Memory(path, durability=request.param, clock_ns=Clock()) as memory:
            yield memory
            live = assert_sound(memory)
        with Memory(path) as again:
            assert assert_sound(again) == live


@pytest.mark.parametrize("secret", SECRETS, ids=["digits", "letters", "long"])
def test_an_erased_conversation_is_gone_from_every_file(memory: Memory, path: Path, secret: str) -> None:
    fill(memory, secret)
    assert occurrences(path, secret) > 0
    before = memory.state_hash(at=20)
    others = {name: memory.conversation(name).messages() for name in memory.conversations() if name != "chat-42"}
    receipt = memory.conversation("chat-42").erase()
    memory.flush()
    assert occurrences(path, secret) == occurrences(path, "chat-42") == receipt.occurrences == 0
    assert receipt.markers > 0
    assert (receipt.derived, len(receipt.streams), receipt.searched_bytes > 0) == ((), 1, True)
    assert "chat-42" not in memory.conversations()
    assert [message.content for message in memory.conversation("chat-42").window()] == []
    assert memory.state_hash(at=20) == before
    assert {name: memory.conversation(name).messages() for name in others} == others
    name = receipt.streams[0].partition("/")[2]
    window = memory.conversation(name).window()
    assert [(message.role, message.content, message.erased) for message in window] == [
        ("user", None, True),
        ("assistant", None, True),
        ("assistant", None, True),
        ("tool", None, True),
    ]
    assert memory.snapshots() == []


def test_erased_messages_keep_their_place_and_no_window_moves(memory: Memory, path: Path) -> None:
    chat = memory.conversation("chat", window_tokens=60)
    messages = [
        chat.append("user", f"message number {number} of many, which is long", tokens=10) for number in range(30)
    ]
    before = [(message.id, message.tokens) for message in chat.window()]
    hashes = {seq: memory.state_hash(at=seq) for seq in (1, 5, 27)}
    receipt = memory.erase([messages[-2], messages[-1].seq, messages[27]])
    assert receipt.seqs == tuple(message.seq for message in messages[27:])
    assert [(message.id, message.tokens) for message in chat.window()] == before
    assert [message.content for message in chat.window()][-3:] == [None, None, None]
    assert {seq: memory.state_hash(at=seq) for seq in hashes} == hashes
    assert occurrences(path, "message number 28 of many") == occurrences(path, "message number 27 of many") == 0
    assert occurrences(path, "message number 26 of many") > 0
    assert chat.append("user", "and on it goes").seq == memory.head


def test_what_was_derived_goes_too_unless_it_is_to_be_kept(memory: Memory, path: Path) -> None:
    source = memory.conversation("a").append("user", "the patient's name is Ottokar")
    memory.conversation("b").scratchpad.note("Ottokar is the patient, it seems", sources=[source])
    derived = memory.head
    memory.profile().set("patient", "Ottokar, as noted in the summary", sources=[derived])
    assert memory.erase([source], derived="keep").derived == ()
    assert memory.conversation("b").scratchpad.notes() == ["Ottokar is the patient, it seems"]
    receipt = memory.erase([source])
    assert (receipt.seqs, receipt.derived) == ((), (derived, derived + 1))
    assert memory.conversation("b").scratchpad.notes() == []
    assert memory.profile().items() == []
    assert occurrences(path, "Ottokar") == 0


def test_a_conversation_whose_project_was_erased_takes_the_name_again(memory: Memory) -> None:
    chat = memory.conversation("a", project="a project with a name")
    chat.append("user", "hello")
    chat.state["project:language"] = "Python"
    opened = next(chat.events()).stamp.seq
    memory.erase([opened])
    for _ in range(2):
        again = memory.conversation("a", project="a project with a name")
        assert again.state["project:language"] == "Python"
        again.append("user", "and on it goes")
        again.state["project:language"] = "Python 3"
        again.state["project:language"] = "Python"
        fork = again.fork(f"fork {memory.head}")
        assert memory.conversation(fork.id, project="a project with a name").state["project:language"] == "Python"
        memory.flush()
    memory.conversation("b", project="p").append("user", "hello")
    with pytest.raises(InvalidInput, match="belongs to project 'p'"):
        memory.conversation("b", project="q")
    memory.conversation("c").append("user", "hello")
    with pytest.raises(InvalidInput, match="belongs to project None"):
        memory.conversation("c", project="q")


def name_everywhere(memory: Memory, name: str) -> None:
    """Write a conversation, and everything that may name it in other streams."""
    chat, project = memory.conversation(name, project="acme"), memory.project("acme")
    said = chat.append("user", "hello there")
    memory.add("The door is green.", source=name)
    project.add("The roof is flat.", source=said)
    project.upsert("The roof is flat, mostly.", threshold=0.1, source=name)
    project.record_episode("success", session=name, task="build")
    project.recall("roof", conversation=name)
    memory.settings.count_usage("skill_used", name="x", conversation=name)
    library = memory.skills.library
    library.learn("tag-a-release", "Tag a release.", "Run the tests.", sessions=[name])
    library.use("tag-a-release", succeeded=True, conversation=name)
    library.record((), query="release", conversation=name)
    memory.board(session=name).append_message({"content": "hi"})
    chat.snapshot("kept")
    memory.show(memory.context(chat))
    memory.tools.execute("memory_add", {"content": "The cellar is dry."}, memory.tools.context(chat), record=True)
    memory.conversation("other").restore(chat.snapshot())
    memory.fork("what if").conversation(name).append("user", "in the fork", request_id="once")


@pytest.mark.parametrize("name", ["a-conversation-with-a-long-id", "fifteen-bytes-x"])
def test_the_id_of_an_erased_conversation_is_in_no_byte_of_any_file(memory: Memory, path: Path, name: str) -> None:
    name_everywhere(memory, name)
    memory.flush()
    assert occurrences(path, name) > 0
    receipt = memory.conversation(name).erase(forks="erase")
    assert (receipt.naming, receipt.occurrences, occurrences(path, name)) == ((), 0, 0)
    memory.flush()
    memory.conversation("other").append("user", "and on it goes")
    assert occurrences(path, name) == 0


@pytest.mark.parametrize("name", ["a-conversation-with-a-long-id", "fifteen-bytes-x"])
def test_a_receipt_says_which_events_still_name_what_was_erased(memory: Memory, path: Path, name: str) -> None:
    name_everywhere(memory, name)
    receipt = memory.conversation(name).erase(derived="keep", forks="erase")
    assert occurrences(path, name) > 0
    kinds = {type(event).__name__ for event, _ in reader_of(memory).loader.recorded_events(receipt.naming)}
    assert kinds == {
        *("MemoryAdded", "MemoryMerged", "EpisodeRecorded", "MemoriesRecalled", "UsageCounted"),
        *("SkillLearned", "SkillUsed", "SkillsSelected", "BoardMessageAppended"),
    }
    assert memory.conversation(name).erase(forks="erase").naming == ()
    assert occurrences(path, name) == 0


def test_what_was_asked_before_the_first_message_goes_with_the_conversation(memory: Memory, path: Path) -> None:
    project, chat = memory.project("acme"), memory.conversation("a")
    project.add("The clinic opens at nine.")
    project.recall("when may Ottokar come to the clinic", conversation="a")
    project.recall("when does the clinic open", conversation="b")
    chat.append("user", "hello")
    project.recall("does Ottokar have to pay", conversation=chat.id)
    receipt = chat.erase()
    assert len(receipt.derived) == 2
    assert occurrences(path, "Ottokar") == 0
    assert occurrences(path, "when does the clinic open") > 0


def test_an_overwritten_value_does_not_come_back(memory: Memory) -> None:
    profile = memory.profile()
    profile.set("city", "the first value, to be forgotten")
    profile.set("city", "the second value, to be erased")
    memory.erase([memory.head])
    assert profile.get("city") is None


def test_live_forks_refuse_or_go_along(memory: Memory, path: Path) -> None:
    inherited = "a text that the fork has inherited"
    chat = memory.conversation("parent")
    chat.append("user", inherited)
    fork = chat.fork("child")
    fork.append("user", "something that the fork said itself")
    head = memory.head
    with pytest.raises(InvalidInput, match="conversation/child"):
        chat.erase()
    assert (memory.head, fork.window()[0].content) == (head, inherited)
    receipt = chat.erase(forks="erase")
    assert len(receipt.streams) == 2
    assert occurrences(path, inherited) == occurrences(path, "something that the fork said itself") == 0
    assert {"parent", "child"}.isdisjoint(memory.conversations())


def test_a_dropped_fork_refuses_nothing(memory: Memory, path: Path) -> None:
    chat = memory.conversation("parent")
    chat.append("user", "a text that is long enough")
    chat.fork("child").close(drop=True)
    assert len(chat.erase().streams) == 1
    assert occurrences(path, "a text that is long enough") == 0


def _forked(memory: Memory) -> None:
    chat = memory.conversation("parent").fork("child")
    chat.append("user", "a text of the child")
    memory.board(session="child").set_working_history("work of the child")


def _restored(memory: Memory) -> None:
    chat = memory.conversation("child")
    chat.append("user", "a text of the child")
    memory.board(session="child").set_working_history("work of the child")
    chat.restore(memory.conversation("parent").snapshot())


def _of_a_branch(memory: Memory) -> None:
    memory.fork("branch").conversation("parent").append("user", "a text of the child")
    memory.conversation("child").append("user", "soon replaced")
    memory.conversation("child").restore(memory.fork("branch").conversation("parent").snapshot())


@pytest.mark.parametrize("begin", [_forked, _restored, _of_a_branch])
def test_one_that_went_on_from_another_is_erased_and_stops_nobody(
    memory: Memory, path: Path, begin: Callable[[Memory], None]
) -> None:
    """Neither the conversation nor its board shows anything of the other one any more."""
    chat = memory.conversation("parent")
    chat.append("user", "a text of the parent")
    memory.board(session="parent").set_working_history("work of the parent")
    begin(memory)
    streams = memory.conversation("child").erase().streams
    assert "child" not in memory.conversations()
    for stream in streams:
        name = stream.partition("/")[2]
        assert (memory.conversation(name).window(), memory.board(session=name).get("working_history")) == ([], "")
    assert [message.content for message in chat.window()] == ["a text of the parent"]
    assert_sound(memory)
    assert chat.erase(forks="erase" if begin is _of_a_branch else "refuse").streams
    for text in ("a text of the parent", "work of the parent", "a text of the child", "work of the child"):
        assert occurrences(path, text) == 0
    assert_sound(memory)
    with Memory(path, readonly=True) as other:
        assert other.state_hash() == memory.state_hash()


def test_what_was_restored_from_it_is_reached_through_its_base(memory: Memory, path: Path) -> None:
    chat = memory.conversation("source")
    chat.append("user", "told in the first conversation")
    other = memory.conversation("other")
    other.restore(chat.snapshot())
    other.append("user", "told in the second conversation")
    memory.flush()
    memory.erase([2])
    assert [message.content for message in other.window()] == [None, "told in the second conversation"]
    assert occurrences(path, "told in the first conversation") == 0


def test_a_fork_of_the_memory_inherits_what_is_erased_and_its_name(memory: Memory, path: Path) -> None:
    chat = memory.conversation("shared")
    chat.append("user", "said before the memory was forked")
    fork = memory.fork("branch")
    fork.conversation("shared").append("user", "said in the fork of the memory")
    with pytest.raises(InvalidInput, match="inherited"):
        fork.conversation("shared").erase()
    with pytest.raises(InvalidInput, match="branch"):
        chat.erase()
    receipt = chat.erase(forks="erase")
    assert len(receipt.streams) == 1
    for text in ("said before the memory was forked", "said in the fork of the memory"):
        assert occurrences(path, text) == 0
    assert memory.conversations() == fork.conversations() == [receipt.streams[0].partition("/")[2]]
    assert fork.state_hash() == fork.replay_hash()
    fork.conversation("born here").append("user", "a message of the branch alone")
    assert fork.conversation("born here").erase().streams[0].startswith("conversation/erased-")
    assert occurrences(path, "a message of the branch alone") == 0


def test_one_message_of_a_whole_state_is_not_erased_without_the_others(memory: Memory) -> None:
    with Memory() as other:
        chat = other.conversation("first")
        for number in range(4):
            chat.append("user", f"message {number} of a state")
        states = [chat.snapshot().to_bytes()]
        chat.clear_window()
        chat.append("user", "the only message of a state")
        states.append(chat.snapshot().to_bytes())
        chat.scratchpad.note("a note of a state")
        states.append(chat.snapshot().to_bytes())
    said = memory.conversation("here").append("user", "said here")
    many, one, noted = (memory.conversation(f"copy {place}") for place in range(3))
    for copy, state in zip((many, one, noted), states, strict=True):
        copy.restore(Snapshot.from_bytes(state))
    messages, seq = many.window(), many.window()[1].seq
    with refused(memory, InvalidInput, "with 3 other messages", f"give the seq {seq} itself"):
        memory.erase([messages[1]])
    with refused(memory, InvalidInput, "with 2 other messages"):
        memory.erase([said, *messages[1:3]])
    with refused(memory, InvalidInput, "with its scratchpad and state", "the seq"):
        memory.erase(noted.window())
    assert memory.erase(one.window()).seqs == (one.window()[0].seq,)
    assert memory.erase([messages[1], seq]).seqs == (seq,)
    assert [message.content for message in many.window()] == [None] * 4
    assert memory.erase([messages[1]]).seqs == ()
    assert memory.erase([*noted.window(), noted.window()[0].seq]).seqs == (noted.window()[0].seq,)


def test_erasing_again_changes_nothing(memory: Memory) -> None:
    message = memory.conversation("a").append("user", "once")
    first, head = memory.erase([message]), memory.head
    again = memory.erase([message, head])
    assert (first.seqs, again.seqs, memory.head) == ((message.seq,), (), head)
    memory.conversation("never was").erase()
    assert memory.head == head


def test_erasing_a_whole_stream_again_changes_nothing(memory: Memory, path: Path) -> None:
    for name in ("a", "b", "c"):
        memory.conversation(name, project="p").append("user", f"{name} says something")
    fork = memory.conversation("a").fork("fork")
    fork.append("user", "and on it goes")
    side = memory.fork("side")
    side.conversation("b").append("user", "here, too")
    memory.table("t").put("key", {"value": 1})
    handles: list[Any] = [*map(memory.conversation, "abc"), memory.table("t")]
    for handle in handles:
        assert handle.erase(forks="erase").streams
    head, names, files = memory.head, memory.conversations(), inode(path)
    for _ in range(2):
        whole: list[Any] = [*map(memory.conversation, names), *map(memory.table, memory.tables())]
        for again in whole:
            receipt = again.erase(forks="erase")
            assert (receipt.seqs, receipt.streams) == ((), ())
    for again in map(side.conversation, side.conversations()):
        if again.id in names:
            with refused(memory, InvalidInput, "was inherited"):
                again.erase()
        else:
            assert not again.erase().streams
    assert (memory.head, memory.conversations(), inode(path)) == (head, names, files)
    later = [memory.conversation(name).append("user", "a new beginning").seq for name in names]
    assert {*later} <= {seq for name in names for seq in memory.conversation(name).erase(forks="erase").seqs}
    assert_sound(memory)


def test_what_an_erasure_kept_is_taken_by_the_next_one(memory: Memory) -> None:
    chat = memory.conversation("a")
    seq = chat.append("assistant", None, tool_calls=[{"id": "call", "function": {"name": "f", "arguments": "{}"}}]).seq
    kept = memory.project("p").add("It was learned there.", sources=[seq])
    assert kept.seq not in chat.erase(derived="keep").derived
    chat = memory.conversation(memory.conversations()[0])
    head = memory.head
    assert chat.erase(derived="keep").derived == ()
    assert memory.head == head
    assert chat.erase().derived == (kept.seq,)
    head = memory.head
    assert chat.erase().derived == ()
    assert memory.head == head


def test_many_streams_are_erased_at_once(memory: Memory, path: Path) -> None:
    project, secret = memory.project("shop/bob"), "Fern Road 12"
    for name in ("bob-1", "bob-2", "eve-1"):
        chat = memory.conversation(name, project="shop/bob" if name[0] == "b" else "shop/eve")
        seq = chat.append("user", secret if name[0] == "b" else "hello").seq
        chat.scratchpad.set("place", f"{name} in {secret}" if name[0] == "b" else "none")
    project.add(secret, sources=[1])
    board = memory.board(session="desk")
    board.initialise(project_id="shop/bob", active_node_id="case-7")
    memory.board(project="shop/bob", node="case-7").set_working_history(secret)
    memory.profile("bob").set("address", secret)
    memory.journal("bob").append(secret)
    memory.files("bob").create("/memories/bob.md", secret)
    memory.table("carts").put("bob", {"to": secret})
    note = memory.project("shop/eve").add(f"Bob lives in {secret}.")
    handles: list[Any] = [memory.conversation(name) for name in ("bob-1", "bob-2")]
    handles += [
        board,
        project,
        memory.profile("bob"),
        memory.journal("bob"),
        memory.files("bob"),
        memory.table("carts"),
    ]
    head = memory.head
    receipt = memory.erase([*handles, note, seq])
    assert memory.head == head + 1, "one erasure is one event"
    assert len(receipt.streams) == len(handles) + 1, receipt.streams
    assert {note.seq, seq} < {*receipt.seqs}
    assert (receipt.occurrences, receipt.unexplained) == (0, 0)
    for text in (secret, "bob-1", "shop/bob", "shop%2Fbob", "case-7"):
        assert text.encode() not in contents(path), text
    assert memory.conversation("eve-1").scratchpad.get("place") == "none"
    assert memory.erase(handles).seqs == ()
    assert memory.head == head + 1
    assert_sound(memory)


def test_streams_erased_at_once_are_what_they_are_one_by_one(tmp_path: Path) -> None:
    def filled(path: Path) -> Memory:
        memory = Memory(path, clock_ns=lambda: 10**18, random_bytes=bytes)
        for name in ("a", "b", "c"):
            memory.conversation(name, project="p").append("user", f"{name} says something")
        memory.project("p").add("They talk.", sources=[1])
        return memory

    with filled(tmp_path / "one") as one, filled(tmp_path / "other") as other:
        together = one.erase([one.conversation("a"), one.conversation("b")])
        apart = [other.conversation(name).erase() for name in ("a", "b")]
        assert {*together.seqs, *together.derived} == {seq for each in apart for seq in (*each.seqs, *each.derived)}
        assert [*together.streams] == [stream for each in apart for stream in each.streams]
        assert one.conversations() == other.conversations()


def test_forks_that_are_erased_too_refuse_nothing(memory: Memory) -> None:
    chat = memory.conversation("a")
    chat.append("user", "once")
    forks = [chat.fork("b"), chat.fork("c")]
    with refused(memory, InvalidInput, "b and 1 more go on", "forks='erase'"):
        memory.erase([chat])
    with refused(memory, InvalidInput, "c goes on"):
        memory.erase([chat, forks[0]])
    with refused(memory, InvalidInput, "is of another memory"):
        memory.erase([Memory().conversation("a")])
    with refused(memory, ReadOnly, "frozen"):
        memory.erase([chat.at(1)])
    with refused(memory, InvalidInput, "is no seq"):
        memory.erase([memory.settings])
    assert len(memory.erase([chat, *forks]).streams) == 3
    side = memory.fork("side")
    own = side.conversation("new")
    own.append("user", "only here")
    assert len(memory.erase([own]).streams) == 1
    assert len(memory.erase([memory.conversation(memory.conversations()[0])], forks="erase").streams) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda memory: memory.erase([0]),
        lambda memory: memory.erase([3]),
        lambda memory: memory.erase(["1"]),
        lambda memory: memory.erase([True]),
        lambda memory: memory.erase("1"),
        lambda memory: memory.erase(1),
        lambda memory: memory.erase([1], derived="maybe"),
        lambda memory: memory.conversation("a").erase(forks="keep"),
        lambda memory: memory.conversation("a").erase(derived=True),
    ],
)
def test_bad_input_changes_nothing(memory: Memory, call: Any) -> None:
    memory.conversation("a").append("user", "one")
    before = memory.state_hash()
    with pytest.raises(InvalidInput):
        call(memory)
    assert (memory.head, memory.state_hash()) == (2, before)


def test_where_it_cannot_be_asked_for(memory: Memory, path: Path) -> None:
    chat = memory.conversation("a")
    chat.append("user", "one")
    with pytest.raises(ReadOnly):
        memory.at(1).erase([1])
    with pytest.raises(ReadOnly):
        chat.at(1).erase()
    with memory.batch(), pytest.raises(InvalidInput):
        memory.erase([1])
    with Memory(path, readonly=True) as reader, pytest.raises(ReadOnly):
        reader.erase([1])
    assert memory.head == 2


def test_a_file_of_few_large_commits_is_sound_afterwards(path: Path) -> None:
    """The clean copy is made in more transactions than the file had commits."""
    with Memory(path) as memory:
        with memory.batch():
            for number in range(20):
                memory.table("t").put(f"key {number}", bytes([number]) * 2_000_000)
        memory.erase([5])
        assert_sound(memory)
    with Memory(path) as memory:
        assert len(memory.table("t").keys()) == 19
        assert_sound(memory)


def test_in_ram() -> None:
    with Memory() as memory:
        fill(memory, SECRETS[0])
        receipt = memory.conversation("chat-42").erase()
        assert (receipt.occurrences, receipt.markers > 0) == (0, True)
        assert_sound(memory)


def test_beside_a_reader_of_this_process(memory: Memory, path: Path) -> None:
    fill(memory, SECRETS[0])
    with Memory(path, readonly=True) as reader:
        assert reader.conversation("chat-42").window()
        memory.conversation("chat-42").erase()
        assert occurrences(path, SECRETS[0]) == 0
        assert "chat-42" not in reader.conversations()
        memory.conversation("a").append("user", "after it")
        log_of(memory).durability.flush()
        assert [message.content for message in reader.conversation("a").window()] == ["after it"]
        assert (reader.head, reader.state_hash()) == (memory.head, memory.state_hash())


def test_beside_another_process_which_goes_on_in_the_new_file(path: Path) -> None:
    with Elsewhere(Clock()) as elsewhere, Memory(path) as memory:
        chat = memory.conversation("a")
        first = chat.append("user", SECRETS[0])
        other: Any = elsewhere.opened(path, {}, 2)
        assert [message.content for message in other.conversation("a").window()] == [SECRETS[0]]
        for number in range(3):
            assert memory.erase([first]).occurrences == 0
            assert occurrences(path, SECRETS[0]) == 0
            assert SECRETS[0] not in [message.content for message in other.conversation("a").window()]
            written = other.conversation("a").append("user", f"the other one writes, {number}")
            assert chat.window()[-1].content == f"the other one writes, {number}"
            first = chat.append("user", SECRETS[0])
            assert first.seq > written.seq
            assert other.conversation("a").window()[-1].content == SECRETS[0]
            assert (other.head, other.state_hash()) == (memory.head, memory.state_hash())
        other.conversation("b").append("user", SECRETS[1])
        other.flush()
        memory.conversation("b").erase()
        other.flush()
        other.conversation("c").append("user", "of which it keeps nothing")
        other.flush()
        assert occurrences(path, SECRETS[1]) == 0
        elsewhere.shut()
        assert_sound(memory)


ERASER = """
import sys
from refold import Memory
with Memory(sys.argv[1]) as memory:
    chat = memory.conversation(sys.argv[2])
    print("go", flush=True)
    while not sys.stdin.readline():
        pass
    for number in range(30):
        message = chat.append("user", f"message {number} of {sys.argv[2]}, which is erased")
        chat.append("user", f"message {number} of {sys.argv[2]}")
        memory.erase([message])
    print(len(chat.window()), flush=True)
"""


def test_two_processes_erase_and_a_third_reads(path: Path) -> None:
    with Memory(path) as memory:
        chats = {name: memory.conversation(name) for name in ("one", "two")}
        with Child(ERASER, str(path), "one") as one, Child(ERASER, str(path), "two") as two:
            assert (one.read(), two.read()) == ("go", "go")
            one.write("go")
            two.write("go")
            seen = dict.fromkeys(chats, 0)
            while min(seen.values()) < 60:
                for name, chat in chats.items():
                    found = len(chat.window())
                    assert found >= seen[name]
                    seen[name] = found
            assert (one.read(), two.read()) == ("60", "60")
        texts = [str(message.content) for chat in chats.values() for message in chat.window()]
        assert sorted(text for text in texts if text.startswith("message")) == sorted(
            f"message {number} of {name}" for number in range(30) for name in chats
        )
        assert occurrences(path, "which is erased") == 0
        assert_sound(memory)


OPENER = """
import sys
from refold import Memory
print("go", flush=True)
while not sys.stdin.readline():
    pass
for number in range(30):
    with Memory(sys.argv[1]) as memory:
        memory.conversation("writer").append("user", f"message {number} of the other")
print("done", flush=True)
"""


def test_a_process_that_opens_and_writes_throughout_loses_nothing(path: Path) -> None:
    with Memory(path) as memory, Child(OPENER, str(path)) as child:
        assert child.read() == "go"
        chat = memory.conversation("mine")
        child.write("go")
        for number in range(15):
            memory.erase([chat.append("user", f"a message to be erased, number {number}")])
        assert child.read() == "done"
        assert len(memory.conversation("writer").window()) == 30
        assert_sound(memory)


DYING = """
import os, sys
from refold import Memory
from refold.log import environment
with Memory(sys.argv[1]) as memory:
    seq = memory.conversation("a").append("user", sys.argv[2]).seq
    count, place = 0, environment.Turnstile.count_replacement
    def die(self):
        global count
        count += 1
        if count == int(sys.argv[3]):
            os._exit(9)
        place(self)
        if count == int(sys.argv[3]) + 1:
            os._exit(9)
    environment.Turnstile.count_replacement = die
    memory.erase([seq])
"""


@pytest.mark.parametrize("times", [0, 1, 2])
def test_one_that_is_killed_where_the_file_is_replaced_leaves_the_others_going_on(path: Path, times: int) -> None:
    with Memory(path) as memory:
        memory.conversation("a").append("user", "kept")
        with Child(DYING, str(path), SECRETS[0], str(times)) as child:
            assert child.read() == ""  # It has ended.
        left = memory.conversation("a").window()[1]
        assert (left.content, left.erased) == ((None, True) if times == 2 else (SECRETS[0], False))
        with Elsewhere(Clock()) as elsewhere:
            other: Any = elsewhere.opened(path, {}, 2)
            other.conversation("a").append("user", "of another")
            assert [message.content for message in memory.conversation("a").window()][::2] == ["kept", "of another"]
            memory.conversation("a").append("user", "of this one")
            assert other.conversation("a").window()[-1].content == "of this one"
            elsewhere.shut()
        memory.erase([3])
        assert occurrences(path, SECRETS[0]) == 0
        assert_sound(memory)


def test_other_threads_read_and_write_meanwhile(path: Path) -> None:
    with Memory(path) as memory:
        fill(memory, SECRETS[0])
        stop, failures = threading.Event(), list[BaseException]()

        def use(number: int) -> None:
            try:
                while not stop.is_set():
                    memory.conversation(f"thread-{number}").append("user", "written meanwhile")
                    assert memory.conversation("other-1").window()
                    assert memory.state_hash()
            except BaseException as error:  # noqa: BLE001 - told to the thread that waits
                failures.append(error)

        threads = [threading.Thread(target=use, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            memory.erase([memory.conversation("mine").append("user", "written to be erased")])
        memory.conversation("chat-42").erase()
        stop.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert_sound(memory)
        assert occurrences(path, SECRETS[0]) == 0


def test_subscribers_hear_of_it(path: Path) -> None:
    with Memory(path) as memory:
        heard, is_erased = list[str](), threading.Event()

        def hear(recorded: Recorded) -> None:
            heard.append(type(recorded.event).__name__)
            if heard[-1] == "Erased":
                is_erased.set()

        with memory.subscribe(hear):
            memory.conversation("a").append("user", "heard and then erased")
            memory.erase([2])
            assert is_erased.wait(60)
        assert heard == ["ConversationOpened", "MessageAppended", "Erased"]


def test_a_closed_memory_erases_nothing(path: Path) -> None:
    with Memory(path) as memory:
        memory.conversation("a").append("user", "one")
    with pytest.raises(Closed):
        memory.erase([1])
    with pytest.raises(Closed):
        memory.conversation("a").erase()


def test_a_witness_that_cannot_be_told_stops_no_erasure(path: Path, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    memory = Memory(path, witness=witness)
    memory.conversation("a").append("user", "a text that is to be erased")
    witness.unlink()
    assert memory.erase([2]).seqs == (2,)
    assert occurrences(path, "a text that is to be erased") == 0
    with pytest.raises(StoreError, match="gone"):
        memory.close()
    with Memory(path) as again:
        assert_sound(again)


@pytest.mark.parametrize(
    "secret", ['p"w 1234', "C:\\keys\\a", "-----BEGIN\nMIIE\n-----END", "\u00fcber 1234", "tab\tand \u4e2d\u6587"]
)
def test_a_text_is_erased_where_json_escapes_it(tmp_path: Path, secret: str) -> None:
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("chat")
        for arguments in (json.dumps({"q": secret}), json.dumps({"q": secret}, ensure_ascii=False)):
            for given in (arguments, json.dumps({"inner": arguments})):
                call_id = f"c{memory.head}"
                call = {"id": call_id, "type": "function", "function": {"name": "add", "arguments": given}}
                chat.append("assistant", None, tool_calls=[call])
                chat.append("tool", "done", tool_call_id=call_id)
                memory.add(f"It was asked: {given}")
        harmless = chat.append("user", "harmless")
        memory.erase(text=secret)
        assert harmless in chat.window()
        assert memory.project().count() == 0
        for form in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
            assert occurrences(tmp_path / "store", form) == 0
        assert_sound(memory)


def test_a_receipt_says_which_names_hold_the_text(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.conversation("ann-49151").append("user", "call ann-49151, please")
        memory.conversation("other").append("user", "call ann-49151, please")
        memory.table("users/ann-49151").put("key", 1)
        memory.fork("branch").project("ann-49151").add("Likes tea.")
        receipt = memory.erase(text="ann-49151")
        assert len(receipt.seqs) == 2
        assert receipt.named == ("conversation/ann-49151", "project/ann-49151", "table/users/ann-49151")
        assert memory.erase([receipt.seqs[0]]).named == ()
        memory.conversation("ann-49151").erase(forks="erase")
        memory.table("users/ann-49151").erase(forks="erase")
        memory.fork("branch").project("ann-49151").erase()
        assert memory.erase(text="ann-49151").named == ()
        assert occurrences(tmp_path / "store", "ann-49151") == 0
