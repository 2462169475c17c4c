"""Graphs of LangGraph that run over our checkpoints: interrupts, tasks at once, subgraphs, time travel, a crash."""

import asyncio
from operator import add
from pathlib import Path
from random import Random
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

from refold import Memory
from refold.adapters.langgraph import RefoldSaver
from tests.support.memories import Child, assert_sound, remembering

TRIP: RunnableConfig = {"configurable": {"thread_id": "trip"}}


def shown(memory: Memory, thread: str = "trip") -> list[Any]:
    return [message.content for message in memory.conversation(f"langgraph/{thread}").window()]


class Count(TypedDict):
    """What the tasks at once add up to."""

    numbers: Annotated[list[int], add]


def answer(state: MessagesState) -> dict[str, Any]:
    """Call a tool for a question, and say what it said."""
    newest = state["messages"][-1]
    if isinstance(newest, ToolMessage):
        return {"messages": [AIMessage(f"It is {newest.content}.")]}
    call = {"name": "port_of", "args": {"service": newest.content}, "id": f"c{len(state['messages'])}"}
    return {"messages": [AIMessage("", tool_calls=[call])]}


def port_of(state: MessagesState) -> dict[str, Any]:
    """Ask a person, then answer the call."""
    calling = state["messages"][-1]
    assert isinstance(calling, AIMessage)
    port = interrupt("Which port?")
    return {"messages": [ToolMessage(str(port), tool_call_id=calling.tool_calls[0]["id"])]}


def agent(saver: BaseCheckpointSaver[str]) -> Any:
    """A graph that calls a tool, and is interrupted by it."""
    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_node("port_of", port_of)
    builder.add_edge(START, "answer")
    builder.add_conditional_edges(
        "answer", lambda state: "port_of" if getattr(state["messages"][-1], "tool_calls", None) else END
    )
    builder.add_edge("port_of", "answer")
    return builder.compile(checkpointer=saver)


def contents(state: Any) -> list[Any]:
    return [message.content for message in state["messages"]]


def test_a_graph_is_interrupted_and_goes_on(tmp_path: Path) -> None:
    """With a memory of its own each time, as after a restart."""
    with remembering(tmp_path / "store") as memory:
        graph = agent(RefoldSaver(memory))
        stopped = graph.invoke({"messages": [HumanMessage("db")]}, TRIP)
        assert stopped["__interrupt__"][0].value == "Which port?"
        assert graph.get_state(TRIP).next == ("port_of",)
    with remembering(tmp_path / "store") as memory:
        graph = agent(RefoldSaver(memory))
        assert contents(graph.invoke(Command(resume=5432), TRIP)) == ["db", "", "5432", "It is 5432."]
        assert [message.role for message in memory.conversation("langgraph/trip").window()] == [
            *("user", "assistant", "tool", "assistant")
        ]
        assert memory.why("5432", conversation="langgraph/trip").is_there
        assert memory.search_messages("5432")[0].entry.content in {"5432", "It is 5432."}


def fan(saver: BaseCheckpointSaver[str]) -> Any:
    """A graph of a hundred tasks in one step."""
    builder = StateGraph(Count)
    builder.add_node("begin", lambda _: {"numbers": []})
    builder.add_node("square", lambda state: {"numbers": [state["n"] ** 2]})
    builder.add_edge(START, "begin")
    builder.add_conditional_edges("begin", lambda _: [Send("square", {"n": n}) for n in range(100)], ["square"])
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_hundred_tasks_write_at_once(durability: Any) -> None:
    with remembering() as memory:
        saver, model = RefoldSaver(memory), InMemorySaver()
        numbers = fan(saver).invoke({"numbers": []}, TRIP, durability=durability)["numbers"]
        assert numbers == [n**2 for n in range(100)]
        fan(model).invoke({"numbers": []}, TRIP, durability=durability)
        ours, theirs = ([*each.list(TRIP)] for each in (saver, model))
        assert [(step.metadata["step"], len(step.pending_writes or ())) for step in ours] == [
            (step.metadata["step"], len(step.pending_writes or ())) for step in theirs
        ]


