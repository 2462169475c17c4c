"""refold's own JSONL: an export, which loads into an empty store with every stamp as it was, and beside others."""

import re
from typing import Final

from refold import Memory
from refold.message import MessageAppended

_HEAD: Final = re.compile(rb'\s*\{\s*"refold"\s*:\s*\d')


class RefoldRecorder:
    """Recognises an export; ``Memory.load`` reads it, since it holds events, not only messages."""

    name = "refold"

    def recognises(self, head: bytes) -> bool:
        """Return whether the bytes begin with the head of an export."""
        return _HEAD.match(head) is not None

    def counts(self, memory: Memory, after: int) -> tuple[int, int]:
        """Return how many conversations and messages a memory has in its log behind a seq."""
        conversations: set[str] = set()
        messages = 0
        for event, stamp in memory.events(after=after):
            messages += isinstance(event, MessageAppended)
            if stamp.stream.startswith("conversation/"):
                conversations.add(stamp.stream)
        return len(conversations), messages


REFOLD: Final = RefoldRecorder()
