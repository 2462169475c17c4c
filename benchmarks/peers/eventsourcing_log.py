"""The library eventsourcing on SQLite: conversations as aggregates, each with the same window."""

import os
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import workloads

_application: Any = import_module("eventsourcing.application")
_domain: Any = import_module("eventsourcing.domain")


class Chat(_domain.Aggregate):  # type: ignore[misc]
    """A conversation with a token-bounded window, as its documentation would have it written."""

    def __init__(self, window_tokens: int) -> None:
        self.window_tokens = window_tokens
        self.tokens = 0
        self.messages: deque[tuple[str, str, int]] = deque()

    @_domain.event("MessageAppended")  # type: ignore[untyped-decorator]
    def append(self, role: str, content: str, tokens: int) -> None:
        """Append a message, then evict what no longer fits."""
        self.messages.append((role, content, tokens))
        self.tokens += tokens
        while self.tokens > self.window_tokens:
            self.tokens -= self.messages.popleft()[2]


class Log:
    """An application with some conversations; a save is durable, as SQLite is by default."""

    def __init__(self, directory: Path, conversations: int, window_tokens: int) -> None:
        directory.mkdir()
        settings = {
            "PERSISTENCE_MODULE": "eventsourcing.sqlite",
            "SQLITE_DBNAME": os.fspath(directory / "events.db"),
        }
        self._application = _application.Application(env=settings)
        self.chats = [Chat(window_tokens=window_tokens) for _ in range(conversations)]
        self._application.save(*self.chats)

    def append(self, said: Sequence[workloads.Text]) -> None:
        """Append every text, to the conversations in turn, and save once."""
        count = len(self.chats)
        for place, (content, tokens) in enumerate(said):
            self.chats[place % count].append("user", content, tokens)
        self._application.save(*self.chats)

    def append_each(self, place: int, said: Sequence[workloads.Text]) -> None:
        """Append every text to one conversation and save after each, as a chat does."""
        chat = self.chats[place]
        for content, tokens in said:
            chat.append("user", content, tokens)
            self._application.save(chat)

    def replayed(self) -> list[Any]:
        """Return every conversation, built again from its events."""
        return [self._application.repository.get(chat.id) for chat in self.chats]

    def close(self) -> None:
        """Release the database."""
        self._application.close()


@contextmanager
def opened(directory: Path, conversations: int, window_tokens: int) -> Generator[Log, None, None]:
    """Open a log in a directory of its own."""
    log = Log(directory / f"eventsourcing-{conversations}", conversations, window_tokens)
    try:
        yield log
    finally:
        log.close()