def test_a_hundred_tasks_write_at_once_on_an_event_loop(tmp_path: Path) -> None:
    async def main(memory: Memory) -> None:
        graph = fan(RefoldSaver(memory))
        found = await graph.ainvoke({"numbers": []}, TRIP)
        assert found["numbers"] == [n**2 for n in range(100)]
        newest = await graph.aget_state(TRIP)
        assert newest.values == found
        states = [state async for state in graph.aget_state_history(TRIP)]
        assert len(states) == 4

    with remembering(tmp_path / "store") as memory:
        asyncio.run(main(memory))


def test_a_subgraph_is_interrupted_and_goes_on() -> None:
    with remembering() as memory:
        inner = StateGraph(MessagesState)
        inner.add_node("ask", lambda _: {"messages": [AIMessage(f"inner {interrupt('Well?')}")]})
        inner.add_edge(START, "ask")
        outer = StateGraph(MessagesState)
        outer.add_node("inner", inner.compile())
        outer.add_edge(START, "inner")
        graph = outer.compile(checkpointer=RefoldSaver(memory))
        graph.invoke({"messages": [HumanMessage("go")]}, TRIP)
        within: Any = graph.get_state(TRIP, subgraphs=True).tasks[0].state
        assert within.config["configurable"]["checkpoint_ns"].startswith("inner:")
        assert within.next == ("ask",)
        assert shown(memory) == ["go"]
        assert contents(graph.invoke(Command(resume="yes"), TRIP)) == ["go", "inner yes"]
        assert shown(memory) == ["go", "inner yes"]


def echo(saver: BaseCheckpointSaver[str]) -> Any:
    """A graph that answers with what it was told."""
    builder = StateGraph(MessagesState)
    builder.add_node("echo", lambda state: {"messages": [AIMessage(f"you said {state['messages'][-1].content}")]})
    builder.add_edge(START, "echo")
    return builder.compile(checkpointer=saver)


def test_a_run_from_an_earlier_checkpoint_takes_the_conversation_back() -> None:
    with remembering() as memory:
        graph = echo(RefoldSaver(memory))
        for text in ("one", "two", "three"):
            graph.invoke({"messages": [HumanMessage(text)]}, TRIP)
        whole = ["one", "you said one", "two", "you said two", "three", "you said three"]
        assert shown(memory) == whole
        head = memory.head
        past = next(state for state in graph.get_state_history(TRIP) if contents(state.values) == whole[:2])
        graph.invoke({"messages": [HumanMessage("other")]}, past.config)
        assert shown(memory) == [*whole[:2], "other", "you said other"]
        assert contents(graph.get_state(TRIP).values) == shown(memory)
        # The branch that was left is still there, for LangGraph and for the conversation.
        left = next(state for state in graph.get_state_history(TRIP) if contents(state.values) == whole)
        assert [message.content for message in memory.conversation("langgraph/trip").at(head).window()] == whole
        graph.invoke({"messages": [HumanMessage("back")]}, left.config)
        assert shown(memory) == [*whole, "back", "you said back"]


def test_edits_and_removals_reach_the_window() -> None:
    with remembering() as memory:
        graph = echo(RefoldSaver(memory))
        for text in ("one", "two"):
            graph.invoke({"messages": [HumanMessage(text)]}, TRIP)
        first, second, *_ = graph.get_state(TRIP).values["messages"]
        graph.update_state(TRIP, {"messages": [RemoveMessage(first.id)]})
        assert shown(memory) == ["you said one", "two", "you said two"]
        chat = memory.conversation("langgraph/trip")
        ids = [message.id for message in chat.window()]
        graph.update_state(TRIP, {"messages": [AIMessage("edited", id=second.id)]})
        assert shown(memory) == ["edited", "two", "you said two"]
        assert [message.id for message in chat.window()] == ids, "an edit leaves every message in its place"
        assert contents(graph.get_state(TRIP).values) == shown(memory)


class Newest(TypedDict):
    """A channel that keeps what it is given, and gives its messages no ids."""

    messages: Annotated[list[Any], lambda _, new: new]


@pytest.mark.parametrize("seed", range(8))
def test_equal_messages_without_ids_are_told_apart(seed: int) -> None:
    draw = Random(seed)
    with remembering() as memory:
        builder = StateGraph(Newest)
        builder.add_node("nothing", lambda state: {"messages": state["messages"]})
        builder.add_edge(START, "nothing")
        graph = builder.compile(checkpointer=RefoldSaver(memory))
        messages: list[Any] = []
        for _ in range(40):
            cut = draw.randint(0, len(messages))
            change = draw.choice(["trim", "remove", "keep"])
            if change == "trim":
                messages = messages[-4:]
            elif change == "remove":
                messages = messages[: cut - 1] + messages[cut:] if cut else messages
            kind = draw.choice([HumanMessage, AIMessage])
            messages = [*messages, kind(draw.choice(["yes", "yes", "no", "stop"]))]
            graph.update_state(TRIP, {"messages": messages})
            assert shown(memory) == contents(graph.get_state(TRIP).values)
        assert_sound(memory)


