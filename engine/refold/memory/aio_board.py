"""The board for asyncio: reads answer at once, what changes it is awaited."""

from typing import TYPE_CHECKING

from refold.memory.awaiting import hopping, reading, writing
from refold.memory.boards.handle import Board
from refold.memory.door import Door

if TYPE_CHECKING:
    import datetime


class AsyncBoard:
    """A board: reads answer at once, mutations are awaited and return when they are durable."""

    __slots__ = ("door", "plain")

    def __init__(self, door: Door, plain: Board) -> None:
        self.door = door
        self.plain = plain

    set = writing(Board.set)
    initialise = writing(Board.initialise)
    set_session = writing(Board.set_session)
    set_project_graph = writing(Board.set_project_graph)
    set_elements_graph = writing(Board.set_elements_graph)
    set_project_structure = writing(Board.set_project_structure)
    set_node_context = writing(Board.set_node_context)
    set_fetched_context = writing(Board.set_fetched_context)
    set_working_history = writing(Board.set_working_history)
    set_messages = writing(Board.set_messages)
    set_messages_meta = writing(Board.set_messages_meta)
    set_last_user_message = writing(Board.set_last_user_message)
    append_message = writing(Board.append_message)
    update_settings = writing(Board.update_settings)
    hydrate = writing(Board.hydrate)
    erase = hopping(Board.erase)
    get = reading(Board.get)
    get_settings = reading(Board.get_settings)
    to_dict = reading(Board.to_dict)
    to_json = reading(Board.to_json)
    bundle = reading(Board.bundle)
    events = reading(Board.events)
    subscribe = reading(Board.subscribe)
    subscribe_settings = reading(Board.subscribe_settings)

    @property
    def session(self) -> str | None:
        """The session that the board is of, ``None`` for that of a node."""
        return self.plain.session

    @property
    def project(self) -> str | None:
        """The project that the handle names, ``None`` where it is what the session recorded."""
        return self.plain.project

    @property
    def node(self) -> str | None:
        """The node that the handle names, ``None`` where it is what the session recorded."""
        return self.plain.node

    @property
    def version(self) -> int:
        """The version of the board's stream."""
        return self.plain.version

    @property
    def place(self) -> tuple[str, int]:
        """The board's stream and the seq at which the handle stands."""
        return self.plain.place

    def at(self, at: "int | datetime.datetime") -> "AsyncBoard":
        """Return the board as it was at a seq or an aware datetime."""
        return AsyncBoard(self.door, self.plain.at(at))

    def __repr__(self) -> str:
        """Return the handle with its count."""
        return f"Async{self.plain!r}"
