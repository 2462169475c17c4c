"""The files of a model for asyncio."""

from refold.memory.awaiting import reading, writing
from refold.memory.door import Door
from refold.memory.files import Files


class AsyncFiles:
    """A tree of files: reads answer at once, what changes it is awaited."""

    __slots__ = ("door", "plain")

    def __init__(self, door: Door, plain: Files) -> None:
        self.door = door
        self.plain = plain

    create = writing(Files.create)
    str_replace = writing(Files.str_replace)
    insert = writing(Files.insert)
    delete = writing(Files.delete)
    rename = writing(Files.rename)
    list = reading(Files.list)
    read = reading(Files.read)
    view = reading(Files.view)

    @property
    def name(self) -> str:
        """The name of the tree."""
        return self.plain.name

    def __repr__(self) -> str:
        """Return the handle with its count."""
        return f"Async{self.plain!r}"
