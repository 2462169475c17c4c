"""Settings and what a session has worked on, for asyncio: reads answer at once, mutations are awaited."""

from refold.memory.awaiting import reading, writing
from refold.memory.door import Door
from refold.memory.sessions import SessionMemory
from refold.memory.settings import Settings


class AsyncSettings:
    """The settings of a store: reads answer at once, ``set`` and ``count_usage`` are awaited."""

    __slots__ = ("door", "plain")

    def __init__(self, door: Door, plain: Settings) -> None:
        self.door = door
        self.plain = plain

    set = writing(Settings.set)
    count_usage = writing(Settings.count_usage)
    get = reading(Settings.get)
    items = reading(Settings.items)

    def __repr__(self) -> str:
        """Return the handle with what differs from the defaults."""
        return f"Async{self.plain!r}"


class AsyncSession:
    """What one conversation has worked on: reads answer at once, what is noted is awaited."""

    __slots__ = ("door", "plain")

    def __init__(self, door: Door, plain: SessionMemory) -> None:
        self.door = door
        self.plain = plain

    describe_task = writing(SessionMemory.describe_task)
    note_file = writing(SessionMemory.note_file)
    note_finding = writing(SessionMemory.note_finding)
    record_call = writing(SessionMemory.record_call)
    record_extraction = writing(SessionMemory.record_extraction)
    provenance = writing(SessionMemory.provenance)
    check_writable = reading(SessionMemory.check_writable)
    summary = reading(SessionMemory.summary)
    to_text = reading(SessionMemory.to_text)
    extracted_seq = reading(SessionMemory.extracted_seq)
    now_ns = reading(SessionMemory.now_ns)
    task = reading(SessionMemory.task)
    files = reading(SessionMemory.files)
    findings = reading(SessionMemory.findings)
    calls = reading(SessionMemory.calls)

    def __repr__(self) -> str:
        """Return the handle with its counts."""
        return f"Async{self.plain!r}"
