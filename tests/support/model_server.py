"""A server on this machine that answers as models do, or as badly as one wants."""

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class FakeModel:
    """What the server answers, one after the other, and what it was asked."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.released = threading.Event()
        self.url = ""


def openai(content: str | None, arguments: str | None = None) -> dict[str, Any]:
    """A reply of chat completions."""
    call = {"id": "c1", "type": "function", "function": {"name": "answer", "arguments": arguments}}
    calls = {} if arguments is None else {"tool_calls": [call]}
    message = {"role": "assistant", "content": content, **calls}
    return {"choices": [{"message": message}], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}


def anthropic(text: str | None, given: Any = None) -> dict[str, Any]:
    """A reply of messages."""
    block = {"type": "text", "text": text} if given is None else {"type": "tool_use", "name": "answer", "input": given}
    return {
        "content": [{"type": "thinking", "thinking": "hm"}, block],
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }


@contextmanager
def serving(*answers: Any) -> Iterator[FakeModel]:
    """A server whose answers are JSON values, bytes, (status, value), or ``"hang"``."""
    model = FakeModel(list(answers))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            model.asked.append(
                (self.path, {key.lower(): held for key, held in self.headers.items()}, json.loads(content))
            )
            answer = model.answers.pop(0)
            if answer == "hang":
                model.released.wait(30)
                return
            status, said = answer if isinstance(answer, tuple) else (200, answer)
            sent = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    model.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield model
    finally:
        model.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def dripping(head: bytes, drop: bytes) -> Iterator[str]:
    """The address of a server that answers with a head and then with drops, without an end."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.recv(65_536)
                connection.sendall(head)
                while not done.wait(0.02):
                    connection.sendall(drop)

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            done.set()
            thread.join()
