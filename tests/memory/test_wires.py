"""Messages in the forms of providers' APIs: the same talk, with calls, answers, blocks and images, in each of them."""

from typing import Any

import pytest

from refold import Conversation, InvalidInput, Memory
from refold.memory.wires import FORMATS
from tests.support.memories import refused
from tests.support.requests import refusals

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


# Images, documents and sounds: each form's own blocks, read from each and written in each.

PDF = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}
URL = "https://example.org/a.png?size=1"
DATA_URL = "data:image/png;base64,AAAA"

MEDIA: dict[str, dict[str, Any]] = {
    "an image": {
        "openai": {"type": "image_url", "image_url": {"url": DATA_URL}},
        "openai-responses": {"type": "input_image", "image_url": DATA_URL},
        "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        "gemini": {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
    },
    "an image by URL": {
        "openai": {"type": "image_url", "image_url": {"url": URL}},
        "openai-responses": {"type": "input_image", "image_url": URL},
        "anthropic": {"type": "image", "source": {"type": "url", "url": URL}},
        "gemini": {"fileData": {"mimeType": "image/png", "fileUri": URL}},
    },
    "a document": {
        "openai": {"type": "file", "file": PDF},
        "openai-responses": {"type": "input_file", **PDF},
        "anthropic": {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
            "title": "a.pdf",
        },
        "gemini": {"inlineData": {"mimeType": "application/pdf", "data": "AAAA"}},
    },
    "a document by URL": {
        "openai-responses": {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        "anthropic": {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
        "gemini": {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.org/a.pdf"}},
    },
    "audio": {
        "openai": {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
        "gemini": {"inlineData": {"mimeType": "audio/mp3", "data": "AAAA"}},
    },
    "a video": {"gemini": {"inlineData": {"mimeType": "video/mp4", "data": "AAAA"}}},
}
FORMS: list[Any] = sorted(FORMATS)


def blocks_of(request: list[dict[str, Any]]) -> list[dict[str, Any]]:
    (message,) = request
    return list(message["parts"] if "parts" in message else message["content"])


def said(request: list[dict[str, Any]]) -> str:
    """The texts of a request's one message, and nothing else."""
    (message,) = request
    if isinstance(message.get("content"), str):
        assert "images" not in message
        return str(message["content"])
    return "\n".join(block["text"] for block in blocks_of(request))


def without_name(value: Any) -> Any:
    """A block without the name of its file, for which Gemini has no place."""
    if isinstance(value, dict):
        return {key: without_name(each) for key, each in value.items() if key not in {"filename", "title"}}
    return value


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("kind", "source"), [(kind, source) for kind, blocks in MEDIA.items() for source in blocks])
def test_media_of_every_form_are_written_in_every_form_with_a_place_for_them(kind: str, source: str, form: Any) -> None:
    memory = Memory()
    chat = memory.conversation("chat")
    block = MEDIA[kind][source]
    chat.append("user", [{"type": "text", "text": "Look:"}, block])
    if form == "ollama" and kind == "an image":
        assert chat.messages(form) == [{"role": "user", "content": "Look:", "images": ["AAAA"]}]
    elif form == source:
        assert blocks_of(chat.messages(form))[1] == block
    elif form in MEDIA[kind]:
        assert without_name(blocks_of(chat.messages(form))[1]) == without_name(MEDIA[kind][form])
        assert refusals(form, chat.messages(form)) == []
    else:
        assert said(chat.messages(form)).startswith(f"Look:\n({kind.removesuffix(' by URL')} ")
        assert refusals(form, chat.messages(form)) == []


def test_the_name_of_a_file_is_kept() -> None:
    chat = Memory().conversation("chat")
    chat.append("user", [MEDIA["a document"]["openai"]])
    assert blocks_of(chat.messages("openai-responses")) == [MEDIA["a document"]["openai-responses"]]
    assert blocks_of(chat.messages("anthropic")) == [MEDIA["a document"]["anthropic"]]
    chat.clear_window()
    chat.append("user", [MEDIA["a document"]["gemini"]])
    assert blocks_of(chat.messages("openai"))[0]["file"] == PDF | {"filename": "document.pdf"}


@pytest.mark.parametrize(
    ("form", "block"),
    [
        ("openai", {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}),
        ("openai", {"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}}),
        ("openai", {"type": "file", "file": {"file_id": "file-1"}}),
        ("openai-responses", {"type": "input_image", "file_id": "file-1", "detail": "low"}),
        ("openai-responses", {"type": "input_file", "file_id": "file-1"}),
        ("anthropic", {"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}}),
        ("anthropic", {"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
        ("anthropic", {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}),
        ("anthropic", {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}),
        ("anthropic", {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}),
        ("gemini", {"inline_data": {"mime_type": "image/png", "data": "AAAA"}, "mediaResolution": {"level": "LOW"}}),
        ("gemini", {"fileData": {"fileUri": "https://generativelanguage.googleapis.com/v1beta/files/1"}}),
        ("gemini", {"text": "Look.", "thoughtSignature": "c2ln"}),
    ],
)
def test_a_forms_own_blocks_pass_unchanged(form: Any, block: dict[str, Any]) -> None:
    chat = Memory().conversation("chat")
    chat.append("user", [block])
    assert blocks_of(chat.messages(form)) == [block]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "block",
    [
        {"type": "hologram", "data": "x"},
        {"type": "text", "text": None},
        {"type": "image", "source": "x"},
        {"type": "image", "url": "https://example.org/a.png"},
        {"type": "image_url"},
        {"type": "tool_use", "id": "c1", "name": "weather"},
        {"colour": "red"},
    ],
    ids=repr,
)
def test_a_block_of_no_form_is_named_in_a_text(form: Any, block: dict[str, Any]) -> None:
    memory = Memory()
    chat = memory.conversation("chat")
    chat.append("user", [{"type": "text", "text": "Listen:"}, block])
    notice = f"(a block of type {block.get('type', 'colour')!r}, which no provider takes here)"
    assert said(chat.messages(form)) == f"Listen:\n{notice}"
    assert refusals(form, chat.messages(form)) == []
    chat.clear_window()
    chat.append("user", "Listen.")
    chat.append("assistant", None, tool_calls=[CALL])
    chat.append("tool", [{"type": "text", "text": "hm"}, block], tool_call_id="c1")
    assert notice.replace("'", "") in str(chat.messages(form)).replace("'", "").replace("\\", "")
    assert refusals(form, chat.messages(form)) == []


@pytest.mark.parametrize(
    "block", [{}, {"type": "text"}, {"type": "text", "txt": "Hi"}, {"type": "input_text", "text": 5}], ids=repr
)
def test_a_text_block_without_a_text_is_refused(block: dict[str, Any]) -> None:
    memory = Memory()
    chat = memory.conversation("chat")
    message = chat.append("user", "Hi")
    for role in ("user", "assistant", "tool"):
        with refused(memory, InvalidInput, "block 2 of content is", "which has no text"):
            chat.append(role, [{"type": "hologram"}, block])
    with refused(memory, InvalidInput, "block 1 of content is", "which has no text"):
        chat.replace(message, [block])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("owner", "block"),
    [
        ("openai", {"type": "file", "file": {"file_id": "file-1"}}),
        ("openai-responses", {"type": "input_image", "file_id": "file-1"}),
        ("anthropic", {"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
        ("anthropic", {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}),
        ("gemini", {"fileData": {"fileUri": "gs://bucket/a.png", "mimeType": "image/png"}}),
    ],
)
def test_what_a_provider_keeps_is_named_for_the_others(owner: str, block: dict[str, Any], form: Any) -> None:
    chat = Memory().conversation("chat")
    chat.append("user", [block])
    if form == owner:
        assert blocks_of(chat.messages(form)) == [block]
    else:
        assert said(chat.messages(form)) == f"({block.get('type', 'fileData')})"


FINE = "The contract penalty is 500 euros."
FINE_BLOCK = {"type": "text", "text": FINE}
FINE_DATA = "VGhlIGNvbnRyYWN0IHBlbmFsdHkgaXMgNTAwIGV1cm9zLg=="


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("owners", "block", "text"),
    [
        (
            ["anthropic"],
            {
                "type": "document",
                "title": "Contract",
                "source": {"type": "text", "media_type": "text/plain", "data": FINE},
            },
            f"Contract\n{FINE}",
        ),
        (["anthropic"], {"type": "document", "source": {"type": "content", "content": [FINE_BLOCK]}}, FINE),
        (["anthropic"], {"type": "document", "source": {"type": "content", "content": FINE}}, FINE),
        (["anthropic"], {"type": "search_result", "source": "s", "title": "T", "content": [FINE_BLOCK]}, f"T\n{FINE}"),
        (["gemini"], {"inlineData": {"mimeType": "text/csv", "data": FINE_DATA}}, FINE),
        (
            ["openai"],
            {"type": "file", "file": {"filename": "a.csv", "file_data": f"data:text/csv;base64,{FINE_DATA}"}},
            FINE,
        ),
    ],
)
def test_a_document_of_text_is_its_text_elsewhere(
    owners: list[str], block: dict[str, Any], text: str, form: Any
) -> None:
    memory = Memory()
    chat = memory.conversation("chat")
    chat.append("user", [block, {"type": "text", "text": "What is the fine?"}])
    if form in owners:
        assert blocks_of(chat.messages(form))[0] == block
    elif "openai" in owners and form == "gemini":
        assert blocks_of(chat.messages(form))[0] == {"inlineData": {"mimeType": "text/csv", "data": FINE_DATA}}
    else:
        assert said(chat.messages(form)) == f"{text}\nWhat is the fine?"
        assert refusals(form, chat.messages(form)) == []
    chat.clear_window()
    chat.append("user", "What is the fine?")
    chat.append("assistant", None, tool_calls=[CALL])
    chat.append("tool", [block], tool_call_id="c1")
    assert FINE in str(chat.messages(form)) or FINE_DATA in str(chat.messages(form))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("media_type", "takers"),
    [
        ("image/heic", ["gemini"]),
        ("image/tiff", []),
        ("application/zip", []),
        ("image/png", FORMS),
        ("application/pdf", ["openai", "openai-responses", "anthropic", "gemini"]),
    ],
)
def test_media_of_a_type_that_an_api_refuses_are_named(media_type: str, takers: list[str], form: Any) -> None:
    kind = "image" if media_type.startswith("image/") else "document"
    source = {"type": "base64", "media_type": media_type, "data": "AAAA"}
    chat = Memory().conversation("chat")
    chat.append("user", [{"type": kind, "source": source}])
    named = f"(an image of type {media_type})" if kind == "image" else f"(a document of type {media_type})"
    if form != "anthropic":  # Whose own block it is.
        assert (named in str(chat.messages(form))) == (form not in takers)
    chat.clear_window()
    chat.append("user", [{"inlineData": {"mimeType": media_type, "data": "AAAA"}}])
    if form != "gemini":
        assert (named in str(chat.messages(form))) == (form not in takers)


@pytest.mark.parametrize("form", FORMS)
def test_the_result_of_a_tool_shows_an_image_where_its_form_lets_it(form: Any) -> None:
    memory = Memory()
    chat = memory.conversation("chat")
    chat.append("user", "Weather?")
    chat.append("assistant", None, tool_calls=[CALL])
    chat.append("tool", [{"type": "text", "text": "blue"}, IMAGE], tool_call_id="c1")
    shown = {
        "openai-responses": {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": "blue"}, MEDIA["an image"]["openai-responses"]],
        },
        "anthropic": {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "blue"}, MEDIA["an image"]["anthropic"]],
                }
            ],
        },
        "gemini": {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "name": "weather",
                        "response": {"result": "blue"},
                        "id": "c1",
                        "parts": [MEDIA["an image"]["gemini"]],
                    }
                }
            ],
        },
        "ollama": {"role": "tool", "content": "blue", "tool_name": "weather", "images": ["AAAA"]},
    }
    shown["openai"] = {
        "role": "tool",
        "content": [{"type": "text", "text": "blue"}, {"type": "text", "text": "(an image of type image/png)"}],
        "tool_call_id": "c1",
    }
    request = chat.messages(form)
    assert request[-1] == shown[form]
    assert refusals(form, request) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["reasoning", "text_reasoning"])
