"""The rules by which providers' APIs refuse the messages of a request, each with its source.

``refusals`` yields what an API would object to. Calls without results are allowed at the end alone: their tools are
still running, and nobody sends the request yet.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

Request = list[dict[str, Any]]


def refusals(form: str, request: Request) -> list[str]:
    """What the API of a format objects to in the messages of a request."""
    return list(RULES[form](request))


def _texts(blocks: Any, types: dict[str, str], where: str) -> Iterator[str]:
    """Each block is of a type that its place takes, and has a text that is not blank where it is one."""
    if not isinstance(blocks, list) or not blocks:
        yield f"{where} has no blocks: {blocks!r}"
        return
    for block in blocks:
        field = types.get(block.get("type"))
        if field is None:
            yield f"{where} takes no block {block!r}"
        elif field in {"text", "refusal"} and not str(block[field]).strip():
            yield f"{where} has a blank text"
        elif field not in block:
            yield f"{where} has a block without its {field}: {block!r}"


_OPENAI_BLOCKS = {
    "user": {"text": "text", "image_url": "image_url", "input_audio": "input_audio", "file": "file"},
    "assistant": {"text": "text", "refusal": "refusal"},
}


def _openai(request: Request) -> Iterator[str]:
    """OpenAI's chat completions: platform.openai.com/docs/api-reference/chat/create, and the errors of the API.

    - "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
    - "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
    - "Invalid value for 'content': expected a string, got null." Only an assistant with calls needs no content.
    - "Image URLs are only allowed for messages with role 'user'." (openai/openai-node#1030)
    - "Invalid 'messages[0].name': string does not match pattern."
    - "Invalid 'messages[2].tool_calls[0].function.name': string does not match pattern. Expected a string that matches
      the pattern '^[a-zA-Z0-9_-]+$'.", and "string too long. Expected a string with maximum length 64"
    - Servers with OpenAI's interface decode the arguments of calls, and fail for what is no JSON object: vLLM does so
      for the templates of its models, in vllm/entrypoints/chat_utils.py.
    """
    waiting: list[str] = []
    for place, message in enumerate(request):
        role, content, where = message["role"], message.get("content"), f"message {place}"
        if role != "tool" and waiting:
            yield f"{where}: the calls {waiting} have no result before it"
            waiting = []
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"{where}: a result of no call that waits, {message['tool_call_id']}"
            else:
                waiting.remove(message["tool_call_id"])
        if message.keys() - {"role", "content", "name", "tool_calls", "tool_call_id"}:
            yield f"{where}: unknown fields in {message}"
        if role == "tool" and not _is_tool_name(message.get("name", "none"), 64):
            yield f"{where}: a tool's name that does not match, {message['name']!r}"
        if "name" in message and not re.fullmatch(r"[^\s<|\\/>]{1,64}", message["name"]):
            yield f"{where}: a name that does not match, {message['name']!r}"
        calls = message.get("tool_calls")
        waiting += [call["id"] for call in calls or ()]
        yield from _openai_calls(role, calls, where)
        if isinstance(content, str):
            if not content.strip() and role != "tool":
                yield f"{where} is blank"
        elif content is not None or not calls:
            yield from _texts(content, _OPENAI_BLOCKS.get(role, {"text": "text"}), where)


def _openai_calls(role: str, calls: Any, where: str) -> Iterator[str]:
    if calls is not None and (role != "assistant" or not calls):
        yield f"{where}: {role} with the calls {calls!r}"
    ids = [call["id"] for call in calls or ()]
    if len(set(ids)) != len(ids):
        yield f"{where}: two calls of one id"
    for call in calls or ():
        function = call.get("function", {})
        is_whole = call["type"] == "function" and isinstance(function.get("name"), str)
        if not is_whole or not isinstance(function.get("arguments"), str) or not isinstance(call["id"], str):
            yield f"{where}: a call of another form, {call!r}"
        elif not _is_tool_name(function["name"], 64) or not isinstance(json.loads(function["arguments"]), dict):
            yield f"{where}: a name that does not match, or arguments that are no object, {call!r}"


def _is_tool_name(name: str, chars_max: int, more: str = "") -> bool:
    return re.fullmatch(f"[a-zA-Z0-9_{more}-]{{1,{chars_max}}}", name) is not None


_RESPONSES_INPUT = {"input_text": "text", "input_image": "image_url", "input_file": "type"}


def _responses(request: Request) -> Iterator[str]:
    """OpenAI's responses: platform.openai.com/docs/api-reference/responses/create, and the errors of the API.

    - "No tool output found for function call call_1."
    - "No tool call found for function call output with call_id call_1."
    - "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'." That is for an assistant.
    - "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64."
    - "Invalid 'input[1].name': string does not match pattern. Expected a string that matches '^[a-zA-Z0-9_-]+$'."
    """
    waiting: dict[str, int] = {}
    known: set[str] = set()
    last_said = -1
    for place, item in enumerate(request):
        where = f"item {place}"
        if item.get("type", "message") == "message":
            last_said = place
            output = {"output_text": "text", "refusal": "refusal"}
            if not isinstance(item["content"], str):
                yield from _texts(item["content"], output if item["role"] == "assistant" else _RESPONSES_INPUT, where)
            elif not item["content"].strip():
                yield f"{where} is blank"
        elif item["type"] == "function_call":
            if item["call_id"] in known or not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", item["call_id"]):
                yield f"{where}: a call id that is not new or does not match, {item['call_id']!r}"
            known.add(item["call_id"])
            waiting[item["call_id"]] = place
            if not _is_tool_name(item["name"], 64) or not isinstance(json.loads(item["arguments"]), dict):
                yield f"{where}: a name that does not match, or arguments that are no object, {item!r}"
        elif waiting.pop(item["call_id"], None) is None:
            yield f"{where}: an output without its call, {item['call_id']!r}"
        elif not isinstance(item["output"], str):
            yield from _texts(item["output"], _RESPONSES_INPUT, where)
    yield from (f"the call {call_id} has no output" for call_id, place in waiting.items() if place < last_said)


_ANTHROPIC_BLOCKS = {
    "user": {"text": "text", "image": "source", "document": "source", "tool_result": "tool_use_id"},
    "assistant": {"text": "text", "tool_use": "input", "thinking": "thinking"},
}


def _anthropic(request: Request) -> Iterator[str]:
    """Anthropic's messages: platform.claude.com/docs/en/api/messages, and the errors of the API.

    platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls: results immediately follow their calls, and
    come first in the content of the user's message, before any text.

    - "messages: first message must use the "user" role"
    - "messages: text content blocks must contain non-whitespace text", "messages.1: content must be non-empty"
    - "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1."
    - "messages.2.content.1: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1."
    - "messages.1.content.0.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
    - "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", "ids must be unique"
    - "'image' blocks are not permitted within assistant turns"
    - "The final block in an assistant message cannot be `thinking`."
    """
    yield from _alternate(request, "assistant")
    known: set[str] = set()
    for place, message in enumerate(request):
        blocks, where = message["content"], f"message {place}"
        yield from _texts(blocks, _ANTHROPIC_BLOCKS[message["role"]], where)
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if known & {*calls} or len({*calls}) != len(calls) or not all(re.fullmatch("[a-zA-Z0-9_-]+", i) for i in calls):
            yield f"{where}: ids that are not new or do not match, {calls}"
        known |= {*calls}
        names = [block["name"] for block in blocks if block["type"] == "tool_use"]
        yield from (f"{where}: a name {name!r}" for name in names if not _is_tool_name(name, 128))
        if blocks[-1]["type"] == "thinking":
            yield f"{where} ends with a thought"
        yield from (
            f"{where}: the input of a call is no object" for b in blocks if not isinstance(b.get("input", {}), dict)
        )
        yield from (f"{where}: a source {b!r}" for b in blocks if "source" in b and not _is_source(b["source"]))
        for block in blocks:
            if block["type"] == "tool_result" and not isinstance(block["content"], str):
                taken = {key: field for key, field in _ANTHROPIC_BLOCKS["user"].items() if key != "tool_result"}
                yield from _texts(block["content"], taken, where)
    for place, (before, message) in enumerate(pairwise([{"content": []}, *request, {"content": []}])):
        calls = [block["id"] for block in before["content"] if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        first = message["content"][: len(results)]
        is_open = place >= len(request) - 1 and len(results) == len(message["content"])
        if any(block["type"] != "tool_result" for block in first):
            yield f"message {place}: something comes before the results"
        if not (set(results) <= set(calls) if is_open else results == calls) or len(set(results)) != len(results):
            yield f"message {place}: the results {results} of the calls {calls}"


def _is_source(source: dict[str, Any]) -> bool:
    if source["type"] == "url":
        return str(source["url"]).startswith("https://")
    return source["type"] == "base64" and "/" in source["media_type"] and _is_base64(source["data"])


def _is_base64(data: str) -> bool:
    try:
        return bool(b64decode(data, validate=True))
    except ValueError:
        return False


def _alternate(
    request: Request, model: str, is_apart: Callable[[dict[str, Any]], bool] = lambda _: False
) -> Iterator[str]:
    if request and request[0]["role"] != "user":
        yield "the first message is not the user's"
    if {message["role"] for message in request} - {"user", model}:
        yield "there are other roles"
    for place, (one, two) in enumerate(pairwise(request), 1):
        if one["role"] == two["role"] and not is_apart(one):
            yield f"message {place}: {two['role']} again"


_GEMINI_PARTS = {"text", "inlineData", "fileData", "functionCall", "functionResponse"}


def _gemini(request: Request) -> Iterator[str]:
    """Gemini's contents: ai.google.dev/gemini-api/docs/function-calling, and the errors of the API.

    - "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
    - "Please ensure that function response turn comes immediately after a function call turn."
    - "Please ensure that the number of function response parts is equal to the number of function call parts of the
      function call turn." Any other part of that turn counts too (google-gemini/gemini-cli#16137), so that what the
      user says next is a content of its own (anomalyco/opencode#43479).
    - "GenerateContentRequest.contents[1].parts: contents.parts must not be empty."
    - Names: ai.google.dev/api/caching#FunctionDeclaration, "a-z, A-Z, 0-9, or contain underscores, colons, dots, and
      dashes, with a maximum length of 64"; "Invalid function name. Must start with a letter or an underscore."
    """
    yield from _alternate(request, "model", lambda content: bool(_named(content, "functionResponse")))
    calls: list[str] = []
    for place, content in enumerate(request):
        where = f"content {place}"
        if not content["parts"]:
            yield f"{where} has no parts"
        for part in content["parts"]:
            if len(part.keys() & _GEMINI_PARTS) != 1 or not part.get("text", "x").strip():
                yield f"{where}: a part {part!r}"
            if not isinstance(part.get("functionResponse", {}).get("response", {}), dict):
                yield f"{where}: a response that is no object"
        answers = _named(content, "functionResponse")
        is_open = place == len(request) - 1
        if answers and len(answers) != len(content["parts"]):
            yield f"{where}: results beside other parts"
        if not (_is_part_of(answers, calls) if is_open else answers == calls):
            yield f"{where}: the results {answers} of the calls {calls}"
        calls = _named(content, "functionCall")
        yield from (
            f"{where}: a name {name!r}"
            for name in [*answers, *calls]
            if not _is_tool_name(name, 64, ".:") or name[0] in "0123456789.:-"
        )


def _named(content: dict[str, Any], field: str) -> list[str]:
    return [part[field]["name"] for part in content["parts"] if field in part]


def _is_part_of(few: Sequence[str], many: Sequence[str]) -> bool:
    left = iter(many)
    return all(one in left for one in few)


def _ollama(request: Request) -> Iterator[str]:
    """Ollama's messages: docs/api.md of ollama/ollama.

    Content is a string, images are base64, arguments an object, and results name their tool. Templates write messages
    as they come, so that a result has to stand behind its call, and a name must not look like the markup around it.
    """
    calls: list[str] = []
    for place, message in enumerate(request):
        where, role = f"message {place}", message["role"]
        if role not in {"system", "user", "assistant", "tool"} or not isinstance(message["content"], str):
            yield f"{where}: {message!r}"
        if role != "tool" and not (
            str(message["content"]).strip() or message.get("images") or message.get("tool_calls")
        ):
            yield f"{where} is blank"
        if role != "tool" and calls:
            yield f"{where}: the calls {calls} have no result before it"
        if role == "tool":
            skipped = calls.index(message["tool_name"]) if message["tool_name"] in calls else None
            if skipped is None:
                yield f"{where}: a result of no call that waits"
            elif skipped and any(later["role"] != "tool" for later in request[place:]):
                yield f"{where}: results in another order than the calls"
            calls = calls[(skipped or 0) + 1 :]
        yield from (f"{where}: no base64 {image!r}" for image in message.get("images", ()) if not _is_base64(image))
        if role != "tool":
            functions = [call["function"] for call in message.get("tool_calls", ())]
            calls = [function["name"] for function in functions]
            yield from (f"{where}: a name {name!r}" for name in calls if not _is_tool_name(name, 64))
            yield from (
                f"{where}: arguments {f['arguments']!r}" for f in functions if not isinstance(f["arguments"], dict)
            )


RULES: dict[str, Callable[[Request], Iterator[str]]] = {
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": _ollama,
    "openai": _openai,
    "openai-responses": _responses,
}
