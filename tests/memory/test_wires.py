"""Messages in the forms of providers' APIs: the same talk, with calls, answers, blocks and images, in each of them."""

from typing import Any

import pytest

from refold import Conversation, InvalidInput, Memory
from refold.memory.wires import FORMATS
from tests.support.memories import refused

CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}
ARGUMENTS = {"city": "Oslo"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def talk(memory: Memory, *, blocks: bool) -> Conversation:
    """The same talk, with calls as OpenAI or as Anthropic has them."""
    chat = memory.conversation("blocks" if blocks else "fields")
    chat.append("system", "Be brief.")
    chat.append("developer", "Be kind.")
    chat.append("user", [{"type": "text", "text": "Weather here?"}, IMAGE])
    if blocks:
        used = {"type": "tool_use", "id": "c1", "name": "weather", "input": ARGUMENTS}
        chat.append("assistant", [{"type": "text", "text": "I look."}, used])
        result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "blue"}]}
        chat.append("user", [result])
    else:
        chat.append("assistant", "I look.", tool_calls=[CALL])
        chat.append("tool", "blue", tool_call_id="c1")
    chat.append("assistant", "Blue.")
    return chat


WIRES: dict[Any, list[dict[str, Any]]] = {
    "openai-responses": [
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Weather here?"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
            ],
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Oslo"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "blue"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Blue."}]},
    ],
    "gemini": [
        {
            "role": "user",
            "parts": [{"text": "Weather here?"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}],
        },
        {
            "role": "model",
            "parts": [{"text": "I look."}, {"functionCall": {"name": "weather", "args": ARGUMENTS, "id": "c1"}}],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "weather", "response": {"result": "blue"}, "id": "c1"}}],
        },
        {"role": "model", "parts": [{"text": "Blue."}]},
    ],
    "ollama": [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Weather here?", "images": ["AAAA"]},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"function": {"name": "weather", "arguments": ARGUMENTS}}],
        },
        {"role": "tool", "content": "blue", "tool_name": "weather"},
        {"role": "assistant", "content": "Blue."},
    ],
}


@pytest.mark.parametrize("form", WIRES)
@pytest.mark.parametrize("blocks", [False, True], ids=["fields", "blocks"])
def test_a_talk_is_rendered_for_each_api(form: Any, blocks: bool) -> None:
    chat = talk(Memory(), blocks=blocks)
    assert chat.messages(form) == WIRES[form]
    assert chat.at(chat.place[1]).messages(form) == WIRES[form]


@pytest.mark.parametrize("form", WIRES)
@pytest.mark.parametrize(
    "block", [{"type": "audio", "data": "x"}, {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]
)
def test_a_block_without_a_place_is_an_error_and_never_left_out(form: Any, block: dict[str, Any]) -> None:
    memory = Memory()
    chat = memory.conversation("chat")
    chat.append("user", [{"type": "text", "text": "Listen:"}, block])
    with refused(memory, InvalidInput, f"a block of type '{block['type']}', for which {form} has no place"):
        chat.messages(form)
    assert len(chat.messages()) == 1
    chat.clear_window()
    chat.append("assistant", None, tool_calls=[CALL])
    chat.append("tool", [block], tool_call_id="c1")
    with refused(memory, InvalidInput, "no place"):
        chat.messages(form)


def test_a_context_has_the_forms_of_a_conversation(memory: Memory) -> None:
    context = memory.context(talk(memory, blocks=False))
    assert all(context.messages(form) for form in FORMATS)
    with pytest.raises(InvalidInput, match="format is 'telex'; give one of anthropic, gemini, ollama, openai"):
        context.messages("telex")


def test_steps_and_changes_can_be_printed() -> None:
    memory = Memory()
    chat = memory.conversation("chat", window_tokens=5)
    chat.append("user", "Hello!", tokens=4)
    chat.append("user", "Again.", tokens=4)
    first, *_, last = chat.replay()
    assert str(first).startswith("1 conversation_opened in conversation/chat\n  conversation/chat window.")
    assert "\n  evicted Message(seq=2, role='user', content='Hello!', tokens=4)\n" in str(last)
    (change,) = [change for change in memory.diff(0, 1) if change.path == ("window_tokens",)]
    assert str(change) == "conversation/chat window.window_tokens: None -> 5"


@pytest.mark.parametrize("form", ["openai", "openai-responses", "anthropic", "gemini", "ollama"])
def test_odd_values_of_calls_and_answers_are_rendered_or_refused(form: Any) -> None:
    """Imported messages hold what other programs wrote, which may be any JSON."""
    memory = Memory()
    deep = "[" * 3_000
    chat = memory.conversation("calls")
    chat.append("assistant", None, tool_calls=[{"id": [], "function": {"name": {}, "arguments": deep}}])
    assert chat.messages(form)
    for content in (True, [3], [{"type": "tool_result"}]):
        chat = memory.conversation(f"answers {content}")
        chat.append("user", [{"type": "tool_result", "tool_use_id": None, "content": content}])
        if form in {"openai", "anthropic"}:
            assert chat.messages(form)
        else:
            with refused(memory, InvalidInput, "no place"):
                chat.messages(form)
