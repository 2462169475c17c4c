"""Every bound: what is over it is refused with its name and number, and what is just within it works."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from refold import InvalidInput, LimitExceeded, Memory, NotFound, Project, RefoldError, Snapshot, fold, limits
from tests.support.bounds import lowered
from tests.support.memories import cyclic, nested, refused, remembering

LAST_MOMENT = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
NAIVE_MOMENT = datetime(2026, 11, 21)  # noqa: DTZ001 - refused because it is naive


def text_of(size: int) -> str:
    return "x" * size


KEY, NAME, EVENT = limits.KEY_BYTES_MAX, limits.NAME_BYTES_MAX, limits.VALUE_BYTES_MAX

REFUSALS: dict[str, tuple[Callable[[Memory], object], type[RefoldError], tuple[str, ...]]] = {
    "an unknown role": (lambda m: m.conversation("c").append("robot", "x"), InvalidInput, ("'robot'", "assistant")),
    "negative tokens": (lambda m: m.conversation("c").append("user", "x", tokens=-1), InvalidInput, ("-1", "below 0")),
    "too many tokens": (
        lambda m: m.conversation("c").append("user", "x", tokens=2**40 + 1),
        LimitExceeded,
        ("MESSAGE_TOKENS_MAX", str(2**40)),
    ),
    "a truth as tokens": (
        lambda m: m.conversation("c").append("user", "x", tokens=True),
        InvalidInput,
        ("tokens must be an int, not bool",),
    ),
    "calls of a user": (
        lambda m: m.conversation("c").append("user", "x", tool_calls=[]),
        InvalidInput,
        ("only an assistant message makes calls",),
    ),
    "an answer of an assistant": (
        lambda m: m.conversation("c").append("assistant", "x", tool_call_id="x"),
        InvalidInput,
        ("only a tool message answers",),
    ),
    "100 MB of content": (
        lambda m: m.conversation("c").append("user", text_of(100_000_000)),
        LimitExceeded,
        ("100,000,000 bytes", "VALUE_BYTES_MAX", "16,777,216", "file"),
    ),
    "100 MB of a scratchpad's value": (
        lambda m: m.conversation("c").scratchpad.set("k", text_of(100_000_000)),
        LimitExceeded,
        ("100,000,000 bytes", "VALUE_BYTES_MAX", "16,777,216"),
    ),
    "100 MB of a note": (
        lambda m: m.conversation("c").scratchpad.note(text_of(100_000_000)),
        LimitExceeded,
        ("VALUE_BYTES_MAX",),
    ),
    "100 MB of state": (
        lambda m: m.conversation("c").state.set("k", text_of(100_000_000)),
        LimitExceeded,
        ("VALUE_BYTES_MAX",),
    ),
    "100 MB of metadata": (
        lambda m: m.conversation("c").append("user", "x", metadata={"k": [text_of(10_000_000)] * 10}),
        LimitExceeded,
        ("VALUE_BYTES_MAX",),
    ),
    "100 MB of a profile's value": (
        lambda m: m.profile().set("k", text_of(100_000_000)),
        LimitExceeded,
        ("VALUE_BYTES_MAX",),
    ),
    "100 MB of a journal's note": (
        lambda m: m.journal().append(text_of(100_000_000)),
        LimitExceeded,
        ("VALUE_BYTES_MAX",),
    ),
    "a content that is large in bytes only": (
        lambda m: m.conversation("c").append("user", "\u4e16" * (EVENT // 2)),
        LimitExceeded,
        ("25,165,824 bytes",),
    ),
    "a key over its bound": (
        lambda m: m.conversation("c").scratchpad.set(text_of(KEY + 1), "v"),
        LimitExceeded,
        ("key is 4,097 bytes", "KEY_BYTES_MAX = 4,096"),
    ),
    "a key over its bound in bytes only": (
        lambda m: m.conversation("c").scratchpad.set("\u00e9" * (KEY // 2 + 1), "v"),
        LimitExceeded,
        ("key is 4,098 bytes",),
    ),
    "an empty key": (lambda m: m.conversation("c").scratchpad.set("", "v"), InvalidInput, ("key is empty",)),
    "an empty key of the profile": (lambda m: m.profile().set("", "v"), InvalidInput, ("key is empty",)),
    "an empty key of the state": (lambda m: m.conversation("c").state.set("", 1), InvalidInput, ("key is empty",)),
    "only a prefix as key": (
        lambda m: m.conversation("c").state.set("session:", 1),
        InvalidInput,
        ("only a prefix",),
    ),
    "two prefixes": (
        lambda m: m.conversation("c").state.set("session:temp:x", 1),
        InvalidInput,
        ("two prefixes",),
    ),
    "a project's key without a project": (
        lambda m: m.conversation("c").state.set("project:x", 1),
        InvalidInput,
        ("needs a project",),
    ),
    "a surrogate in a key": (
        lambda m: m.conversation("c").scratchpad.set("a\udfff", "v"),
        InvalidInput,
        ("lone surrogate at character 1",),
    ),
    "a surrogate in a key of metadata": (
        lambda m: m.conversation("c").append("user", "x", metadata={"\ud800": 1}),
        InvalidInput,
        ("lone surrogate",),
    ),
    "an id over its bound": (
        lambda m: m.conversation(text_of(NAME + 1)),
        LimitExceeded,
        ("conversation_id is 401 bytes", "NAME_BYTES_MAX = 400"),
    ),
    "an empty id": (lambda m: m.conversation(""), InvalidInput, ("conversation_id is empty",)),
    "a project over its bound": (lambda m: m.conversation("c", project=text_of(401)), LimitExceeded, ("project",)),
    "a snapshot's name over its bound": (
        lambda m: m.conversation("chat").snapshot(text_of(401)),
        LimitExceeded,
        ("NAME_BYTES_MAX",),
    ),
    "an empty snapshot name": (lambda m: m.conversation("chat").snapshot(""), InvalidInput, ("name is empty",)),
    "a name for a state that is not": (lambda m: m.conversation("new").snapshot("n"), NotFound, ("no events yet",)),
    "a snapshot that is not": (lambda m: m.conversation("chat").restore("n"), NotFound, ("'n'", "memory.snapshots()")),
    "a snapshot made by hand": (
        lambda m: m.conversation("chat").restore(Snapshot("conversation/chat", 1)),
        InvalidInput,
        ("made by hand",),
    ),
    "a fork onto what exists": (
        lambda m: m.conversation("chat").fork("chat"),
        InvalidInput,
        ("already exists", "an id that is new"),
    ),
    "dropping what is no fork": (
        lambda m: m.conversation("chat").close(drop=True),
        InvalidInput,
        ("is not a fork",),
    ),
    "a seq of the future": (lambda m: m.conversation("chat").at(99), InvalidInput, ("seq 99", "to 3")),
    "a negative seq": (lambda m: m.at(-1), InvalidInput, ("seq -1", "from 0")),
    "a truth as seq": (lambda m: m.at(True), InvalidInput, ("bool",)),  # noqa: FBT003 - refused because it is one
    "a source of the future": (
        lambda m: m.conversation("chat").scratchpad.note("x", sources=[99]),
        InvalidInput,
        ("source 99", "from 1 to 3"),
    ),
    "source 0": (lambda m: m.conversation("chat").scratchpad.note("x", sources=[0]), InvalidInput, ("source 0",)),
    "too many sources": (
        lambda m: m.conversation("chat").scratchpad.note("x", sources=[1] * 4_097),
        LimitExceeded,
        ("4097", "SOURCES_COUNT_MAX = 4096"),
    ),
    "a text as sources": (
        lambda m: m.conversation("chat").scratchpad.note("x", sources="1"),
        InvalidInput,
        ("list or tuple",),
    ),
    "an empty request id": (
        lambda m: m.conversation("c").scratchpad.note("x", request_id=""),
        InvalidInput,
        ("request_id",),
    ),
    "a long request id": (
        lambda m: m.conversation("c").scratchpad.note("x", request_id=text_of(1_025)),
        LimitExceeded,
        ("REQUEST_BYTES_MAX = 1,024",),
    ),
    "a negative version": (
        lambda m: m.conversation("c").scratchpad.note("x", expected=-1),
        InvalidInput,
        ("expected is -1",),
    ),
    "NaN": (
        lambda m: m.conversation("c").append("user", "x", metadata={"a": [1, float("nan")]}),
        InvalidInput,
        ("metadata['a'][1] is nan",),
    ),
    "an integer beyond 64 bits": (
        lambda m: m.conversation("c").state.set("k", {"a": 2**64}),
        InvalidInput,
        ("value['a']", "beyond 64 bits"),
    ),
    "bytes inside": (
        lambda m: m.conversation("c").state.set("k", [b"x"]),
        InvalidInput,
        ("value[0] is a bytes", "not a JSON value"),
    ),
    "a key that is no text": (
        lambda m: m.conversation("c").state.set("k", {"a": {1: 2}}),
        InvalidInput,
        ("value['a'] has a key of type int",),
    ),
    "too deep a nesting": (
        lambda m: m.conversation("c").state.set("k", nested(65)),
        LimitExceeded,
        ("deeper than JSON_DEPTH_MAX = 64",),
    ),
    "a cycle": (
        lambda m: m.conversation("c").state.set("k", cyclic()),
        LimitExceeded,
        ("deeper than JSON_DEPTH_MAX = 64",),
    ),
    "a moment beyond 64 bits": (
        lambda m: m.conversation("c").append("user", "x", occurred=LAST_MOMENT),
        InvalidInput,
        ("occurred", "64 bits"),
    ),
    "a naive moment": (
        lambda m: m.conversation("c").append("user", "x", occurred=NAIVE_MOMENT),
        InvalidInput,
        ("naive", "datetime.UTC"),
    ),
    "an unknown time zone": (lambda _: Memory(timezone="Mars/Phobos"), NotFound, ("'Mars/Phobos'", "IANA")),
    "a path as time zone": (lambda _: Memory(timezone="../../etc/passwd"), NotFound, ("IANA",)),
    "an empty time zone": (lambda _: Memory(timezone=""), NotFound, ("IANA",)),
    "a folder of time zones": (lambda _: Memory(timezone="Europe"), NotFound, ("IANA",)),
    "a day that is none": (lambda m: m.journal().append("x", day="2026-02-30"), InvalidInput, ("2026-02-30",)),
    "a moment as day": (
        lambda m: m.journal().append("x", day=LAST_MOMENT),
        InvalidInput,
        ("give its date",),
    ),
    "an unknown durability": (lambda _: Memory(durability="never"), InvalidInput, ("'never'", "'delayed'")),
    "read-only in RAM": (lambda _: Memory(readonly=True), InvalidInput, ("give a path",)),
    "snapshot bytes of nothing": (lambda _: Snapshot.from_bytes(b""), InvalidInput, ("not a refold snapshot",)),
    "another project": (lambda m: m.conversation("chat", project="other"), InvalidInput, ("'project'", "'other'")),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_a_refusal_names_the_value_and_the_bound(what: str) -> None:
    memory = Memory()
    chat = memory.conversation("chat", project="project")
    chat.append("user", "hello", tokens=1)
    chat.scratchpad.set("kept", "value")
    call, error, words = REFUSALS[what]
    with refused(memory, error, *words):
        call(memory)


class TestJustWithinBounds:
    def test_keys_and_names_of_the_largest_size(self, tmp_path: Path) -> None:
        with remembering(tmp_path / "store") as memory:
            chat = memory.conversation(text_of(NAME), project="\u4e16" * (NAME // 3))
            chat.scratchpad.set(text_of(KEY), "value")
            chat.state[text_of(KEY)] = 1
            chat.state["project:" + text_of(KEY - 8)] = 2
            memory.profile("\u00e9" * (NAME // 2)).set(text_of(KEY), "value")
            memory.journal(text_of(NAME)).append("x")
            chat.snapshot(text_of(NAME))
            chat.fork("y" * NAME)
            chat.append("user", "x", request_id=text_of(limits.REQUEST_BYTES_MAX))
            assert memory.conversations() == [text_of(NAME), "y" * NAME]
            assert chat.scratchpad.get(text_of(KEY)) == "value"

    def test_ids_with_nul_newline_slash_and_every_plane(self, tmp_path: Path) -> None:
        ids = sorted(["a", "a\0", "a\0b", "a\nb", "a/b", "/", "..", " ", "\u00e9", "\u4e16", "\U0001f600", "\uffff"])
        with remembering(tmp_path / "store") as memory:
            for name in ids:
                memory.conversation(name).scratchpad.set("key", name)
            assert memory.conversations() == ids
            for name in ids:
                assert memory.conversation(name).scratchpad.get("key") == name
                assert memory.conversations(after=name) == ids[ids.index(name) + 1 :]
                assert memory.conversations(prefix=name) == [each for each in ids if each.startswith(name)]
                behind = [each for each in ids if each.startswith("a") and each > name]
                assert memory.conversations(prefix="a", after=name, limit=2) == behind[:2]

    def test_large_values_come_back_whole(self, tmp_path: Path) -> None:
        large = text_of(15_000_000)
        with remembering(tmp_path / "store") as memory:
            chat = memory.conversation("chat")
            chat.append("user", large, tokens=1)
            chat.scratchpad.set("key", large)
            chat.state["key"] = [large[:5_000_000], large[:5_000_000]]
        with Memory(tmp_path / "store") as memory:
            chat = memory.conversation("chat")
            assert chat.window()[0].content == large == chat.scratchpad.get("key")
            assert chat.state["key"] == [large[:5_000_000], large[:5_000_000]]

    def test_ten_thousand_keys(self, tmp_path: Path) -> None:
        with remembering(tmp_path / "store") as memory:
            chat = memory.conversation("chat")
            with memory.batch():
                for number in range(10_000):
                    chat.scratchpad.set(f"key {number}", f"value {number}")
            assert len(chat.scratchpad.keys()) == 10_000
            chat.append("user", "x", metadata={f"key {number}": number for number in range(10_000)})
            chat.state["many"] = {f"key {number}": [number] for number in range(10_000)}
        with Memory(tmp_path / "store") as memory:
            chat = memory.conversation("chat")
            assert (len(chat.scratchpad.keys()), chat.scratchpad.get("key 9999"), len(chat.state["many"])) == (
                10_000,
                "value 9999",
                10_000,
            )

    @pytest.mark.parametrize(
        "value",
        [
            None,
            True,
            False,
            0,
            -(2**63),
            2**63,
            2**64 - 1,
            0.0,
            -0.0,
            1e308,
            5e-324,
            "",
            "\0",
            [],
            {},
            [[], {}],
            {"": 0},
        ],
        ids=repr,
    )
    def test_every_json_value_comes_back(self, tmp_path: Path, value: Any) -> None:
        with Memory(tmp_path / "store") as memory:
            chat = memory.conversation("chat")
            chat.state["key"] = value
            chat.append("user", "x", tokens=0, metadata={"key": value})
        with remembering(tmp_path / "store") as memory:
            chat = memory.conversation("chat")
            for found in (chat.state["key"], (chat.window()[0].metadata or {})["key"]):
                assert (repr(found), type(found)) == (repr(value), type(value))

    @pytest.mark.parametrize("occurred", [0, -1, 2**63 - 1, -(2**63) + 1, datetime(1678, 1, 1, tzinfo=UTC)])
    def test_moments_of_any_time(self, occurred: Any) -> None:
        with remembering() as memory:
            memory.conversation("chat").append("user", "x", tokens=1, occurred=occurred)
            memory.journal().append("x", occurred=occurred)
            assert len(memory.conversation("chat").window()) == 1

    def test_an_empty_text_is_a_text(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.append("user", "", tokens=0, name="", metadata={})
            chat.scratchpad.set("key", "")
            chat.scratchpad.note("")
            message = chat.window()[0]
            assert (message.content, message.name, message.metadata) == ("", "", {})
            assert (chat.scratchpad.get("key"), chat.scratchpad.notes()) == ("", [""])


MANY = [f"word-{number:04}" for number in range(2_000)]


@cache
def large_state() -> Snapshot:
    with Memory() as memory:
        with memory.batch():
            for word in MANY:
                memory.conversation("c").append("user", word)
        return Snapshot.from_bytes(memory.conversation("c").snapshot().to_bytes())


def merge_of(project: Project) -> int:
    (entry,) = project.list()
    return project.history(entry.id)[-1].stamp.seq


def prepared(memory: Memory) -> None:
    memory.conversation("c").append("user", "hello")
    memory.add("The office is in Bern.")
    memory.skills.library.learn("known", "What it does.", "Do it.")
    memory.project("tea").upsert("likes tea", vector=[1.0, 0.0])
    memory.project("twins").upsert("likes tea", vector=[1.0, 0.0])
    memory.project("twins").upsert("likes milk", keywords=MANY, vector=[1.0, 0.01])
    for word in MANY:
        memory.table("items").put(word, b"")


TOO_LARGE: dict[str, Callable[[Memory], object]] = {
    "memory_added": lambda m: m.add("Use pnpm.", keywords=MANY),
    "memory_updated": lambda m: m.project().update(m.project().list()[0], keywords=MANY),
    "memory_merged": lambda m: m.project("tea").upsert("likes milk", keywords=MANY, vector=[1.0, 0.01]),
    "memory_unmerged": lambda m: m.project("twins").unmerge(merge_of(m.project("twins"))),
    "episode_recorded": lambda m: m.project().record_episode("success", task="t", tools=MANY),
    "skill_learned": lambda m: m.skills.library.learn("a-skill", "What it does.", "Do it.", sessions=MANY),
    "skill_refined": lambda m: m.skills.library.refine("known", sessions=MANY),
    "items_deleted": lambda m: m.table("items").delete_prefix(()),
    "memories_extracted": lambda m: m.conversation("c").session.record_extraction("model", MANY, [], seq=0),
    "state_imported": lambda m: m.conversation("c").restore(large_state()),
}
OWN_LISTS = {"context_hashed", "context_shown", "erased", "memories_recalled", "messages_recalled", "skills_selected"}
"""Events whose lists name what the engine itself looked at."""


def test_every_list_of_a_caller_is_in_the_table() -> None:
    assert {fold.NAMES[kind] for kind in fold.LISTING} - OWN_LISTS == TOO_LARGE.keys()


@pytest.mark.parametrize("kind", TOO_LARGE)
def test_an_event_of_many_values_is_refused_before_it_is_encoded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory() as memory:
        prepared(memory)
        call, _ = TOO_LARGE[kind], large_state()
        with lowered(EVENT_BYTES_MAX=15_000), monkeypatch.context() as patch:
            patch.setattr(fold, "encode", lambda _event: pytest.fail("it was encoded"))
            with refused(memory, LimitExceeded, f"{kind} is", "EVENT_BYTES_MAX = 15,000", "give fewer"):
                call(memory)
        call(memory)
