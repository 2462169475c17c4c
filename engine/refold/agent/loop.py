"""A small agent loop of model, tools, hooks and memory, recorded so that it can run again with only the memory.

All outside input ends up in the log: the user's messages, the model's replies, the arguments and results of each tool
call, and the context shown to the model. `refold.agent.rerun` feeds them to the same loop in another memory.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from itertools import takewhile
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold import checks
from refold.agent.arguments import decode_arguments
from refold.agent.candidates import tokens_of
from refold.agent.context import Context, is_shown
from refold.agent.front_messages import (
    NOTHING_LEFT,
    has_requests,
    hear,
    hear_others,
    is_heard,
    questions_of,
    questions_outside,
    withheld_with,
)
from refold.agent.hooks import USER_MESSAGE, Blocked, HookContext, Hooks
from refold.agent.providers import Usage
from refold.agent.recipe import ContextBudget
from refold.agent.reply import ASYNCHRONOUS, INTERRUPTED, Call, Reply, recorded_calls, render_calls, storable_reply
from refold.agent.tools import OK, ToolResult
from refold.agent.turn_lock import ANSWERED, CANCELLED, ERASED, GONE, PASSED, Question, TurnOver, run_alone
from refold.engine.reader import Request
from refold.errors import Closed, InvalidInput, LimitExceeded, StoreBusy, WrongVersion
from refold.event import ForkDropped, Restored, StateImported
from refold.limits import (
    LOCAL_CONTEXT_TOKENS,
    LOOP_FAILURES_COUNT_MAX,
    LOOP_STEPS_COUNT_DEFAULT,
    REDO_COUNT_MAX,
)
from refold.memory.conversation import Conversation
from refold.memory.core import core_of
from refold.memory.memory import Memory
from refold.memory.reasons import shorten
from refold.memory.turns import (
    find_question,
    groups_of,
    is_answer,
    is_question,
    is_there,
    newest_group,
    open_turn_of,
    question_seq,
    record_request,
    required_groups,
)
from refold.message import (
    HEARD_KEY,
    ORIGINAL_KEY,
    STOP_KEY,
    Message,
    MessageAppended,
    text_of,
)
from refold.results import SessionSummary
from refold.views.session import ToolExecuted
from refold.views.window import WINDOW, WindowCleared

T = TypeVar("T")

_CUT: Final = "Error: too long"  # The output of a call where not even an error that says more has room.
SKIPPED: Final = "skipped"  # The outcome of a call that a hook answered instead of the tool.
# The reason to end a turn whose last reply has neither text nor calls. Such a reply is not recorded as an answer.
EMPTY: Final = "the model's answer is empty; resume() asks again"
# The reasons to end a turn whose calls the model would not see, and would make again.
TOO_LONG: Final = (
    "the model's calls do not fit the window, so they were not made; raise set_window_tokens, and resume() asks again"
)
UNSEEN: Final = (
    "the window no longer holds the newest calls of this turn, and the model would make them again; raise "
    "set_window_tokens, and ask with another message"
)
UNSHOWN: Final = (
    "the context has no room for the newest calls of this turn, and the model would make them again; raise the budget, "
    "and resume() goes on"
)
UNANSWERED: Final = "the user's last message has no answer"  # Why a session failed if no turn of this loop says it.
_UNDOING: Final = (WindowCleared, StateImported, Restored, ForkDropped)  # No window holds what came before.
_LOCAL_BUDGET: Final = ContextBudget(parts_tokens=LOCAL_CONTEXT_TOKENS)


class Model(Protocol):
    """The interface that the loop needs from a model: an object of yours that calls a provider."""

    def reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Reply:
        """Reply to messages, given the available tools, both in OpenAI's format."""
        ...


class Turn(Struct, frozen=True):
    """The result of one user message: the last text, the number of model calls, and the reason if the turn was stopped.

    `usage` is the sum of the usage that the model reported; `notices` describe what hooks did during the turn, in words
    for the user.
    """

    text: str
    steps: int
    stop_reason: str | None = None
    usage: Usage = Usage()
    notices: tuple[str, ...] = ()


