"""Watched resources: what the log tells of them, from this process and from others, told to the clients who asked.

While anybody watches, one subscription to the log runs on its thread. It only marks what changed, and the loop is woken
once for all that was marked meanwhile, so that many events of one resource are one notification. Each connection is
told by a task of its own: one that does not read keeps no other waiting.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from mcp import types
from mcp.server import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated

from refold.errors import LimitExceeded
from refold.faces.mcp import addresses, contents
from refold.faces.mcp.addresses import Address
from refold.faces.mcp.binding import Binding
from refold.faces.mcp.limits import WATCHED_COUNT_MAX
from refold.faces.mcp.touching import ALL, Lists, touched

if TYPE_CHECKING:
    from mcp.server.connection import Connection

    from refold import Recorded, Subscription

_LIST: Final = ""
"""Stands among the addresses for the list of them."""


class _Watcher:
    """Who is told: how, of which addresses, and what waits to be told."""

    __slots__ = ("addresses", "pending", "send", "task")

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self.send = send
        self.addresses: dict[str, Address] = {}
        self.pending: dict[str, None] = {}
        self.task: asyncio.Task[None] | None = None

    def tell(self, uris: Iterable[str]) -> None:
        """Tell of changes, each once however often it changed while others were told."""
        self.pending.update(dict.fromkeys(uris))
        if self.pending and (self.task is None or self.task.done()):
            self.task = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        while self.pending:
            uri = next(iter(self.pending))
            del self.pending[uri]
            await self.send(uri)

    def end(self) -> None:
        """Tell nothing more."""
        self.pending.clear()
        if self.task is not None:
            self.task.cancel()


class Watches:
    """Everything that the clients of one running server watch."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._bus = InMemorySubscriptionBus()
        self._handler = ListenHandler(self._bus)
        self._streams = _Watcher(self._publish)
        self._streams_count: dict[str, int] = {}
        self._watchers: dict[Connection, _Watcher] = {}
        self._lists = Lists(binding)
        self._subscription: Subscription | None = None
        self._lock = threading.Lock()
        self._marked: set[Address] = set()
        self._has_news = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Watches"]:
        """Tell clients of changes until the block is left."""
        self._loop = asyncio.get_running_loop()
        try:
            yield self
        finally:
            self._handler.close()
            if self._subscription is not None:
                self._subscription.close()
            for watcher in (self._streams, *self._watchers.values()):
                watcher.end()

    # Connections that shook hands: each says which resource it watches.

    @property
    def connections_count(self) -> int:
        """How many of them watch, or have watched and are still there."""
        return len(self._watchers)

    def watch(self, connection: "Connection", uri: str) -> None:
        """Tell a connection of the changes of a resource from now on.

        Raises ``InvalidInput`` or ``NotFound`` for an address that is not served, ``LimitExceeded`` over
        ``WATCHED_COUNT_MAX``.
        """
        watcher = self._watchers.get(connection)
        if watcher is None:
            watcher = self._watchers[connection] = _Watcher(connection.send_resource_updated)
            connection.exit_stack.callback(self._forget, connection)
        self._add(watcher, uri)

    def unwatch(self, connection: "Connection", uri: str) -> None:
        """Tell a connection no more of a resource; one that it does not watch is none of its business."""
        watcher = self._watchers.get(connection)
        if watcher is not None:
            watcher.addresses.pop(uri, None)
            watcher.pending.pop(uri, None)

    def _forget(self, connection: "Connection") -> None:
        watcher = self._watchers.pop(connection, None)
        if watcher is not None:
            watcher.end()

    def _add(self, watcher: _Watcher, uri: str) -> None:
        address = addresses.parsed(uri)
        contents.check_served(self._binding, address)
        if len(watcher.addresses) >= WATCHED_COUNT_MAX and uri not in watcher.addresses:
            message = f"WATCHED_COUNT_MAX = {WATCHED_COUNT_MAX} resources are watched; unsubscribe from some first"
            raise LimitExceeded(message)
        watcher.addresses[uri] = address.whole
        self._subscribe()

    # Requests that are streams: each says at once what it listens to.

    async def listen(
        self, context: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve one stream of changes until its client leaves; raises what ``watch`` raises."""
        uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        if len(uris) > WATCHED_COUNT_MAX:
            message = f"{len(uris)} resources are over WATCHED_COUNT_MAX = {WATCHED_COUNT_MAX}; listen to fewer"
            raise LimitExceeded(message)
        found = {uri: addresses.parsed(uri) for uri in uris}
        for address in found.values():
            contents.check_served(self._binding, address)
        self._subscribe()
        for uri, address in found.items():
            self._streams.addresses[uri] = address.whole
            self._streams_count[uri] = self._streams_count.get(uri, 0) + 1
        try:
            return await self._handler(context, params)
        finally:
            for uri in uris:
                self._release(uri)

    def _release(self, uri: str) -> None:
        self._streams_count[uri] -= 1
        if not self._streams_count[uri]:
            del self._streams_count[uri]
            self._streams.addresses.pop(uri, None)

    async def _publish(self, uri: str) -> None:
        await self._bus.publish(ResourcesListChanged() if uri == _LIST else ResourceUpdated(uri))

    # What the log tells.

    def _subscribe(self) -> None:
        """Listen to the log, from now on; again, if reading it for us had failed."""
        if self._subscription is None or not self._subscription.is_alive:
            self._subscription = self._binding.memory.subscribe(self._mark)

    def _mark(self, recorded: "Recorded") -> None:
        """Mark what an event changed; runs on the thread of the subscription."""
        reached = touched(self._binding, recorded)
        is_new = self._lists.is_changed(recorded)
        with self._lock:
            is_first = not self._marked and not self._has_news
            self._marked.update(reached)
            self._has_news = self._has_news or is_new
            is_first = is_first and bool(self._marked or self._has_news)
        if is_first and self._loop is not None:
            with suppress(RuntimeError):  # The loop has ended, and with it everybody who watched.
                self._loop.call_soon_threadsafe(self._spread)

    def _spread(self) -> None:
        """Tell everybody what was marked; runs on the loop."""
        with self._lock:
            marked, has_news = self._marked, self._has_news
            self._marked, self._has_news = set(), False
        for watcher in (self._streams, *self._watchers.values()):
            watcher.tell([uri for uri, address in watcher.addresses.items() if is_among(address, marked)])
        if has_news:
            self._streams.tell([_LIST])


def is_among(address: Address, marked: set[Address]) -> bool:
    """Return whether a resource is one of those that were marked, by itself, by its kind, or with everything."""
    return address in marked or Address(address.kind) in marked or ALL in marked
