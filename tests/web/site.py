"""A memory with something of everything, a client of its pages, and a server of them."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from refold import Memory
from refold.listener import listening_on
from refold.web import app_of
from refold.web.server import web_server
from refold.web.site import Site
from refold.web.views import notice_line

TOKEN = "0123456789abcdef"  # noqa: S105 - of these tests alone
HOST = "http://localhost"
SECONDS = 20


def client_of(memory: Memory, *, writes: bool = True, follow_redirects: bool = True, **options: Any) -> TestClient:
    return TestClient(
        app_of(memory, writes=writes, token=TOKEN, **options), base_url=HOST, follow_redirects=follow_redirects
    )


def site_of(memory: Memory) -> Site:
    return Site(memory, writes=False, token=TOKEN, skills=memory.skills, encode=notice_line)


@contextmanager
def served(memory: Memory) -> Iterator[int]:
    """Serve a memory on a port of this machine during the block."""
    listening = listening_on(0)
    server = web_server(app_of(memory))
    thread = threading.Thread(target=asyncio.run, args=(server.serve([listening]),), daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(SECONDS)
        listening.close()
        assert not thread.is_alive()


def filled(memory: Memory, mark: str = "harbour") -> Memory:
    """Fill a memory: a session that evicts, notes, forks and shows contexts; a project, a skill, a board."""
    chat = memory.conversation("trip", project="acme/api", window_tokens=90)
    chat.append("system", f"You know the {mark}.", pinned=True)
    for number in range(12):
        chat.append("user" if number % 2 == 0 else "assistant", f"{mark}, word {number} of a longer sentence")
        if number % 3 == 0:
            chat.scratchpad.set(f"key {number} {mark}", f"{mark} {number}")
    chat.scratchpad.note(f"note of {mark}")
    chat.state.set(f"place {mark}", {"name": mark})
    project = memory.project("acme/api")
    for number, category in enumerate(("preference", "convention", "pattern", "correction", "fact")):
        project.add(f"{mark} {category} {number}", category=category, importance=0.1 + 0.2 * number, keywords=[mark])
    memory.project("acme/api").recall(mark, conversation=chat)
    memory.show(memory.context(chat, query=f"{mark}?"))
    chat.fork("trip-2", at=10)
    board = memory.board(session="trip")
    board.initialise(project_id="acme", active_node_id="n1")
    board.set_node_context({"id": "n1", "label": mark})
    board.set_working_history(f"history of {mark}")
    board.append_message({"id": "1", "content": f"on the board: {mark}", "created_at": "2026-01-01"})
    memory.skills.library.learn(
        f"{mark if mark.isalpha() else 'evil'}-skill", f"About {mark}.", f"# {mark}\n\nBody.", status="active"
    )
    return memory