def test_of_equal_messages_the_evicted_one_is_the_older() -> None:
    """A budget evicts the first of two equal messages; the graph removes it later, and the other one stays."""
    with remembering() as memory:
        chat = memory.conversation("langgraph/trip")
        builder = StateGraph(Newest)
        builder.add_node("nothing", lambda state: {"messages": state["messages"]})
        builder.add_edge(START, "nothing")
        graph = builder.compile(checkpointer=RefoldSaver(memory))
        messages = [HumanMessage("yes"), AIMessage("well"), HumanMessage("yes"), AIMessage("good")]
        graph.update_state(TRIP, {"messages": messages})
        chat.set_window_tokens(sum(message.tokens for message in chat.window()[1:]))
        assert shown(memory) == ["well", "yes", "good"]
        graph.update_state(TRIP, {"messages": messages[1:]})
        assert shown(memory) == ["well", "yes", "good"]


DIES = """
import os, sys
sys.path.insert(0, sys.argv[2])
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from refold.adapters.langgraph import RefoldSaver
from tests.adapters.test_langgraph_graphs import TRIP, steps

with RefoldSaver.from_path(sys.argv[1]) as saver:
    def wait():
        print("at the second step", flush=True)
        sys.stdin.read()
    steps(saver, wait).invoke({"messages": [HumanMessage("go")]}, TRIP, durability="sync")
"""


def steps(saver: BaseCheckpointSaver[str], wait: Any) -> Any:
    """A graph of two steps, the second of which takes long."""

    def second(_: MessagesState) -> dict[str, Any]:
        wait()
        return {"messages": [AIMessage("second")]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("first", lambda _: {"messages": [AIMessage("first")]})
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    return builder.compile(checkpointer=saver)


def test_a_graph_goes_on_where_its_process_was_killed(tmp_path: Path) -> None:
    with Child(DIES, str(tmp_path / "store"), str(Path(__file__).parents[2])) as child:
        assert child.read() == "at the second step"
        child.kill()
    with Memory(tmp_path / "store") as memory:
        graph = steps(RefoldSaver(memory), lambda: None)
        assert graph.get_state(TRIP).next == ("second",)
        assert shown(memory) == ["go", "first"]
        assert contents(graph.invoke(None, TRIP)) == ["go", "first", "second"]
        assert shown(memory) == ["go", "first", "second"]
        assert_sound(memory)


@pytest.mark.parametrize("count", [2, 5, 20])
def test_runs_of_one_thread_at_once_leave_the_window_with_the_state(memory: Memory, count: int) -> None:
    async def late_answer(state: MessagesState) -> dict[str, Any]:
        await asyncio.sleep(0.01)
        return {"messages": [AIMessage(f"answer to {state['messages'][-1].content}")]}

    builder = StateGraph(MessagesState).add_node("answer", late_answer).add_edge(START, "answer")
    graph = builder.compile(checkpointer=RefoldSaver(memory))

    async def ask(text: str, where: Any = TRIP) -> None:
        await graph.ainvoke({"messages": [HumanMessage(text)]}, where)

    async def assert_shown() -> None:
        assert shown(memory) == contents((await graph.aget_state(TRIP)).values)

    async def main() -> None:
        await ask("hello")
        await asyncio.gather(*(ask(f"q{number}") for number in range(count)))
        await assert_shown()
        await ask("next")
        await assert_shown()
        # Go on from each answer, also of the runs that the window never showed, or no longer.
        ends = [each async for each in graph.aget_state_history(TRIP) if not each.next]
        for number, end in enumerate(ends):
            await ask(f"from {number}", end.config)
            await assert_shown()
            assert shown(memory)[:-2] == contents(end.values)
        # Whatever is shown is erased from the state, too.
        for message in memory.conversation("langgraph/trip").window():
            memory.erase([message])
        assert (await graph.aget_state(TRIP)).values["messages"] == []

    asyncio.run(main())
    assert_sound(memory)