def test_the_reasoning_of_frameworks_is_left_out(form: Any, kind: str) -> None:
    chat = Memory().conversation("chat")
    chat.append("user", "Which port?")
    chat.append("assistant", [{"type": kind, "reasoning": "hm"}, {"type": "text", "text": "5432."}])
    assert "hm" not in str(chat.messages(form))
    assert "5432." in str(chat.messages(form))


@pytest.mark.parametrize("form", ["openai", "openai-responses", "anthropic"])
def test_an_image_of_the_assistant_is_named_where_only_users_show_images(form: Any) -> None:
    memory = Memory()
    chat = memory.conversation("chat")
    chat.append("user", "Draw!")
    chat.append("assistant", [MEDIA["an image"][form]])
    assert "(an image of type image/png)" in str(chat.messages(form)[-1])
    assert chat.messages("gemini")[-1] == {"role": "model", "parts": [MEDIA["an image"]["gemini"]]}


@pytest.mark.parametrize(
    ("form", "url"),
    [
        ("ollama", URL),
        ("gemini", "https://example.org/image"),
        ("gemini", "http://example.org/a.png"),
        ("anthropic", "http://example.org/a.png"),
    ],
)
def test_an_image_by_url_is_named_where_a_form_takes_only_data(form: Any, url: str) -> None:
    chat = Memory().conversation("chat")
    chat.append("user", [{"type": "image_url", "image_url": {"url": url}}])
    assert said(chat.messages(form)) == f"(an image at '{url}')"


