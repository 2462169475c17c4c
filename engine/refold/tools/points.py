"""What hooks are told and what they may answer: the eight points of a session, and the results of each."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from refold.memory.conversation import Conversation
from refold.memory.memory import Memory

SESSION_START: Final = "session_start"
USER_MESSAGE: Final = "user_message"
BEFORE_LLM: Final = "before_llm"
AFTER_LLM: Final = "after_llm"
BEFORE_TOOL: Final = "before_tool"
AFTER_TOOL: Final = "after_tool"
SESSION_END: Final = "session_end"
COMPACTION: Final = "compaction"

POINTS: Final = (
    SESSION_START,
    USER_MESSAGE,
    BEFORE_LLM,
    AFTER_LLM,
    BEFORE_TOOL,
    AFTER_TOOL,
    SESSION_END,
    COMPACTION,
)


Write: TypeAlias = Callable[[Sequence[Any]], object]
"""A write of a hook, called with the sources to cite."""


class HookContext(Struct, frozen=True):
    """What every hook is told: the memory and the conversation, the project, and who the model is."""

    memory: Memory
    conversation: Conversation
    project: str = "default"
    provider_name: str = ""
    model_name: str = ""
    shared: dict[str, Any] = {}
    """What hooks leave for later hooks of the same session; no part of the memory."""
    deferred: list[Write] | None = None
    """Writes that wait until the loop has appended the user's message; ``None`` where no loop does."""

    @property
    def session_id(self) -> str:
        """The conversation's id."""
        return self.conversation.id

    def write(self, text: str, write: Write) -> None:
        """Do a write that is derived from a user's message, with it as the source.

        It waits for the message where the loop is about to append that. Elsewhere it is done at once, and cites the
        newest message if that is the user's and says so; otherwise only an event that names the conversation itself
        goes with it.
        """
        if self.deferred is not None:
            self.deferred.append(write)
            return
        newest = self.conversation.window(last=1)
        write([message for message in newest if message.role == "user" and message.content == text])


class UserMessageResult(Struct, frozen=True):
    """A user's message in another form, or a reason to stop before the model sees it."""

    modified_message: str | None = None
    stop_reason: str | None = None


class BeforeLlmResult(Struct, frozen=True):
    """The messages that the model gets instead, in the form that the provider takes."""

    modified_messages: list[dict[str, Any]] | None = None


class AfterLlmResult(Struct, frozen=True):
    """Another text in the place of the model's, or a reason to stop."""

    replacement_text: str | None = None
    block_reason: str | None = None


class BeforeToolResult(Struct, frozen=True):
    """Other arguments for a tool, or a reason to skip it; ``output`` is then what the model gets."""

    skip: bool = False
    skip_reason: str | None = None
    modified_arguments: dict[str, Any] | None = None
    output: str | None = None


class AfterToolResult(Struct, frozen=True):
    """More for the model to read behind a tool's output, another output, or a reason to stop."""

    injected_context: str | None = None
    replacement_output: str | None = None
    block_reason: str | None = None
