"""Extraction of sessions that are longer than what a model is asked about at once."""

import re
import threading
from typing import Any

import pytest

from refold import Memory
from refold.agent import CallableProvider, ProviderFailed, extract
from refold.limits import EXTRACTION_CHARS_MAX, EXTRACTION_PAGES_COUNT_MAX

PORT = {"category": "fact", "content": "", "keywords": [], "importance": 0.4}


def long_chat(memory: Memory, count: int) -> Any:
    chat = memory.conversation("long", project="acme")
    with memory.batch():
        for number in range(count):
            chat.append("user", f"number {number} ".ljust(EXTRACTION_CHARS_MAX // 4, "x"), tokens=1)
    return chat


def test_a_long_session_is_read_in_pages_and_nothing_of_it_is_left_out(memory: Memory) -> None:
    chat = long_chat(memory, 4 * EXTRACTION_PAGES_COUNT_MAX)
    heard: list[str] = []

    def answer(messages: list[Any], _: list[str], __: dict[str, Any]) -> list[Any]:
        heard.append(messages[0]["content"])
        return [PORT | {"content": f"Page {len(heard)} of colour {'abcdefghijklmnopqrstuvwxyz'[len(heard)] * 5}."}]

    provider = CallableProvider(answer)
    first = extract(chat, provider, memory=memory)
    assert len(heard) == EXTRACTION_PAGES_COUNT_MAX
    assert 0 < first.unread < 4 * EXTRACTION_PAGES_COUNT_MAX
    assert chat.session.extracted_seq() == chat.window()[-first.unread - 1].seq
    while (later := extract(chat, provider, memory=memory)).unread:
        assert later.unread < first.unread
    pages = [text.partition("## Conversation Summary")[2] for text in heard]
    read = [int(number) for number in re.findall(r"user: number (\d+) ", "".join(pages))]
    assert read == list(range(4 * EXTRACTION_PAGES_COUNT_MAX)), "each once, in order"
    assert memory.project("acme").count() == len(heard)
    assert all(text in heard[1] for text in ("Page 1 of colour bbbbb.", "Already Known"))


def test_a_provider_that_fails_on_a_later_page_keeps_the_earlier_ones(memory: Memory) -> None:
    chat = long_chat(memory, 9)
    asked = 0

    def answer(_: list[Any], __: list[str], ___: dict[str, Any]) -> list[Any]:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise ProviderFailed("down", 503)
        return [PORT | {"content": f"Fact {asked} is about {'abc'[asked % 3] * 9}."}]

    provider = CallableProvider(answer)
    with pytest.raises(ProviderFailed):
        extract(chat, provider, memory=memory)
    assert memory.project("acme").count() == 1
    read = chat.session.extracted_seq()
    assert chat.window()[0].seq < read < chat.window()[-1].seq
    assert extract(chat, provider, memory=memory).unread == 0
    assert chat.session.extracted_seq() == chat.window()[-1].seq
    assert asked == 4


def test_of_a_message_that_is_longer_than_a_page_the_ends_are_read(memory: Memory) -> None:
    chat = memory.conversation("c")
    chat.append("tool", "begin " + "x" * 3 * EXTRACTION_CHARS_MAX + " end", tokens=1)
    heard: list[str] = []

    def answer(messages: list[Any], _: list[str], __: dict[str, Any]) -> list[Any]:
        heard.append(messages[0]["content"])
        return []

    extracted = extract(chat, CallableProvider(answer), memory=memory)
    assert "message 2: only its ends were read" in extracted.dropped[0]
    assert "tool: begin xxx" in heard[0]
    assert "xxx end\n" in heard[0]
    assert len(heard[0]) < 2 * EXTRACTION_CHARS_MAX


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_is_erased_while_a_model_reads_it_is_not_learnt(memory: Memory, *, is_whole: bool) -> None:
    chat = memory.conversation("c", project="acme")
    told = [chat.append("user", f"My {thing} is swordfish.", tokens=5).seq for thing in ("harbour", "fish")]
    asked: list[str] = []

    def answer(messages: list[Any], _: list[str], __: dict[str, Any]) -> list[Any]:
        asked.append(messages[0]["content"])
        if len(asked) == 1:
            memory.erase(told if is_whole else told[:1])
        return [PORT | {"content": f"The user said: {line}"} for line in asked[-1].split("\n") if "swordfish" in line]

    found = extract(chat, CallableProvider(answer), memory=memory)
    learnt = [entry.content for entry in memory.project("acme").list()]
    assert [("harbour" in text, "fish is" in text) for text in learnt] == ([] if is_whole else [(False, True)])
    assert len(asked) == (1 if is_whole else 2)
    assert "harbour" not in "".join(asked[1:])
    assert any("erased while" in reason for reason in found.dropped)
    assert len(found.ids) == len(learnt)


def test_what_was_learnt_is_written_beside_others_that_write(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that met another write is tried again; the model is not."""
    chat = memory.conversation("c", project="acme")
    chat.append("user", "We use tabs.", tokens=4)
    record = type(chat.session).record_extraction
    waiting = [1, 2]

    def recording(*arguments: Any, **options: Any) -> Any:
        if waiting:
            write = threading.Thread(target=memory.project("acme").add, args=(f"Others wrote {waiting.pop()}.",))
            write.start()
            write.join()
        return record(*arguments, **options)

    monkeypatch.setattr(type(chat.session), "record_extraction", recording)
    asked: list[int] = []

    def answer(*_: Any) -> list[Any]:
        asked.append(1)
        return [PORT | {"content": "The code is indented with tabs."}]

    found = extract(chat, CallableProvider(answer), memory=memory)
    assert (len(asked), len(found.ids), memory.project("acme").count()) == (1, 1, 3)


def hearing(heard: list[str], *items: Any) -> CallableProvider:
    def answer(messages: list[Any], _: list[str], __: dict[str, Any]) -> list[Any]:
        heard.append(messages[0]["content"])
        return list(items)

    return CallableProvider(answer)


def before_of(text: str) -> str:
    return text.partition("learn nothing from it alone)\n")[2].partition("\n\n## Conversation Summary")[0]


def test_a_page_goes_on_with_the_turn_before_it(memory: Memory) -> None:
    chat, heard = memory.conversation("c", project="acme"), list[str]()
    chat.append("user", "Hello!")
    chat.append("assistant", "Hi!")
    asked = [chat.append("user", "Please tidy up."), chat.append("assistant", "Shall I rename Foo to Barometer?")]
    extract(chat, hearing(heard), memory=memory)
    chat.append("user", "No, and leave the rest as it is.")
    item = PORT | {"content": "User does not want Foo renamed to Barometer.", "messages": [1]}
    extract(chat, hearing(heard, item), memory=memory)
    assert before_of(heard[0]) == "(none)"
    day = heard[1].partition("alone)\n")[2].partition("\n")[0]
    assert before_of(heard[1]) == f"{day}\nuser: Please tidy up.\nassistant: Shall I rename Foo to Barometer?"
    assert "[1] user: No, and leave" in heard[1]
    memory.erase([asked[1]])
    assert memory.project("acme").list() == [], "it cites what it was understood from"


def test_of_a_long_turn_before_the_question_and_the_end_are_repeated(memory: Memory) -> None:
    chat, heard = memory.conversation("c", project="acme"), list[str]()
    chat.append("user", "Please tidy up.")
    for number in range(12):
        chat.append("assistant", f"step {number} " + "x" * 2_000)
    extract(chat, hearing(heard), memory=memory)
    chat.append("user", "Thanks.")
    extract(chat, hearing(heard), memory=memory)
    before = before_of(heard[-1])
    assert re.findall(r"user: Please|step \d+", before) == [
        "user: Please",
        *(f"step {number}" for number in range(6, 12)),
    ]
    assert len(before) < 5_000


CALLS = [
    [{"id": "1", "type": "function", "function": {"name": "run", "arguments": '{"command": "sed -i s/8000/9000/"}'}}],
    [{"id": "2", "name": "run", "input": {"command": "sed -i s/8000/9000/"}}],
]


@pytest.mark.parametrize("calls", CALLS)
def test_the_calls_of_tools_are_read(memory: Memory, calls: list[Any]) -> None:
    chat, heard = memory.conversation("c", project="acme"), list[str]()
    chat.append("user", "Move it to another port.")
    caller = chat.append("assistant", None, tool_calls=calls)
    chat.append("tool", "exit code 0", tool_call_id=calls[0]["id"])
    item = PORT | {"content": "The port became 9000 by sed.", "messages": [1]}
    extract(chat, hearing(heard, item), memory=memory)
    assert re.search(
        r'\n\[2\] assistant: called run\(\{"command": ?"sed -i s/8000/9000/"\}\)\n\[3\] tool: exit', heard[0]
    )
    memory.erase([caller])
    assert memory.project("acme").list() == [], "it cites the call"


def test_calls_in_blocks_are_read_and_of_long_arguments_the_ends(memory: Memory) -> None:
    chat, heard = memory.conversation("c", project="acme"), list[str]()
    block = {"type": "tool_use", "id": "1", "name": "write", "input": {"path": "a.py", "text": "x" * 9_000, "z": "END"}}
    chat.append("assistant", [{"type": "text", "text": "I write it."}, block])
    extract(chat, hearing(heard), memory=memory)
    (line,) = re.findall(r"\[1\] assistant: I write it\.\n  called write\(.*\n.*\n.*\)\n", heard[0])
    assert 'path":"a.py"' in line
    assert 'END"})' in line
    assert len(line) < 1_200