@pytest.mark.parametrize("form", FORMS)
def test_the_thoughts_of_a_model_go_to_its_own_provider_alone(form: Any) -> None:
    chat = Memory().conversation("chat")
    chat.append("user", "Hello!")
    thoughts: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "secret", "signature": "s"},
        {"text": "secret", "thought": True},
    ]
    chat.append("assistant", [*thoughts, {"type": "text", "text": "Hi."}])
    chat.append("assistant", thoughts)
    request = chat.messages(form)
    assert refusals(form, request) == []
    assert repr(request).count("secret") == (form in {"anthropic", "gemini"})
    assert repr(request).count("Hi.") == 1


def test_calls_and_results_of_gemini_become_those_of_the_others() -> None:
    chat = Memory().conversation("chat")
    call = {"functionCall": {"name": "weather", "args": ARGUMENTS}, "thoughtSignature": "c2ln"}
    answer = {"functionResponse": {"name": "weather", "response": {"sky": "blue"}}}
    chat.append("user", [{"text": "Weather?"}])
    chat.append("assistant", [call])
    chat.append("user", [answer])
    assert [content["parts"] for content in chat.messages("gemini")] == [[{"text": "Weather?"}], [call], [answer]]
    assert chat.messages("openai")[1:] == [
        {"role": "assistant", "content": None, "tool_calls": [CALL | {"id": "call"}]},
        {"role": "tool", "content": '{"sky":"blue"}', "tool_call_id": "call", "name": "weather"},
    ]


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


@pytest.mark.parametrize("form", FORMS)
def test_odd_values_of_calls_and_answers_are_rendered(form: Any) -> None:
    """Imported messages hold what other programs wrote, which may be any JSON."""
    memory = Memory()
    deep = "[" * 3_000
    chat = memory.conversation("calls")
    chat.append("assistant", None, tool_calls=[{"id": [], "function": {"name": {}, "arguments": deep}}])
    assert refusals(form, chat.messages(form)) == []
    for content in (True, [3], [{"type": "tool_result"}]):
        chat = memory.conversation(f"answers {content}")
        chat.append("assistant", None, tool_calls=[CALL | {"id": None}])
        chat.append("user", [{"type": "tool_result", "tool_use_id": None, "content": content}])
        assert refusals(form, chat.messages(form)) == []
        assert "which no provider takes here" in str(chat.messages(form))
