"""A server of the protocol in plain Python, with the manners that its arguments name: good ones and all the bad ones.

It is run as a program, and imports nothing but the standard library, so that it begins at once.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

MANNERS = set(sys.argv[1:])
OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}}


def told(value: Any) -> dict[str, Any]:
    """The result of a call that went well."""
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def say(line: str) -> None:
    """Write a line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def die(_: dict[str, Any]) -> Any:
    os.write(2, b"I am dying of this\n")
    os._exit(3)


def hang(_: dict[str, Any]) -> Any:
    time.sleep(3_600)


def noisy(given: dict[str, Any]) -> Any:
    for line in ("this is no JSON", '{"neither": "is this a message"}', "[1]", "\u2603", ""):
        say(line)
    os.write(1, b"\xff\xfe not even text\n")
    return told(given.get("text", ""))


def flood(_: dict[str, Any]) -> Any:
    piece = b"x" * 1_000_000
    while True:
        os.write(1, piece)


def inner(_: dict[str, Any]) -> Any:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    return told(str(child.pid))


CALLS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "echo": lambda given: told(given.get("text", "")),
    "pid": lambda _: told(str(os.getpid())),
    "environment": lambda _: told(" ".join(sorted(os.environ))),
    "structured": lambda _: told({"n": 5}) | {"structuredContent": {"n": 5}},
    "lying": lambda _: told("x") | {"structuredContent": {"n": "no number"}},
    "silent_liar": lambda _: told("x"),
    "failing": lambda _: told("the disk is full") | {"isError": True},
    "picture": lambda _: {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
    "nothing": lambda _: {"content": []},
    "shapeless": lambda _: {"content": "this is no list"},
    "big": lambda _: told("x" * 10_000_000),
    "die": die,
    "hang": hang,
    "noisy": noisy,
    "flood": flood,
    "inner": inner,
}


def deaf(_: dict[str, Any]) -> Any:
    os.close(0)
    say(json.dumps({"jsonrpc": "2.0", "id": LAST["id"], "result": told("I hear no more")}))
    time.sleep(3_600)


def asking(_: dict[str, Any]) -> Any:
    while True:
        say(json.dumps({"jsonrpc": "2.0", "id": "again", "method": "ping"}))


def at_length(_: dict[str, Any]) -> Any:
    """An error that is cut, whatever its bound, within the key."""
    return {"content": [{"type": "text", "text": f"{os.environ['KEY']} " * 4_000}], "isError": True}


def indiscreet_at_length(_: dict[str, Any]) -> Any:
    os.write(2, f"{os.environ['KEY']} ".encode() * 400)
    os._exit(5)


def indiscreet(_: dict[str, Any]) -> Any:
    os.write(2, f"no such key: {os.environ['KEY']}\n".encode())
    os._exit(5)


UNLISTED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "deaf": deaf,
    "asking": asking,
    "indiscreet": indiscreet,
    "at_length": at_length,
    "indiscreet_at_length": indiscreet_at_length,
    "in_blocks": lambda _: {
        "content": [{"type": "resource", "resource": {"uri": "a:b", "text": f"bad {os.environ['KEY']}"}}],
        "isError": True,
    },
    "own_words": lambda _: {"content": [{"type": "text", "text": f"bad key {os.environ['KEY']}"}], "isError": True},
    "seen": lambda _: {
        "content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}],
        "structuredContent": {"n": 1},
    },
    "trap": lambda _: told("x") | {"structuredContent": {"x": "a" * 40 + "b"}},
}
"""What is not listed by a server of good manners, and can be called all the same."""

REFUSED = {"quota": (-32000, "the quota is used up"), "bank": (-32600, "Session terminated by the bank")}
"""What is answered with an error of the protocol."""

TRAP = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}
NUMBERED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
RECURSIVE = {
    "type": "object",
    "properties": {"tree": {"$ref": "#/$defs/tree"}},
    "$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}}},
}


def tools() -> list[dict[str, Any]]:
    """What is listed."""
    listed: list[dict[str, Any]] = [
        {"name": name, "description": f"Do {name}.", "inputSchema": OBJECT} for name in CALLS
    ]
    for tool in listed:
        if tool["name"] in {"structured", "lying", "silent_liar"}:
            tool["outputSchema"] = NUMBERED
    listed[0]["annotations"] = {"readOnlyHint": True, "openWorldHint": False}
    if "odd" in MANNERS:
        listed += [
            {"name": "recursive", "inputSchema": RECURSIVE},
            {"name": "a:strange/name " + "x" * 80, "inputSchema": OBJECT},
            {"name": "echo", "inputSchema": OBJECT},
        ]
    if "trap" in MANNERS:
        listed += [{"name": "trap", "inputSchema": OBJECT, "outputSchema": TRAP}]
    if "untyped" in MANNERS:
        listed += [{"name": "of text", "inputSchema": {"type": "string"}}]
    if "many" in MANNERS:
        listed += [{"name": f"tool{number}", "inputSchema": OBJECT} for number in range(200)]
    if "fewer" in MANNERS:
        listed = listed[:2]
    return listed


LISTED = {"count": 0}
LAST: dict[str, Any] = {"id": 0}


def listing(params: dict[str, Any]) -> dict[str, Any]:
    """One page of them."""
    LISTED["count"] += 1
    if "endless" in MANNERS:
        return {"tools": [], "nextCursor": f"{params.get('cursor', '')}x"}
    if "changing" in MANNERS and LISTED["count"] > 1:
        return {"tools": tools()[1:3]}
    if "paged" in MANNERS:
        begin = int(params.get("cursor") or 0)
        page = {"tools": tools()[begin : begin + 5]}
        return page | ({"nextCursor": str(begin + 5)} if begin + 5 < len(tools()) else {})
    return {"tools": tools()}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request, ``None`` for a method that is not known."""
    if method == "initialize":
        about = {"name": "manners", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return listing(params)
    if method == "tools/call":
        found: dict[str, Any] = (CALLS | UNLISTED)[params["name"]](params.get("arguments") or {})
        return found
    return None


def main() -> None:
    """Answer until nobody asks any more."""
    if "stubborn" in MANNERS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "dead" in MANNERS:
        os.write(2, b"no licence found\n")
        sys.exit(4)
    if "mute" in MANNERS:
        time.sleep(3_600)
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked or "method" not in asked:
            continue
        LAST["id"] = asked["id"]
        name = (asked.get("params") or {}).get("name", "")
        result = None if name in REFUSED else answer(asked["method"], asked.get("params") or {})
        code, message = REFUSED.get(name, (-32601, "no such method"))
        said = {"error": {"code": code, "message": message}} if result is None else {"result": result}
        say(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}))
    if "stubborn" in MANNERS:
        time.sleep(3_600)


if __name__ == "__main__":
    main()