class ModelReply(NamedTuple):
    """A model's reply, its message unless it was empty or its calls do not fit, and the reason if it ends the turn."""

    reply: Reply
    message: Message | None
    stop_reason: str | None


class Execution(NamedTuple):
    """The result of a call, and its output for the model."""

    result: ToolResult
    output: str


def unanswered_message(chat: Conversation) -> Message | None:
    """Return the newest user message, in the window or evicted, or `None` if the model has answered it.

    The answer of a loop counts for what its model was shown, and one that the host appends for all before it.
    """
    core, at = core_of(chat)
    return open_turn_of(core, chat.place[0], at).question


class AgentLoop:
    """One session of an agent; its state lives in the conversation, so another loop can continue it.

    In one process, a conversation has one turn at a time: see `run`. `is_cancelled` is asked before each call of the
    model or a tool, and before a reply is recorded; once it returns true, the turn ends. Tools find it in their
    `ToolContext`. `budget` applies to each context; without one, a model of the provider `"ollama"` gets shorter parts
    than others.
    `provider_name` and `model_name` are passed to hooks. `profile`, `journal` and `files` name those that contexts show
    and tools write to: give each user their own, because conversations that share one read the same facts. `user_name`,
    by default the name of the profile unless that is `"default"`, is recorded as the name of the user's messages: in a
    project that several users share, a context says which of them said what, except for the one who asks, and no user
    has what another one said forgotten.

    >>> from refold import Memory
    >>> class Parrot:
    ...     def reply(self, messages, tools):
    ...         return Reply(messages[-1]["content"])
    >>> memory = Memory()
    >>> AgentLoop(memory, memory.conversation("chat-42"), Parrot()).run("Hello!").text
    'Hello!'
    """

    __slots__ = (
        *("memory", "chat", "_model", "_hooks", "_steps_count_max", "_budget", "_context", "_tools"),
        *("_failures_count_max", "_failures", "_has_begun", "_usage", "_is_cancelled", "_question", "_stop_reason"),
        "__weakref__",
    )

    def __init__(
        self,
        memory: Memory,
        chat: Conversation,
        model: Model,
        *,
        hooks: Hooks | None = None,
        steps_count_max: int = LOOP_STEPS_COUNT_DEFAULT,
        budget: ContextBudget | int | None = None,
        provider_name: str = "",
        model_name: str = "",
        profile: str = "default",
        journal: str = "default",
        files: str = "default",
        is_cancelled: Callable[[], bool] | None = None,
        user_name: str | None = None,
    ) -> None:
        _check(memory, chat, model)
        self.memory = memory
        self.chat = chat
        self._model = model
        self._hooks = memory.hooks if hooks is None else hooks
        self._steps_count_max = checks.count(steps_count_max, "steps_count_max")
        self._budget = _LOCAL_BUDGET if budget is None and provider_name == "ollama" else budget
        if user_name is None and profile != "default":
            user_name = profile
        names = {"provider_name": provider_name, "model_name": model_name, "profile": profile}
        self._context: HookContext = replace(self._hooks.context(chat, user_name=user_name, **names), deferred=[])
        self._is_cancelled = is_cancelled
        owners = {"profile": profile, "journal": journal, "files": files, "user_name": user_name}
        self._tools = memory.tools.context(chat, project=self._context.project, is_cancelled=is_cancelled, **owners)
        self._question: Message | None = None  # The message that the current turn answers.
        self._stop_reason: str | None = None  # Of the last turn.
        self._failures_count_max: float = LOOP_FAILURES_COUNT_MAX
        self._failures = Counter[tuple[str, str]]()  # Failures of each call in this turn since its last success.
        self._has_begun = False
        self._usage = Usage()

    @property
    def notices(self) -> tuple[str, ...]:
        """The notices of hooks in this session, in words for the user, including those from the end of the session."""
        return tuple(self._context.notices)

    def run(self, text: str, *, request_id: str | None = None) -> Turn:
        """Let the model answer a user message, with as many tool calls as it makes.

        The model is called at most `steps_count_max` times. A failing tool or hook is part of the session; an exception
        of the model is raised, with everything before it recorded. Passing a text that is there without an answer, from
        a `run` or appended, does not repeat the message but resumes its turn. Raises `InvalidInput` for a blank text,
        and `LimitExceeded` for one that does not fit the window; a tool result that does not fit beside it is replaced
        by an error that the model sees. Calls that do not fit are not made and end the turn. A call that fails
        LOOP_FAILURES_COUNT_MAX times in a turn with the same arguments ends the turn. So does an exception, including
        Ctrl-C, or an empty answer, which is not recorded. The message then has no answer: `resume()` continues from
        there, and the notices of a `run` with another text mention the message.

        While a turn runs in the conversation on another thread, the same text of the same user waits for it and returns
        its result, and any other raises `StoreBusy`. So does a wait of more than LOOP_WAIT_SECONDS_MAX, and each wait
        of a tool or a hook, since two turns could wait for each other. Other processes are not waited for, except as
        below: a turn notices before it asks the model, runs a tool or records a reply that its message was answered
        there, erased or taken back; it then ends, and records no reply. A reply answers the messages before its
        context: one that came later stays open, for the turn that it began or for `resume()`. The notices name one for
        which the context had no room. The hooks get a message that a front end appends before a step first shows it.

        With a `request_id`, repeating the call is safe, also after a restart: the message is appended once; a turn
        without an answer goes on where it stopped, and no call with a recorded result is made again; of a turn with an
        answer, the result is returned, and no model, tool or hook is called. That result is rebuilt from the log: its
        `steps` are all recorded replies of the turn, and its `usage` and `notices` are empty. The same id for another
        text, user or conversation raises `InvalidInput`, and the same text under another id is another message. A
        `stop_reason` says that the message or its answer was erased, or that the message has no answer and is no longer
        the newest. A message that a hook stopped is not recorded, so the hooks see it again. Of the processes on one
        machine that have the store open, one at a time runs a turn with a `request_id` in the conversation: the others
        wait as threads do, and one of them takes over if it dies. Machines that share a server do not wait: one answer
        is recorded, and all get it, but each may ask the model and run tools.
        """
        if not checks.text(text, "text").strip():
            checks.invalid(f"text is {checks.brief(text)}, which asks nothing; give what the user says")
        question = Question(self._context.user_name, text, request_id)
        if request_id is None:
            return self._run_alone([question], lambda: self._run(text, None))
        core, at = core_of(self.chat)
        stream = self.chat.place[0]
        core.refuse_frozen(stream, at)
        core.engine.reader.check_writable()
        request = core.request(request_id, stream, ("run", self._context.user_name, text))
        earlier = self._earlier_result(request)
        if earlier is not None:
            return earlier
        turn = self._run_alone([question], lambda: self._run(text, request))
        # On a server, a turn of another machine can have answered the same request first.
        return (self._earlier_result(request) or turn) if turn.stop_reason == ANSWERED else turn

    def _earlier_result(self, request: Request) -> Turn | None:
        """Return the result of a request from the log, or `None` if it is new or still needs an answer."""
        question = find_question(core_of(self.chat)[0], request)
        return None if question is None else self._result_of(question, unanswered_message(self.chat))

    def _result_of(self, question: Message, unanswered: Message | None) -> Turn | None:
        """Return the result of a turn as its events show it, or `None` if its question still needs an answer.

        The caller looks for the unanswered message first: an answer that comes later is found here.
        """
        steps, (core, _) = 0, core_of(self.chat)
        for event, stamp in self.chat.events(question.seq):
            if not isinstance(event, MessageAppended) or event.role != "assistant":
                continue
            if question_seq(core, stamp) == question.seq:
                steps += 1
                answer = Message(event, stamp)
                if is_answer(answer):
                    reason = ERASED if answer.erased else (answer.metadata or {}).get(STOP_KEY)
                    return Turn(text_of(answer), steps, reason)
        if not self._is_there(question):
            return Turn("", steps, ERASED)
        return None if unanswered is not None and unanswered.id == question.id else Turn("", steps, PASSED)

    def _run_alone(self, questions: Sequence[Question], work: Callable[[], Turn]) -> Turn:
        try:
            return run_alone(self.chat, questions, self._is_cancelled, work)
        except TurnOver as over:
            return Turn("", 0, str(over))

    def _run(self, text: str, request: Request | None) -> Turn:
        question = None if request is None else find_question(core_of(self.chat)[0], request)
        unanswered = unanswered_message(self.chat)
        if question is not None:
            return self._result_of(question, unanswered) or self._resume(unanswered or question)
        if request is None and unanswered is not None and self._repeats(unanswered, text):
            return self._resume(unanswered)
        notices_before = len(self._context.notices)
        self._begin()
        if unanswered is not None:
            hear(self._hooks, self._context, unanswered, self._write)
            unanswered = unanswered_message(self.chat)
        answer = self._hooks.fire_user_message(self._context, text)
        content = text if answer.modified_message is None else answer.modified_message
        if answer.stop_reason is not None or not content.strip():
            self._hooks.fire_deferred(self._context, ())
            reason = answer.stop_reason or NOTHING_LEFT
            return Turn("", 0, reason, notices=self.notices[notices_before:])
        if unanswered is not None:
            self._mention(unanswered, "has no answer; resume() would have gone on with it")
        self._close_interrupted_calls()
        metadata = ({} if content == text else {ORIGINAL_KEY: text}) | (answer.metadata or {})
        if not metadata and self._hooks.is_registered(USER_MESSAGE):
            metadata = {HEARD_KEY: True}
        fields: dict[str, Any] = {"name": self._context.user_name, "metadata": metadata or None}
        message = self._append("user", content, must_fit=True, request=request, **fields)
        self._hooks.fire_deferred(self._context, [message])
        return self._turn(message, notices_before)

    def resume(self) -> Turn:
        """Continue a turn where it stopped because the model failed, the process ended, or a guard blocked.

        Interrupted tool calls are answered from their records. A message that was appended without `run` begins its
        turn: the hooks of `user_message` get it once, their results become part of it, and what they stop leaves the
        window. If the turn still runs on another thread, waits for it as `run` does, and returns its result; for
        another process it does not wait, so repeat a `run` with a `request_id` by the same call. Raises `InvalidInput`
        if the last user message already has its answer.
        """
        return self._run_alone(questions_of(self._open_message()), lambda: self._resume(self._open_message()))

    def _open_message(self) -> Message:
        message = unanswered_message(self.chat)
        if message is None:
            checks.invalid(f"the conversation {self.chat.id!r} waits for no answer of the model; call run(text)")
        return message

    def _resume(self, message: Message) -> Turn:
        notices_before = len(self._context.notices)
        self._begin()
        self._close_interrupted_calls()
        if self._has_unseen_calls(message):
            return Turn("", 0, UNSEEN, notices=self.notices[notices_before:])
        message, reason = hear(self._hooks, self._context, message, self._write)
        if reason is not None:
            return Turn("", 0, reason, notices=self.notices[notices_before:])
        return self._turn(message, notices_before)

    def _repeats(self, message: Message, text: str) -> bool:
        """Return whether an open message is what the user says; one that a front end appended may lack the name."""
        is_nobodys = message.name is None and not is_heard(self.chat, message)
        return Question(None if is_nobodys else self._context.user_name, text) in questions_of(message)

    def _has_unseen_calls(self, question: Message) -> bool:
        """Return whether the newest calls of a turn have left the window, unless the host took them out."""
        events = self.chat.events(question.seq)
        core, _ = core_of(self.chat)
        group = newest_group(events, lambda _, stamp: question_seq(core, stamp) == question.seq, _UNDOING)
        return bool(group) and not any(message.id in group for message in self.chat.window())

    def _has_unshown_calls(self, question: Message, context: Context) -> bool:
        """Return whether the newest calls of a turn are in the window, but not in a context."""
        caller = next((message for message in reversed(self.chat.window()) if message.event.call_ids), None)
        if caller is None or any(message.id == caller.id for message in context.window):
            return False
        return question_seq(core_of(self.chat)[0], caller.stamp) == question.seq

    def _mention(self, message: Message, what: str) -> None:
        self._context.notify(f"message {message.seq} ({shorten(text_of(message))!r}) {what}")

    def _begin(self) -> None:
        """Announce the session before its first message, even if the conversation already contains other events."""
        if not self._has_begun:
            self._has_begun = True
            if not is_shown(self.chat):
                self._hooks.fire_session_start(self._context)

    def _turn(self, message: Message, notices_before: int) -> Turn:
        self._usage = Usage()
        self._failures.clear()
        self._question, self._stop_reason = message, None
        try:
            with self.memory.acting("assistant", cause=message.seq):
                turn = self._answer(message)
        except BaseException as error:
            error.add_note(f"message {message.seq} has no answer yet; AgentLoop.resume() goes on with it")
            raise
        finally:
            self._question = None
        self._stop_reason = turn.stop_reason
        later = unanswered_message(self.chat) if self._is_there(message) else None
        if later is not None and later.id != message.id:
            self._mention(later, "came meanwhile; resume() goes on with it")
        return replace(turn, usage=self._usage, notices=self.notices[notices_before:])

    def _answer(self, question: Message) -> Turn:
        """Call the model and execute its tool calls until it makes none or something stops the turn."""
        reply, step = Reply(), 0
        try:
            for step in range(1, self._steps_count_max + 1):
                reply, message, stop_reason = self._ask(question)
                if message is None or stop_reason is not None or not reply.calls:
                    return Turn(reply.text or "", step, stop_reason)
                with self.memory.acting("assistant", cause=message.seq):
                    stop_reason = self._execute_all(message, reply.calls)
                self.chat.end_round()
                if stop_reason is None and not self._is_live(message):
                    stop_reason = UNSEEN if self._has_unseen_calls(question) else None
                if stop_reason is not None:
                    return Turn(reply.text or "", step, stop_reason)
        except (Blocked, TurnOver) as stopped:
            return Turn(reply.text or "", step, str(stopped))
        except Closed:
            reason = self._reason_to_end()  # Raises again if it is the memory that was closed.
            if reason is None:
                raise
            return Turn(reply.text or "", step, reason)
        reason = f"the model called tools in each of {self._steps_count_max} steps"
        return Turn(reply.text or "", self._steps_count_max, reason)

    def _check_open(self, shown: int = 0) -> None:
        """Raise `TurnOver` if the turn was cancelled, or its question is gone or has an answer."""
        reason = CANCELLED if self._is_cancelled is not None and self._is_cancelled() else self._reason_to_end(shown)
        if reason is not None:
            raise TurnOver(reason)

    def _reason_to_end(self, shown: int = 0) -> str | None:
        """Return why the question of this turn takes no answer any more, or `None`.

        A reply whose model was `shown` a context comes before the questions after that, and so before their answers.
        """
        question = self._question
        if question is None or not self._is_there(question):
            return GONE
        core, at = core_of(self.chat)
        turn = open_turn_of(core, self.chat.place[0], at)
        place = next((place for place, each in enumerate(turn.messages) if each.id == question.id), None)
        if place is None:  # Taken back; or evicted, and followed by an answer or by another message of the user.
            return ANSWERED if turn.question is None else None
        later: Iterable[Message] = turn.messages[place + 1 :]
        if shown:
            later = takewhile(lambda each: not is_question(each) or each.stamp.seq <= shown, later)
        return ANSWERED if any(map(is_answer, later)) else None

    def _is_there(self, question: Message) -> bool:
        return is_there(core_of(self.chat)[0], self.chat.place[0], question)

    def _check_there(self) -> None:
        """Raise `TurnOver` if the question of this turn is gone; a tool that has run is recorded otherwise."""
        if self._question is not None and not self._is_there(self._question):
            raise TurnOver(GONE)

    def end(self, *, success: bool | None = None) -> SessionSummary:
        """End the session, clearing the scratchpad, and return its summary.

        `success=None` means that it succeeded unless the user's last message has no answer.
        """
        is_answered = unanswered_message(self.chat) is None
        summary = self.chat.session.summary(success=is_answered if success is None else success)
        if not is_answered:
            summary = replace(summary, stop_reason=self._stop_reason or UNANSWERED)
        self._hooks.fire_session_end(self._context, summary)
        self.chat.end()
        return summary

    def _show(self, question: Message) -> tuple[Context, int]:
        """Show a context, and another if a message came while it was made; return it, and where it was recorded.

        A reply answers the messages before its context. So the hooks get those, and the context has them all. Calls of
        other loops are answered first: providers take none without an output.
        """
        tools = self._tools
        while True:
            head = self.memory.head
            self._close_interrupted_calls()
            hear_others(self._hooks, self._context, question, self._write)
            context = self.memory.context(
                self.chat,
                query=text_of(question),
                project=tools.project_name,
                profile=tools.profile_name,
                journal=tools.journal_name,
                budget=self._budget,
            )
            self._check_open()
            shown = self.memory.show(context)
            if not has_requests(self.chat, head, shown):
                return context, shown

    def _ask(self, question: Message) -> ModelReply:
        """Call the model, and return its reply as recorded."""
        context, shown = self._show(question)
        if self._has_unshown_calls(question, context):
            raise TurnOver(UNSHOWN)
        messages = self._hooks.fire_before_llm(self._context, context.messages())
        self._check_open()
        reply = storable_reply(self._model.reply(messages, self.memory.tools.to_openai()))
        if reply.usage is not None:
            total, usage = self._usage, reply.usage
            self._usage = Usage(total.input_tokens + usage.input_tokens, total.output_tokens + usage.output_tokens)
        self._check_open(shown)
        replied = replace(self._context, calls=reply.calls, usage=reply.usage)
        after = self._hooks.fire_after_llm(replied, reply.text or "")
        text = reply.text if after.replacement_text is None else after.replacement_text
        calls = () if after.block_reason is not None else reply.calls
        if not calls and not (text or "").strip():
            return ModelReply(Reply(text), None, after.block_reason or EMPTY)
        for each in () if calls else questions_outside(self.chat, context.window):
            if each.seq < shown:
                self._mention(each, "did not fit the context of this answer; raise the budget")
        metadata = {} if after.block_reason is None else {STOP_KEY: after.block_reason}
        later = (each for each in context.window if is_question(each) and each.seq > question.seq)
        metadata |= withheld_with(question, *later)
        try:
            message = self._append(
                "assistant", text, calls=calls, must_fit=bool(calls), shown=shown, metadata=metadata or None
            )
        except LimitExceeded:
            return ModelReply(Reply(text), None, TOO_LONG)
        return ModelReply(Reply(text, recorded_calls(message.tool_calls)), message, after.block_reason)

    def _execute_all(self, caller: Message, calls: Sequence[Call]) -> str | None:
        stop_reason = None
        for call in calls:
            self._check_open()
            executed = self._execute(call)
            self._check_there()
            block_reason = self._answer_call(caller, call, executed)
            stop_reason = stop_reason or block_reason or self._count_failure(call, executed.result)
        return stop_reason

    def _answer_call(self, caller: Message, call: Call, executed: Execution) -> str | None:
        """Append the output of a call as the hooks leave it; return a reason to end the turn, if a hook gives one."""
        after = self._hooks.fire_after_tool(self._context, call.name, executed.result)
        output = executed.output if after.replacement_output is None else after.replacement_output
        if after.injected_context is not None:
            output = f"{output}\n{after.injected_context}"
        with self.memory.tools.acting(call.name):
            self._append_output(caller, call, output, executed.result.sources)
        return after.block_reason

    def _count_failure(self, call: Call, result: ToolResult) -> str | None:
        """Return a reason to end the turn if the same call has failed too often."""
        key = (call.name, call.arguments)
        failures = self._failures[key] = 0 if result.outcome in (OK, SKIPPED) else self._failures[key] + 1
        if failures < self._failures_count_max:
            return None
        return f"the model called {call.name!r} {failures} times with the same arguments: {result.text}"

    def _execute(self, call: Call) -> Execution:
        """Execute one call, unless a hook skips it, and record it either way."""
        try:
            arguments = decode_arguments(call.arguments)
        except InvalidInput:
            arguments = {}
        before = self._hooks.fire_before_tool(self._context, call.name, arguments)
        self._check_open()
        if not before.skip:
            result = self.memory.tools.execute(
                call.name,
                call.arguments if before.modified_arguments is None else before.modified_arguments,
                self._tools,
                record=True,
                call_id=call.id,
            )
            return Execution(result, result.text)
        output = before.output if before.output is not None else f"Error: {before.skip_reason or 'skipped'}"
        sources = self.chat.session.provenance()
        with self.memory.tools.acting(call.name):
            stamp = self.chat.session.record_call(
                call.name, arguments, output, outcome=SKIPPED, call_id=call.id, sources=sources
            )
        result = ToolResult(call.name, SKIPPED, msgspec.json.encode(output), output, (stamp.seq,))
        return Execution(result, output)

    def _close_interrupted_calls(self) -> None:
        """Answer the interrupted calls at the end of the window, with their recorded results if there are any."""
        window = self.chat.window()
        caller = next((message for message in reversed(window) if message.role != "tool"), None)
        if caller is None:
            return
        answered = {message.tool_call_id for message in window[window.index(caller) + 1 :]}
        open_calls = [call for call in recorded_calls(caller.tool_calls) if call.id not in answered]
        results = self._results(caller.seq) if open_calls else {}
        for call in open_calls:
            if call.id in results:
                self._answer_call(caller, call, results[call.id])
            else:
                self._append_output(caller, call, INTERRUPTED)

    def _results(self, after: int) -> dict[str, Execution]:
        """Return the results of calls recorded after a seq, keyed by call id."""
        results: dict[str, Execution] = {}
        for event, stamp in self.chat.events(after):
            if isinstance(event, ToolExecuted) and event.call_id and not stamp.erased:
                value: object = msgspec.json.decode(event.result)
                message = value if isinstance(value, str) and event.outcome != OK else ""
                result = ToolResult(event.name, event.outcome, event.result, message, (stamp.seq,))
                results[event.call_id] = Execution(result, message if event.outcome == SKIPPED else result.text)
        return results

    def _append(
        self,
        role: str,
        content: str | None,
        *,
        calls: Sequence[Call] = (),
        must_fit: bool = False,
        request: Request | None = None,
        shown: int | None = None,
        **fields: Any,
    ) -> Message:
        """Append a message, and fire the hooks for the messages that it evicts.

        A message that does not fit the window would be evicted at once together with all others. If it ``must_fit``,
        nothing is appended and `LimitExceeded` is raised instead. A ``request`` whose message another process has
        appended meanwhile appends nothing. The cause of a reply is the context that the model was ``shown``.
        """
        core, _ = core_of(self.chat)

        def append() -> Message:
            if shown is not None:
                self._check_open(shown)
            if calls:
                fields["tool_calls"] = render_calls(calls, self.chat.window())
            earlier = None if request is None else find_question(core, request)
            if earlier is not None:
                return earlier
            with self.memory.acting(role, cause=shown) if shown is not None else nullcontext():
                message = self.chat.append(role, content, **fields)
            if request is not None:
                record_request(core, request)
            if must_fit:
                self._check_fit(message)
            return message

        message = self._write(append)
        self._hooks.compacted(self._context, message.seq)
        return message

    def _write(self, write: Callable[[], T]) -> T:
        """Write what depends on the window in one batch, and write again if another writer was faster."""
        for _ in range(REDO_COUNT_MAX):
            with suppress(WrongVersion), self.memory.batch():
                self.chat.window(last=1)  # Read, so that the batch fails if the conversation is erased before it ends.
                return write()
        raise StoreBusy(f"others wrote to {self.chat.id!r} {REDO_COUNT_MAX} times while this was appended; try again")

    def _is_live(self, message: Message) -> bool:
        return any(each.id == message.id for each in self.chat.window())

    def _check_fit(self, message: Message) -> None:
        """Raise `LimitExceeded` unless the window has room for a message beside what each context has to show.

        Calls need room for an output of each, too: a group that does not fit leaves, and the model would make it again.
        """
        core, at = core_of(self.chat)
        groups = groups_of(open_turn_of(core, self.chat.place[0], at).messages)
        group = next((group for group in groups if any(each.id == message.id for each in group)), list[Message]())
        answered = {each.event.answers for each in group}
        open_calls = [call_id for each in group[:1] for call_id in each.event.call_ids if call_id not in answered]
        outputs = len(open_calls) * core.counter.count(_CUT)
        pinned = [each for each in groups if each is not group and any(message.pinned for message in each)]
        limit = core.read(self.chat.place[0], lambda state: state.part(WINDOW).limit, at)
        if (
            not self._is_live(message)
            or sum(map(tokens_of, required_groups(groups))) + outputs > self.chat.window_tokens
            or sum(map(tokens_of, [group, *pinned])) + outputs > limit
        ):
            raise LimitExceeded(
                f"a {message.role} message of {message.tokens} tokens does not fit the window, which holds "
                f"{self.chat.window_tokens} with what is pinned; shorten it, or give the conversation a larger window "
                f"with set_window_tokens"
            )

    def _append_output(self, caller: Message, call: Call, output: str, sources: Sequence[Any] = ()) -> None:
        """Answer a call with the output of its tool, or with a shorter error if that does not fit.

        If another loop has answered the call as interrupted meanwhile, the output takes the place of that answer.
        """
        short = f"Error: the result has {len(output)} characters, which do not fit the window; ask for less"
        with suppress(LimitExceeded):
            return self._answer_in_window(caller, call, output, sources, must_fit=True)
        with suppress(LimitExceeded):
            return self._answer_in_window(caller, call, short, must_fit=True)
        return self._answer_in_window(caller, call, _CUT)

    def _answer_in_window(
        self, caller: Message, call: Call, output: str, sources: Sequence[Any] = (), *, must_fit: bool = False
    ) -> None:
        metadata = withheld_with(caller) or None

        def write() -> Message | None:
            self._check_there()
            groups = [group for group in groups_of(self.chat.window()) if call.id in group[0].event.call_ids]
            own = next((group for group in groups if group[0].id == caller.id), list[Message]())
            answer = next((message for message in own if message.event.answers == call.id), None)
            if answer is not None and answer.content == INTERRUPTED:
                message = self.chat.replace(answer, output, name=call.name, metadata=metadata, sources=sources)
            elif answer is None and (not groups or groups[-1] is own):  # An answer goes to the last call with the id.
                message = self.chat.append(
                    "tool", output, tool_call_id=call.id, name=call.name, metadata=metadata, sources=sources
                )
            else:
                return None
            if must_fit:
                self._check_fit(message)
            return message

        message = self._write(write)
        if message is not None:
            core, _ = core_of(self.chat)
            replaced = core.read(self.chat.place[0], lambda state: state.part(WINDOW).replaced.get(message.id), None)
            self._hooks.compacted(self._context, replaced or message.seq)


def _check(memory: object, chat: object, model: object) -> None:
    """Reject arguments that the loop cannot run with, before its first turn."""
    if not isinstance(memory, Memory):
        checks.invalid(
            f"AgentLoop takes a Memory, not {type(memory).__name__} ({checks.brief(memory)}); "
            "make one with Memory() or Memory(path)"
        )
    if not isinstance(chat, Conversation):
        checks.invalid(
            f"AgentLoop takes a Conversation, not {type(chat).__name__} ({checks.brief(chat)}); "
            "make one with memory.conversation('chat-42')"
        )
    if not callable(getattr(model, "reply", None)):
        checks.invalid(
            f"AgentLoop takes a model with a method reply(messages, tools), not {type(model).__name__}; "
            "give an object of yours whose reply asks a provider and returns a Reply"
        )
    if inspect.iscoroutinefunction(cast("Any", model).reply):
        checks.invalid(ASYNCHRONOUS)
