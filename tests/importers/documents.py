"""The way back from a log to the documents of a source: what is not found again shows as a difference."""

from collections.abc import Iterable
from typing import Any

from refold import Memory, Message
from refold.importers import transcript
from refold.importers.formats import render_message

Fields = dict[str, Any]


def others(message: Message, *added: str) -> Fields:
    """The fields of a message's metadata that the source had, wherever they were put."""
    metadata = message.metadata or {}
    kept = {key: value for key, value in metadata.items() if key not in added}
    collisions: Fields = metadata.get("message", {})
    return kept | collisions


def source_of(messages: list[Message]) -> Fields:
    """The fields of the conversation itself; only the first message has them."""
    assert all("source" not in (message.metadata or {}) for message in messages[1:])
    return dict((messages[0].metadata or {}).get("source", {}))


def run_of(messages: list[Message]) -> Fields:
    """A run of SWE-agent."""
    history: list[Fields] = []
    steps: list[Fields] = []
    for message in messages:
        metadata = message.metadata or {}
        if "step" in metadata:
            steps.append(metadata["step"])
        if "in_history" not in metadata:
            history.append(_entry_of(message))
    lists = {"history": history, "trajectory": steps}
    return source_of(messages) | {key: value for key, value in lists.items() if value}


def _entry_of(message: Message) -> Fields:
    entry = render_message(message) | others(message, "source", "openai_fields", "message", "step", "in_history")
    ids = entry.get("tool_call_ids")
    if isinstance(ids, list) and len(ids) == 1 and "tool_call_id" in entry:
        assert entry.pop("tool_call_id") == ids[0]
    return entry


def talk_of(own_id: str, messages: list[Message]) -> Fields:
    """A conversation of BEAM."""
    said = [render_message(message) | others(message, "source", "openai_fields", "message") for message in messages]
    return {"id": own_id, "messages": said} | source_of(messages)


def sample_of(messages: list[Message]) -> Fields:
    """A sample of LoCoMo."""
    sample = source_of(messages)
    for message in messages:
        metadata = message.metadata or {}
        turn = {"speaker": message.name, "text": _text_of(message)} | others(message, "source", "message", "session")
        sample["conversation"].setdefault(f"session_{metadata['session']}", []).append(turn)
    return sample


def _text_of(message: Message) -> str:
    assert isinstance(message.content, str)
    caption = (message.metadata or {}).get("blip_caption")
    if not isinstance(caption, str) or not caption:
        return message.content
    shown = f" [shares image: {caption}]"
    assert message.content.endswith(shown)
    return message.content.removesuffix(shown)


def rebuilt(memory: Memory, name: str, stem: str, documents: list[Any]) -> list[Any]:
    """The documents of an imported file, from nothing but the messages in the log."""
    prefix = f"{name}/{stem}/"
    if name == "swe-agent":
        return [run_of(list(transcript(memory, f"{prefix}1")))]
    if name == "locomo":
        return [sample_of(list(transcript(memory, prefix + document["sample_id"]))) for document in documents]
    return [talk_of(document["id"], list(transcript(memory, prefix + document["id"]))) for document in documents]


def differences(left: Any, right: Any, place: str = "") -> Iterable[str]:
    """The places at which two JSON values differ, which says more than that two files do."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys()):
            absent = object()
            yield from differences(left.get(key, absent), right.get(key, absent), f"{place}.{key}")
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, pair in enumerate(zip(left, right, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif type(left) is not type(right) or left != right:
        yield place
