"""The project for asyncio: what needs a vector is embedded by a thread before it is written."""

from functools import partial
from typing import TYPE_CHECKING, Any

from refold.engine import batch as batches
from refold.entry import Entry
from refold.memory.awaiting import hopping, reading, writing
from refold.memory.door import Door
from refold.memory.project import ManyHits, Project
from refold.results import Hits, Upserted

if TYPE_CHECKING:
    import datetime
    from collections.abc import Sequence


class AsyncProject:
    """A project: reads answer at once, mutations are awaited; what is embedded for them is embedded in a thread."""

    __slots__ = ("door", "plain")

    def __init__(self, door: Door, plain: Project) -> None:
        self.door = door
        self.plain = plain

    async def _embedded(self, text: str, options: dict[str, Any]) -> None:
        """Embed a text where that holds up no task; the verb that follows finds its vector."""
        if options.get("vector") is None and text:
            await self.door.ticks.hop(partial(self.door.embedding.of, text))

    async def add(self, content: str, **options: Any) -> Entry:
        """Add a memory; takes what ``Project.add`` takes."""
        await self._embedded(content, options)
        return await self._add(content, **options)

    async def upsert(self, content: str, **options: Any) -> Upserted:
        """Merge or add a memory; takes what ``Project.upsert`` takes."""
        await self._embedded(content, options)
        return await self._upsert(content, **options)

    async def recall(self, query: str, **options: Any) -> Hits:
        """Search and record what was found; takes what ``Project.recall`` takes."""
        await self._embedded(query, options)
        return await self._recall(query, **options)

    async def search_many(self, queries: "Sequence[str]", **options: Any) -> ManyHits:
        """Answer many queries in a thread, in a batch at once; takes what ``Project.search_many`` takes."""
        verb = partial(self.plain.search_many, queries, **options)
        return verb() if batches.active(self.door.engine) is not None else await self.door.ticks.hop(verb)

    _add = writing(Project.add)
    _upsert = writing(Project.upsert)
    _recall = writing(Project.recall)
    unmerge = writing(Project.unmerge)
    update = writing(Project.update)
    delete = writing(Project.delete)
    clear = writing(Project.clear)
    review = writing(Project.review)
    approve = writing(Project.approve)
    reject = writing(Project.reject)
    archive = writing(Project.archive)
    record_episode = writing(Project.record_episode)
    decay = hopping(Project.decay)
    prune = hopping(Project.prune)
    compact = hopping(Project.compact)
    erase = hopping(Project.erase)
    search = reading(Project.search)
    search_episodes = reading(Project.search_episodes)
    get = reading(Project.get)
    list = reading(Project.list)
    count = reading(Project.count)
    stats = reading(Project.stats)
    history = reading(Project.history)
    events = reading(Project.events)

    @property
    def name(self) -> str:
        """The project's name."""
        return self.plain.name

    @property
    def place(self) -> tuple[str, int]:
        """The project's stream and the seq at which the handle stands."""
        return self.plain.place

    def at(self, at: "int | datetime.datetime") -> "AsyncProject":
        """Return the project as it was at a seq or an aware datetime."""
        return AsyncProject(self.door, self.plain.at(at))

    def __repr__(self) -> str:
        """Return the handle with its count."""
        return f"Async{self.plain!r}"
