"""Why and influence: answers for every kind of subject, held against what was done, and against a fold by hand."""

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from string import Formatter
from typing import Any

import pytest

from refold import InvalidInput, Memory, Message, NotFound, fold
from refold.agent import ContextBudget
from refold.embedders import HashedEmbedder
from refold.memory import Why, exposure
from refold.message import INJECTED_KEY, MessageAppended
from refold.views.board import MESSAGES_KEPT
from tests.memory.fold_by_hand import Fate, fates, fill
from tests.support.bounds import lowered
from tests.support.steps import steps_of

REFOLD = Path(fold.__file__).parent


def told(answer: Why) -> list[tuple[str, int]]:
    return [(step.relation, step.seq) for step in answer.steps]


class TestMessages:
    def test_a_message_that_was_pushed_out_says_by_which_and_under_which_budget(self, memory: Memory) -> None:
        chat = memory.conversation("c", window_tokens=30)
        first = chat.append("user", "The port is 6543.", tokens=20)
        pusher = chat.append("user", "another thing", tokens=15)
        answer = memory.why(first)
        assert told(answer) == [("came", first.seq), ("left", pusher.seq)]
        assert not answer.is_there
        text = answer.steps[-1].text
        assert "'another thing'" in text
        assert "15 tokens when 20 of 30 were in use" in text
        assert "fifo" in text
        assert json.loads(answer.to_json())["steps"][1]["seq"] == pusher.seq
        assert f"seq {pusher.seq}" in str(answer)

    def test_each_way_out_of_a_window_is_named(self, memory: Memory) -> None:
        chat = memory.conversation("c", window_tokens=100)
        ways: dict[str, Callable[[Any], object]] = {
            "window_cleared": lambda _: chat.clear_window(),
            "message_removed": chat.remove,
            "window_resized": lambda _: chat.set_window_tokens(5),
        }
        for kind, leave in ways.items():
            chat.set_window_tokens(100)
            message = chat.append("user", "here", tokens=10)
            assert memory.why(message).is_there
            leave(message)
            (left,) = memory.why(message).of("left")
            assert (left.kind, left.seq) == (kind, memory.head)

    def test_a_message_larger_than_the_budget_and_an_answer_without_its_call_never_get_in(self, memory: Memory) -> None:
        chat = memory.conversation("c", window_tokens=10)
        large = chat.append("user", "large", tokens=11)
        lone = chat.append("tool", "42", tokens=1, tool_call_id="none")
        for message in (large, lone):
            (left,) = memory.why(message).of("left")
            assert left.seq == message.seq
            assert "was never in the window" in left.text

    def test_words_that_a_replacement_took_away_are_gone_with_it(self, memory: Memory) -> None:
        chat = memory.conversation("c")
        said = chat.append("user", "I like green tea.")
        held, early = chat.snapshot("held"), memory.show(memory.context(chat, query="What?"))
        chat.replace(said, "I like coffee.")
        replaced = memory.head
        late = memory.show(memory.context(chat, query="What?"))
        answer = memory.why("green tea", missing_from=late)
        assert told(answer) == [("came", said.seq), ("left", replaced), ("shown", early), ("hidden", late)]
        assert not answer.is_there
        assert answer.of("left")[0].text.startswith("its content was replaced: ")
        assert answer.of("hidden")[0].text == (
            f"the context at seq {late} lacks it: the content of seq {replaced} had taken its place"
        )
        searched = memory.why("green tea", missing_from="tea", conversation="c").of("hidden")
        assert [step.text for step in searched] == [f"the content of seq {replaced} had taken its place"]
        assert memory.why("I like").is_there
        assert memory.why(said).is_there
        assert memory.why("green tea", conversation="c", missing_from=early).of("shown")[-1].seq == early
        coffee = memory.why("coffee")
        assert told(coffee) == [("came", said.seq), ("changed", replaced), ("shown", late)]
        assert coffee.is_there
        chat.replace(said, "I like green tea, and cake.")
        again = memory.head
        assert told(memory.why("green tea"))[:3] == [("came", said.seq), ("left", replaced), ("returned", again)]
        assert not memory.why("coffee").is_there
        chat.restore(held)
        assert told(memory.why("cake"))[-1] == ("left", memory.head)
        assert memory.why("green tea").is_there

    def test_words_that_a_restore_brought_back_leave_with_their_message(self, memory: Memory) -> None:
        chat = memory.conversation("c", window_tokens=20)
        said = chat.append("user", "I like green tea.", tokens=15)
        held = chat.snapshot("held")
        chat.replace(said, "I like coffee.", tokens=15)
        replaced = memory.head
        pusher = chat.append("user", "And cake.", tokens=15)
        assert told(memory.why("green tea")) == [("came", said.seq), ("left", replaced)]
        assert told(memory.why("coffee"))[-1] == ("left", pusher.seq)
        chat.restore(held)
        back = memory.head
        expected = [("came", said.seq), ("left", replaced), ("returned", back)]
        assert told(memory.why("green tea")) == expected
        fork = chat.fork("fork")
        fork.replace(said, "I like milk.", tokens=15)
        assert told(memory.why("green tea", conversation="fork"))[-1] == ("left", memory.head)
        assert memory.why("green tea", conversation="c").is_there
        last = chat.append("user", "And milk.", tokens=15)
        assert told(memory.why("green tea", conversation="c")) == [*expected, ("left", last.seq)]

    def test_words_that_pushed_their_own_message_out_never_got_in(self, memory: Memory) -> None:
        chat = memory.conversation("c", window_tokens=20)
        said = chat.append("user", "I like green tea.", tokens=15)
        chat.replace(said, "I like coffee.", tokens=25)
        replaced = memory.head
        for text in ("coffee", "green tea"):
            answer = memory.why(text)
            assert told(answer) == [("came", said.seq), ("left", replaced)]
            assert not answer.is_there
            assert "was replaced by one of 25 tokens" in answer.of("left")[0].text

    def test_a_restore_brings_back_and_takes_away(self, memory: Memory) -> None:
        chat = memory.conversation("c", window_tokens=20)
        first = chat.append("user", "one", tokens=15)
        held = chat.snapshot("held")
        pusher = chat.append("user", "two", tokens=15)
        chat.restore(held)
        back = memory.head
        later = chat.append("user", "three", tokens=15)
        assert told(memory.why(first)) == [
            ("came", first.seq),
            ("left", pusher.seq),
            ("returned", back),
            ("left", later.seq),
        ]
        assert told(memory.why(pusher)) == [("came", pusher.seq), ("left", back)]

    def test_a_fork_has_windows_of_its_own(self, memory: Memory) -> None:
        chat = memory.conversation("c", window_tokens=20)
        first = chat.append("user", "one", tokens=15)
        fork = chat.fork("d")
        pusher = fork.append("user", "two", tokens=15)
        assert memory.why(first).is_there
        answer = memory.why(first, conversation="d")
        assert not answer.is_there
        assert answer.of("left")[0].seq == pusher.seq
        assert memory.why("one", conversation="d").steps[-1].seq == pusher.seq

    def test_the_past_answers_for_itself(self, memory: Memory) -> None:
        chat = memory.conversation("c", window_tokens=20)
        first = chat.append("user", "one", tokens=15)
        before = memory.head
        chat.append("user", "two", tokens=15)
        assert memory.why(first, at=before) == memory.at(before).why(first)
        assert memory.why(first, at=before).is_there

    def test_causes_and_sources_are_followed_back(self, memory: Memory) -> None:
        chat = memory.conversation("c")
        asked = chat.append("user", "note my port")
        with memory.acting("assistant", cause=asked):
            called = chat.append("assistant", "calling")
        with memory.acting("tool:memory_add", cause=called):
            entry = memory.project("p").add("The port is 6543.", source=asked)
        assert told(memory.why(entry)) == [
            ("came", entry.seq),
            ("cause", called.seq),
            ("cause", asked.seq),
            ("source", asked.seq),
        ]


class TestMemories:
    def test_merged_pruned_deleted_cleared(self, memory: Memory) -> None:
        project = memory.project("p")
        ways: list[tuple[str, Callable[[Any], object]]] = [
            ("memory_deleted", project.delete),
            ("memories_pruned", lambda _: project.prune(0.2)),
            ("memories_cleared", lambda _: project.clear()),
        ]
        for kind, leave in ways:
            entry = project.add(f"what leaves by {kind}", importance=0.15, vector=[1.0, 0.0])
            assert memory.why(entry).is_there
            leave(entry)
            answer = memory.why(entry)
            assert (answer.steps[-1].relation, answer.steps[-1].kind, answer.is_there) == ("left", kind, False)

    def test_a_merge_names_the_other_and_unmerging_brings_back(self, memory: Memory) -> None:
        project = memory.project("p")
        kept = project.add("the port is open", vector=[1.0, 0.0])
        other = project.add("the port stands open", vector=[1.0, 0.01])
        project.compact(threshold=0.9)
        gone = other if project.get(kept.id) else kept
        stays = kept if gone is other else other
        (left,) = memory.why(gone).of("left")
        assert stays.id in left.text
        assert "cosine" in left.text
        project.unmerge(left.seq)
        answer = memory.why(gone)
        assert answer.is_there
        assert [step.relation for step in answer.steps][:3] == ["came", "left", "returned"]

    def test_what_default_searches_pass_over_says_so(self, memory: Memory) -> None:
        project = memory.project("p")
        low = project.add("unimportant", importance=0.05)
        assert "importance of 0.05 is under 0.1" in memory.why(low).of("hidden")[0].text
        waiting = project.add("to be reviewed")
        project.reject(waiting)
        assert "status is rejected" in memory.why(waiting).of("hidden")[0].text

    def test_a_search_says_rank_and_the_signal_that_cost(self, memory: Memory) -> None:
        project = memory.project("p")
        for number in range(12):
            project.add(f"the port of service {number} is {6000 + number}")
        last = project.add("tea is served at five")
        (hidden,) = memory.why(last, missing_from="which port has service 3").of("hidden")
        assert "ranked 13 of 13" in hidden.text
        assert "cost it most" in hidden.text
        recalled = project.recall("which port has service 3", top_k=3, conversation="c")
        (seq,) = [r.stamp.seq for r in memory.events() if type(r.event).__name__ == "MemoriesRecalled"]
        assert [step.seq for step in memory.why(recalled[0]).of("shown")] == [seq]
        assert "3 are shown" in memory.why(last, missing_from=seq).of("hidden")[0].text
        with pytest.raises(InvalidInput, match="no recall and no context"):
            memory.why(last, missing_from=1)


class TestContexts:
    @pytest.mark.usefixtures("ranked")
    def test_a_context_says_what_it_shows_and_what_it_left_out(self, memory: Memory) -> None:
        chat = memory.conversation("c", project="p", window_tokens=40)
        project = memory.project("p")
        old = chat.append("user", "an old thing", tokens=30)
        chat.append("user", "which port?", tokens=30)
        entries = [project.add(f"the port of service {number} is {6000 + number}") for number in range(40)]
        chat.scratchpad.set("port", "6001")
        context = memory.context(chat, query="which port", budget=220)
        seq = memory.show(context)
        shown = [entry for entry in entries if entry.id in context.ids]
        missing = [entry for entry in entries if entry.id not in context.ids]
        assert shown
        assert missing
        assert [step.seq for step in memory.why(shown[0]).of("shown")] == [seq]
        assert not memory.why(missing[0]).of("shown")
        assert "room for" in memory.why(missing[0], missing_from=seq).of("hidden")[-1].text
        assert "not in the window" in memory.why(old, missing_from=seq).of("hidden")[-1].text
        answer = chat.append("assistant", "6001", tokens=1)
        (turn,) = memory.influence(shown[0]).turns
        assert (turn.conversation, turn.answer, turn.seen) == ("c", answer.seq, seq)
        set_seq = next(r.stamp.seq for r in memory.events() if type(r.event).__name__ == "ScratchpadSet")
        assert [turn.answer for turn in memory.influence(set_seq).turns] == [answer.seq]


PORT = "The staging database listens on port 6432."
WHICH = "Which port does the staging database have?"


@pytest.mark.usefixtures("ranked")
class TestEarlierMessages:
    """Each reason why a context of one conversation lacks a message of another one."""

    @pytest.fixture
    def said(self, memory: Memory) -> Message:
        return memory.conversation("then", project="acme").append("user", PORT)

    def absence(self, memory: Memory, message: Message, query: str | None = WHICH, **options: Any) -> str:
        chat = memory.conversation("now", project="acme")
        seq = memory.show(memory.context(chat, query=query, **options))
        step = memory.why(message, missing_from=seq).steps[-1]
        assert step.relation == "hidden"
        return step.text.removeprefix(f"the context at seq {seq} lacks it: it is a message of conversation/then; ")

    def test_what_is_shown_says_so(self, memory: Memory, said: Message) -> None:
        chat = memory.conversation("now", project="acme")
        seq = memory.show(memory.context(chat, query=WHICH))
        assert (
            memory.why(said, missing_from=seq).steps[-1].text
            == f"the context at seq {seq} shows it in its part messages"
        )

    def test_a_window_of_another_conversation_with_as_many_tokens_does_not_count(self, memory: Memory) -> None:
        said = memory.conversation("then", project="acme").append("user", "The logo is a heron.", tokens=7)
        memory.conversation("now", project="acme").append("user", "Which port?", tokens=7)
        assert self.absence(memory, said).startswith("of the words of 'Which port does")

    def test_another_project(self, memory: Memory, said: Message) -> None:
        assert self.absence(memory, said, project="umbrella") == (
            "it is one of project/acme, and messages of project/umbrella and of conversation/now are searched"
        )
        alone = memory.conversation("alone").append("user", PORT)
        assert "it is one of conversation/alone, and messages of project/acme" in self.absence(memory, alone)

    def test_few_words_in_common(self, memory: Memory, said: Message) -> None:
        query = "Which port has the replica in Bern, Chur or Basel?"
        assert self.absence(memory, said, query) == (
            f"of the words of {query!r} port, replica, bern, chur, basel count, and which, has, the, in, or do not; "
            "the message has 1, and the best message has a relevance of 0.00, under 0.38"
        )
        logo = memory.conversation("logo", project="acme").append("user", "The logo is a heron.")
        assert self.absence(memory, logo).endswith(" do not; the message has 0")

    def test_everyday_talk(self, memory: Memory, said: Message) -> None:
        assert self.absence(memory, said, "What do you think?") == (
            "'What do you think?' brings no messages: all of its words are everyday talk"
        )
        assert self.absence(memory, said, "The port again") == (
            "'The port again' brings no messages: it is no question, and 'port' alone says what it is about"
        )
        for number in range(11):
            memory.conversation("then").append("user", f"Port {number} is open.")
        assert (
            self.absence(memory, said, "Which port?")
            == "other messages are better for 'Which port?', and 8 at most are taken"
        )

    def test_a_relevance_below_the_bound(self, memory: Memory, said: Message) -> None:
        query = "Does the port of our ferry to Bergen have a database of whales, seals, gulls, puffins and herons?"
        text = self.absence(memory, said, query)
        assert "; the message has 2, and the best message has a relevance of 0." in text
        assert text.endswith("under 0.38")

    def test_taken_back(self, memory: Memory, said: Message) -> None:
        entry = memory.project("acme").add("Staging listens on port 6432", sources=[said])
        memory.project("acme").delete(entry)
        assert self.absence(memory, said) == "what it said was taken back"

    def test_answer_taken_back(self, memory: Memory, said: Message) -> None:
        entry = memory.project("acme").add("Staging listens on port 6432", sources=[said])
        chat = memory.conversation("then")
        asked, answer = chat.append("user", "Which port of staging?"), chat.append("assistant", "It listens on 6432.")
        query = "What is the port of staging?"
        memory.project("acme").delete(entry)
        assert self.absence(memory, asked, query) == "the answer to it was taken back"
        assert self.absence(memory, answer, query) == "what it said was taken back"

    def test_erased(self, memory: Memory, said: Message) -> None:
        memory.erase([said])
        assert self.absence(memory, said) == "its content was erased, so what would have found it is unknown"

    def test_a_rank_after_those_that_are_taken(self, memory: Memory, said: Message) -> None:
        memory.conversation("then").append("user", "Staging database: port 7432.")
        text = self.absence(memory, said, budget=ContextBudget(messages_count=1))
        assert text == f"other messages are better for {WHICH!r}, and 1 at most are taken"

    def test_no_room(self, memory: Memory, said: Message) -> None:
        said = memory.conversation("then").append("user", f"{PORT} {'So I heard. ' * 300}")
        for number in range(9):
            memory.conversation("then").append("user", f"The port of staging database {number} is {number}.")
        text = self.absence(memory, said, budget=300)
        assert text.startswith("a search finds it, but memories and earlier messages have room for ")
        assert re.search(r"tokens together, and [1-9] earlier messages? did not fit$", text)

    def test_nothing_but_what_another_says(self, memory: Memory, said: Message) -> None:
        memory.conversation("other", project="acme").append("user", PORT)
        assert self.absence(memory, said) == (
            "a search finds it, but texts that another message or memory says already are not shown"
        )

    def test_it_came_later_or_long_before(self, memory: Memory) -> None:
        said = memory.conversation("then", project="acme").append("user", PORT)
        chat = memory.conversation("now", project="acme")
        origin = memory.head
        context = memory.context(chat, query=WHICH)
        later = memory.conversation("then").append("user", f"{PORT} Or 7432.")
        seq = memory.show(context)
        text = memory.why(later, missing_from=seq).steps[-1].text
        assert text.endswith(f"; it came after seq {origin}, as of which the context was built")
        with lowered(EARLIER_EVENTS_COUNT=2):
            assert self.absence(memory, said) == "only the newest 2 events are searched for earlier messages"
        with lowered(EARLIER_MESSAGES_COUNT=1):
            assert self.absence(memory, said) == (
                "only the newest 1 messages of project/acme are searched for earlier ones"
            )

    def test_a_fork_that_had_parted_or_was_dropped(self, memory: Memory) -> None:
        chat = memory.conversation("now", project="acme")
        chat.append("user", "Good morning.")
        fork = chat.fork("then")
        said = fork.append("user", PORT)
        assert self.absence(memory, said) == (
            "conversation/then and conversation/now are forks of one conversation, and it was said after they parted"
        )
        fork.close(drop=True)
        assert self.absence(memory, said).startswith("conversation/then was dropped at seq ")

    def test_a_restore_took_it_back(self, memory: Memory) -> None:
        chat = memory.conversation("then", project="acme")
        chat.append("user", "Good morning.")
        before = chat.snapshot()
        said = chat.append("user", PORT)
        chat.restore(before)
        restored = memory.head
        assert self.absence(memory, said) == f"the restore of conversation/then at seq {restored} took it back"

    def test_a_message_of_the_base_is_one_of_the_window_of_a_fork(self, memory: Memory) -> None:
        chat = memory.conversation("then", project="acme", window_tokens=100)
        said = chat.append("user", PORT, tokens=30)
        fork = chat.fork("fork")
        chat.clear_window()
        for _ in range(2):
            fork.append("user", "something else", tokens=30)
        seq = memory.show(memory.context(fork, query="hello"))
        assert memory.why(said, missing_from=seq).steps[-1].text.endswith("shows it in its part window")
        seq = memory.show(memory.context(fork, query="hello", budget=80))
        text = memory.why(said, missing_from=seq).steps[-1].text
        assert "and the oldest messages were left out; 'hello' brings no messages: " in text

    def test_roles_that_are_not_searched(self, memory: Memory) -> None:
        system = memory.conversation("then", project="acme").append("system", PORT)
        assert self.absence(memory, system).startswith("only messages of user and assistant are searched")

    def test_content_that_replaced_it_is_shown_in_its_place(self, memory: Memory, said: Message) -> None:
        memory.conversation("then").replace(said, "The staging database listens on port 7432.")
        seq = memory.show(memory.context(memory.conversation("now", project="acme"), query=WHICH))
        (*_, step) = memory.why(said, missing_from=seq).steps
        assert step.relation == "shown"
        assert step.text == f"the context at seq {seq} shows the content of seq {said.seq + 1} in its place"

    def test_switched_off_and_without_a_query(self, memory: Memory, said: Message) -> None:
        assert (
            self.absence(memory, said, budget=ContextBudget(messages_count=0))
            == "the budget of earlier messages, messages_count, was 0"
        )
        assert self.absence(memory, said, None) == "the context had no query"
        memory.settings.set("memory_enabled", value=False)
        assert self.absence(memory, said) == "the setting memory_enabled was off"


class TestRecalls:
    def test_a_recall_of_messages_says_why_it_lacks_one(self, memory: Memory) -> None:
        chat = memory.conversation("c")
        tea, other = chat.append("user", "tea please now"), chat.append("user", "the weather is fine")
        elsewhere = memory.conversation("d").append("user", "tea in another conversation")
        chat.recall("tea please", top_k=1)
        recall = memory.head
        assert "it is hit 1 of 'tea please'" in memory.why(tea, missing_from=recall).steps[-1].text
        assert "it has no score" in memory.why(other, missing_from=recall).steps[-1].text
        assert memory.why(elsewhere, missing_from=recall).steps[-1].text == (
            f"the recall at seq {recall} was one of conversation/c, and looked nowhere else"
        )
        memory.erase([recall])
        assert "what it looked for is not known" in memory.why(other, missing_from=recall).steps[-1].text


class TestSkills:
    def test_a_skill_says_what_selected_it_and_which_share_cut_it(self, memory: Memory) -> None:
        chat = memory.conversation("c")
        ask = "write the release notes and tune the queries"
        for name, about in (("release-notes", "Write the notes of a release."), ("tune-queries", "Tune slow queries.")):
            memory.skills.library.learn(name, about, f"{about} " * 200, status="active")
        learned = memory.skills.library.learn("bake-bread", "Bake bread at home.", "Knead it.", status="active")
        matches = memory.skills.choose(ask, conversation="c")
        assert {match.skill.name for match in matches} == {"release-notes", "tune-queries"}
        chat.append("user", ask)
        whole = memory.show(memory.context(chat, query=ask, skills=matches))
        first, second = (match.skill.name for match in matches)
        assert [step.seq for step in memory.why(first).of("shown")] == [whole]
        assert [step.seq for step in memory.why(second).of("shown")] == [whole]
        cut = memory.show(memory.context(chat, query=ask, skills=matches, budget=300))
        assert "shows it in its part skills" in memory.why(first, missing_from=cut).of("shown")[-1].text
        text = memory.why(second, missing_from=cut).of("hidden")[-1].text
        assert f"with a score of {matches[1].score:.3g} it was skill 2 of 2" in text
        assert "the part skills has room for" in text
        assert f"shows {first}" in text
        missing = memory.why(learned, missing_from=cut).of("hidden")[-1].text
        assert f"not selected; {first}, {second} were; it shares nothing with" in missing

    def test_a_query_is_answered_with_the_words_and_the_floor(self, memory: Memory) -> None:
        library = memory.skills.library
        learned = library.learn("release-notes", "Write the notes of a release.", "One line each.", status="active")
        (found,) = memory.why(learned, missing_from="please write the notes of this release").of("hidden")
        assert "it is ranked 1" in found.text
        assert "note" in found.text
        (found,) = memory.why(learned, missing_from="I left a note for my aunt on the kitchen table").of("hidden")
        assert "is under the 1.00 that it needs" in found.text
        library.toggle("release-notes", enabled=False)
        assert "switched off" in memory.why(learned, missing_from="notes").of("hidden")[0].text


def test_a_value_that_came_back_and_left_again_is_followed_to_its_end(memory: Memory) -> None:
    chat = memory.conversation("c")
    chat.scratchpad.set("k", "one")
    seq, first = memory.head, chat.snapshot()
    chat.scratchpad.set("k", "two")
    replaced, second = memory.head, chat.snapshot()
    chat.restore(first)
    returned = memory.head
    chat.scratchpad.clear()
    cleared = memory.head
    chat.restore(second)  # Its last value is there again, as if nothing had been in between.
    assert told(memory.why(seq)) == [("came", seq), ("left", replaced), ("returned", returned), ("left", cleared)]
    assert memory.why("k").is_there


class TestBoards:
    def test_a_message_leaves_by_what_takes_its_place_and_comes_back_with_an_earlier_state(
        self, memory: Memory
    ) -> None:
        board = memory.board(project="atlas", node="pier")
        board.append_message({"role": "assistant", "id": "t1", "content": "TODO dig"})
        snapshot = memory.snapshot("before")
        board.append_message({"role": "assistant", "id": "t1", "content": "DONE"})
        assert not memory.why("TODO dig").is_there
        assert memory.why("DONE").is_there
        board.append_message({"role": "assistant", "content": "later words"})
        memory.restore(snapshot)
        first, second, third = (memory.why(text) for text in ("TODO dig", "DONE", "later words"))
        assert [step.relation for step in first.steps] == ["came", "left", "returned"]
        assert first.steps[1].text == "another text took its place: a message was put on the board: 'DONE'"
        assert [first.is_there, second.is_there, third.is_there] == [True, False, False]
        assert [step.relation for step in third.steps] == ["came", "left"]
        assert memory.fork("fork").why("TODO dig").is_there
        board.set_messages([])
        assert memory.why("TODO dig").steps[-1].relation == "left"

    def test_the_oldest_of_too_many_messages_leaves_and_one_that_was_erased_is_not_there(self, memory: Memory) -> None:
        board = memory.board(session="s")
        for number in range(MESSAGES_KEPT + 5):
            board.append_message({"role": "user", "content": f"word{number} here"})
        gone = memory.why("word3 here")
        assert not gone.is_there
        assert gone.steps[-1].seq == 1 + MESSAGES_KEPT + 3
        assert gone.steps[-1].text == "it was the oldest of more than 200 messages, which is all that a board keeps"
        assert memory.why("word5 here").is_there
        memory.erase([6])
        erased = memory.why(6)
        assert not erased.is_there
        assert [step.relation for step in erased.steps] == ["came", "erased"]


class TestTexts:
    def test_a_text_is_answered_for_wherever_it_is(self, memory: Memory) -> None:
        chat = memory.conversation("c")
        said = chat.append("user", "port 6543 it is")
        chat.scratchpad.set("port", "port 6543")
        memory.journal().append("learned of port 6543")
        entry = memory.project("p").add("it is port 6543")
        answer = memory.why("port 6543")
        assert [step.seq for step in answer.of("came")] == [said.seq + 1, said.seq + 2, entry.seq, said.seq]
        assert {step.subject.split(" ")[0] for step in answer.steps} == {"message", "scratchpad", "journal", "memory"}
        assert not memory.why("nowhere").is_there
        assert "holds 'nowhere'" in memory.why("nowhere").steps[0].text

    def test_notes_and_findings_leave_with_what_clears_them(self, memory: Memory) -> None:
        chat = memory.conversation("c")
        chat.scratchpad.note("mind the gap")
        seq = memory.head
        note = memory.journal().append("a day")
        assert memory.why(seq).is_there
        chat.scratchpad.clear()
        assert told(memory.why(seq)) == [("came", seq), ("left", memory.head)]
        assert memory.why(note).is_there

    def test_what_is_erased_is_told_without_its_content(self, memory: Memory) -> None:
        chat = memory.conversation("c", window_tokens=100)
        secret = chat.append("user", "the secret word", tokens=5)
        answer = chat.append("assistant", "noted", tokens=5)
        receipt = memory.erase([secret])
        assert (receipt.turns, receipt.conversations) == (1, 1)
        told_of = memory.why(secret.seq)
        assert "secret word" not in str(told_of)
        assert told_of.of("erased")[0].seq == memory.head
        assert [turn.answer for turn in memory.influence(secret.seq).turns] == [answer.seq]
        assert "1 erased events may have held it" in memory.why("secret word").steps[0].text

    def test_what_was_shown_is_known_by_key_and_once_it_is_erased(self, memory: Memory) -> None:
        """Contexts that were made of it are erased with it: what parts they had is not known any more."""
        chat = memory.conversation("c")
        memory.profile().set("dog", "Rex")
        value = memory.head
        said = chat.append("user", "My pin is 9999.", tokens=5)
        answers = []
        for _ in range(2):
            memory.show(memory.context(chat, query="pin"))
            answers.append(chat.append("assistant", "noted", tokens=5).seq)
        memory.profile().set("dog", "Bello")
        memory.show(memory.context(chat))
        answers.append(chat.append("assistant", "noted", tokens=5).seq)

        def told_by(x: Any) -> list[int]:
            return [turn.answer for turn in memory.influence(x).turns]

        for _ in range(2):
            assert (told_by(said.seq), told_by(value)) == (answers, answers[:2])
            assert told_by("dog") == answers[-1:] if memory.why(value).of("erased") else answers
            assert [step.relation for step in memory.why(value).steps].count("shown") == 2
            memory.erase([said, value])

    def test_a_key_of_a_conversation_that_was_forked_of_nothing_is_known_and_erased(self, memory: Memory) -> None:
        fork = memory.conversation("nothing").fork("of nothing")
        fork.scratchpad.set("k", "the value")
        seq = memory.head
        assert memory.why("k").is_there
        assert [value.seq for value in memory.blame("k", conversation=fork)] == [seq]
        assert memory.influence("k").turns == ()
        assert memory.erase([seq]).seqs == (seq,)

    def test_nonsense_is_refused(self, memory: Memory) -> None:
        memory.profile().set("a", "b")
        for nonsense in (object(), 1.5, True, None):
            with pytest.raises(InvalidInput):
                memory.why(nonsense)
        with pytest.raises(NotFound):
            memory.why(99)
        with pytest.raises(InvalidInput):
            memory.why("")


class TestSentences:
    def test_every_event_has_a_sentence_with_fields_of_its_own(self) -> None:
        for event_type in fold.TAGS:
            assert event_type.sentence, f"{event_type.__name__} has no sentence"
            fields = {field for _, field, _, _ in Formatter().parse(event_type.sentence) if field}
            assert fields <= set(event_type.__struct_fields__), event_type
            assert "sentence" in vars(event_type), f"{event_type.__name__} has the sentence of another event"
            kind, field = event_type.subject
            assert not field or field in event_type.__struct_fields__, event_type
            assert kind or not field

    def test_every_view_is_read_for_its_sentences(self) -> None:
        sources = [*REFOLD.glob("views/*.py"), REFOLD / "event.py", REFOLD / "message.py", REFOLD / "entry.py"]
        tagged = {
            node.name
            for path in sources
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ClassDef) and any(keyword.arg == "tag" for keyword in node.keywords)
        }
        assert tagged == {event_type.__name__ for event_type in fold.TAGS}


# The oracle: what became of things, told by a fold by hand.


def asked(memory: Memory, fate: Fate) -> Fate:
    answer = memory.why(fate.x, conversation=fate.conversation)
    came = answer.of("came")
    left = answer.steps and [step for step in answer.steps if step.relation in ("left", "returned")]
    last = left[-1] if left else None
    gone = last.seq if last is not None and last.relation == "left" else 0
    return Fate(fate.x, fate.conversation, came[0].seq if came else 0, gone, answer.is_there)


def check(memory: Memory, draw: Random, count: int) -> int:
    known = fates(memory)
    chosen = [draw.choice(known) for _ in range(count)]
    for fate in chosen:
        assert asked(memory, fate) == fate
    return len(chosen)


@pytest.mark.parametrize("seed", range(2))
def test_answers_are_those_of_a_fold_by_hand(seed: int) -> None:
    draw = Random(seed)
    with Memory(window_tokens=12) as memory:
        fill(memory, 600, draw)
        assert check(memory, draw, 60) == 60


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_a_thousand_answers_are_those_of_a_fold_by_hand(seed: int) -> None:
    draw = Random(seed)
    with Memory(window_tokens=draw.choice((3, 12, 40))) as memory:
        fill(memory, 2_000, draw)
        assert check(memory, draw, 100) == 100


class TestRestored:
    def test_what_is_in_the_window_before_and_after_a_restore_never_left(self, memory: Memory) -> None:
        chat = memory.conversation("c", window_tokens=100)
        first = chat.append("user", "the first", tokens=5)
        memory.snapshot("then")
        second = chat.append("user", "the second", tokens=5)
        memory.restore("then")
        restored = memory.head
        assert told(memory.why(first)) == [("came", first.seq)]
        assert told(memory.why(second)) == [("came", second.seq), ("left", restored)]
        pusher = chat.append("user", "too much", tokens=98)
        memory.restore("then")
        assert told(memory.why(first)) == [("came", first.seq), ("left", pusher.seq), ("returned", memory.head)]


class TestVeryMany:
    def test_whom_earlier_messages_were_shown_to_is_counted_for_few_and_for_many(self, memory: Memory) -> None:
        """Contexts of another conversation quote messages of the one that is erased."""
        for name, count in (("few", 3), ("many", 30)):
            chat = memory.conversation(name, project=name)
            for number in range(count):
                chat.append("user", f"Please book table {number} for Friday evening.", tokens=5)
            reader = memory.conversation(f"reader of {name}", project=name)
            for number in range(4):
                reader.append("user", f"Which table is booked for Friday evening, take {number}?", tokens=5)
                memory.show(memory.context(reader, query="Which table is booked for Friday evening?"))
                reader.append("assistant", "Table 2.", tokens=2)
            receipt = chat.erase()
            assert (name, receipt.turns, receipt.conversations) == (name, 4, 1)


class TestText:
    def test_the_answer_begins_with_what_holds_now_of_each_thing(self, memory: Memory) -> None:
        chat = memory.conversation("c", window_tokens=20)
        first = chat.append("user", "The port is 6543.", tokens=15)
        pusher = chat.append("user", "another thing", tokens=15)
        entry = memory.project("p").add("The port is 6543, Alice says.")
        for _ in range(9):
            memory.show(memory.context(chat, query="Which port? 6543?", project="p"))
        answer = memory.why("6543")
        head, *rest = str(answer).splitlines()
        assert "present in" in head
        assert rest[0].startswith(f"  memory of seq {entry.seq} in project/p: present since seq {entry.seq}")
        assert rest[1].startswith(f"  message of seq {first.seq} in conversation/c: gone since seq {pusher.seq}")
        assert "another thing" in rest[1]
        assert answer.present[0] == f"memory of seq {entry.seq} in project/p"

    def test_the_newest_steps_that_showed_it_are_printed_and_all_are_data(self, memory: Memory) -> None:
        chat = memory.conversation("c")
        entry = memory.project("p").add("The port is 6543.")
        seqs = [memory.show(memory.context(chat, query="Which port?", project="p")) for _ in range(9)]
        answer = memory.why(entry)
        assert [step.seq for step in answer.of("shown")] == seqs
        printed = [line for line in str(answer).splitlines() if line.startswith("  shown")]
        assert "6 earlier ones not printed" in printed[0]
        assert [f"seq {seq} " in line for seq, line in zip(seqs[-3:], printed[1:], strict=True)] == [True] * 3

    def test_a_context_is_told_with_the_part_that_showed_it_and_the_rank_of_a_memory(self, memory: Memory) -> None:
        chat = memory.conversation("c", project="p")
        said = chat.append("user", "Is the port 6543?")
        memory.profile().set("port", "6543")
        entry = memory.project("p").add("The port of the database is 6543.")
        memory.project("p").add("The logo is a heron.")
        for _ in range(2):
            seq = memory.show(memory.context(chat, query="Which port?"))

        def shown(x: Any) -> list[str]:
            return [step.text for step in memory.why(x).of("shown")]

        assert shown(said) == ["a context showed it in its part window, for 'Which port?'"] * 2
        assert shown("port") == ["a context showed it in its part profile, for 'Which port?'"] * 2
        assert shown(entry) == ["a context showed it in its part memories, for 'Which port?'"] * 2
        (*_, found) = memory.why(entry, missing_from=seq).of("shown")
        assert f"{seq} shows it in its part memories: it is ranked 1 of 2, with a score of 0." in found.text
        assert found.text.endswith(", and 200 at most are taken")
        other = memory.conversation("d", project="p")
        memory.show(memory.context(other, query="Which port was it, 6543?"))
        assert shown(said)[-1] == "a context showed it in its part messages, for 'Which port was it, 6543?'"
        memory.erase([memory.head])
        assert "was erased" in shown(entry)[-1]

    def test_a_question_without_a_query_asks_no_embedder(self, tmp_path: Path) -> None:
        class Down(HashedEmbedder):
            def embed(self, texts: list[str]) -> Any:
                raise ConnectionError(f"no network for {len(texts)} texts")

        with Memory(tmp_path / "store") as memory:
            chat = memory.conversation("c", project="p")
            entry = memory.project("p").add("The port is 6543.")
            seq = memory.show(memory.context(chat, query="Which port?"))
        with Memory(tmp_path / "store", embedder=Down()) as memory:
            (step,) = memory.why(entry.id).of("shown")
            assert step.text == "a context showed it in its part memories, for 'Which port?'"
            with pytest.raises(ConnectionError, match="no network"):
                memory.why(entry.id, missing_from=seq)

    def test_of_many_places_only_the_first_ones_are_printed_with_their_steps(self, memory: Memory) -> None:
        chat = memory.conversation("c")
        for number in range(5):
            chat.append("user", f"Heron {number}.")
        memory.profile().set("bird", "Heron")
        answer = memory.why("Heron")
        text = str(answer)
        assert [text.count(f"in conversation/c: present since seq {message.seq}") for message in chat.window()] == [
            1
        ] * 5
        assert text.count("  came") == 3
        assert text.splitlines()[1].startswith("  profile 'bird'")
        assert text.splitlines()[-1].startswith("the steps of 3 more are not printed")
        assert len(answer.of("came")) == 6

    def test_things_are_answered_for_before_contexts_that_quote_the_words(self, memory: Memory) -> None:
        chat = memory.conversation("c")
        entry = memory.project("p").add("The port is 6543.")
        for _ in range(25):
            memory.show(memory.context(chat, query="Is the port 6543?", project="p"))
        answer = memory.why("6543")
        assert answer.steps[0].seq == entry.seq
        assert "6 more places" in answer.steps[-1].text

    def test_the_first_line_counts_all_places(self, memory: Memory) -> None:
        chat = memory.conversation("c", window_tokens=60)
        for number in range(60):
            chat.append("user", f"order HATHAT number {number}", tokens=10)
        answer = memory.why("HATHAT")
        first = "'HATHAT': found in 60 places, of which 20 follow, now present in 6 of them"
        assert (answer.places, str(answer).splitlines()[0]) == (60, first)
        assert memory.why("number 7").places == 1


def test_an_event_that_only_holds_words_is_said_to_have_no_place_in_a_search_or_a_context(memory: Memory) -> None:
    chat = memory.conversation("c")
    event = memory.snapshot("before the port").seq + 1
    shown = memory.show(memory.context(chat))
    (hidden,) = memory.why(event, missing_from="port").of("hidden")
    assert hidden.text.endswith("and this is an event")
    (hidden,) = memory.why(event, missing_from=shown).of("hidden")
    assert hidden.text.endswith("lacks it: contexts have no part for an event")


def test_metadata_is_held_by_the_log_and_shown_to_no_model(memory: Memory) -> None:
    """Imported sessions keep their task and its answers in the metadata of their first message."""
    chat = memory.conversation("trip")
    first = chat.append("system", "You are a travel agent.", metadata={"task": "the user wants gluten-free meals"})
    chat.append("user", "Hi!")
    chat.append("assistant", "Hello! Where to?")
    memory.show(memory.context(chat, query="meals"))
    answer = memory.why("gluten-free", missing_from="gluten-free")
    assert answer.about == f"metadata of seq {first.seq} in conversation/trip"
    assert [step.relation for step in answer.steps] == ["came", "hidden"]
    assert "no context shows" in str(answer).splitlines()[0]
    assert memory.influence("gluten-free").turns == ()
    said = chat.append("user", "Gluten-free, please: gluten-free.", metadata={"again": "gluten-free"})
    reply = chat.append("assistant", "Noted.")
    assert [turn.answer for turn in memory.influence("gluten-free").turns] == [reply.seq]
    chat.replace(said, "Never mind.", metadata={"was": "gluten-free"})
    chat.append("assistant", "Fine.")
    assert [turn.answer for turn in memory.influence("gluten-free").turns] == [reply.seq]
    assert memory.why("gluten-free").places == 3
    assert memory.why("travel agent").is_there
    assert memory.erase(text="gluten-free").occurrences == 0
    assert not memory.why("gluten-free").places


@pytest.mark.parametrize("field", ["name", "tool_calls", "injected"])
def test_what_else_a_message_carries_is_shown_with_it(memory: Memory, field: str) -> None:
    chat = memory.conversation("c")
    carried: dict[str, dict[str, Any]] = {
        "name": {"name": "gluten-free"},
        "tool_calls": {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"q": "gluten-free"}'}}]},
        "injected": {"metadata": {INJECTED_KEY: {"text": "gluten-free"}}},
    }
    chat.append("assistant" if field == "tool_calls" else "user", "hello", **carried[field])
    reply = chat.append("assistant", "Noted.")
    assert [turn.answer for turn in memory.influence("gluten-free").turns] == [reply.seq]


def test_the_sentence_of_an_erased_event_needs_no_docstring(monkeypatch: pytest.MonkeyPatch, memory: Memory) -> None:
    monkeypatch.setattr(MessageAppended, "__doc__", None)  # As under `python -OO`.
    seq = memory.conversation("c").append("user", "The port is 6543.").seq
    memory.erase([seq])
    came = memory.why(seq).steps[0]
    assert came.text == "user wrote ...; what it said was erased"


def test_a_sentence_names_calls_as_such_in_every_form(memory: Memory) -> None:
    chat = memory.conversation("c")
    call = {"id": "a", "function": {"name": "find", "arguments": '{"q":"tea"}'}}
    use = {"type": "tool_use", "id": "b", "name": "find", "input": {"q": "tea"}}
    chat.append("user", "Where is it?")
    chat.append("assistant", None, tool_calls=[call])
    chat.append("assistant", [{"type": "text", "text": "Hm."}, use])
    chat.append("user", [{"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}])
    said = [turn.text for turn in memory.influence("Where is it").turns]
    assert said == ['assistant wrote \'calls find({"q":"tea"})\'', 'assistant wrote \'Hm.; calls find({"q":"tea"})\'']
    assert "image_url" in memory.why(memory.head).steps[0].text


def test_contexts_before_one_answer_are_looked_through_for_it_once(
    monkeypatch: pytest.MonkeyPatch, memory: Memory
) -> None:
    chat, entry = memory.conversation("c"), memory.add("The port is 5432.")
    chat.append("user", "Which port?")
    context, searched = memory.context(chat, query="Which port?"), list[int]()
    answer_after = exposure._answer_after

    def search(core: Any, stream: str, seq: int, at: int) -> int:
        searched.append(seq)
        return answer_after(core, stream, seq, at)

    monkeypatch.setattr(exposure, "_answer_after", search)
    first = [memory.show(context) for _ in range(20)]
    answered = chat.append("assistant", "It is 5432.")
    last = [memory.show(context) for _ in range(20)]
    turns = memory.influence(entry).turns
    assert [(turn.seen, turn.answer) for turn in turns] == [(first[0], answered.seq), *((seq, 0) for seq in last)]
    assert searched == [first[0], last[0]]


class TestContentsOfMemories:
    """A text of a memory is answered for only while the memory has it."""

    RIDDLE = "The database password is swordfish."

    def turn(self, memory: Memory, name: str) -> int:
        chat = memory.conversation(name, project="p")
        chat.append("user", "database access please")
        memory.show(memory.context(chat, query="database access please", tools=()))
        return chat.append("assistant", f"answer {name}").seq

    def answers(self, memory: Memory, x: object) -> list[int]:
        return [turn.answer for turn in memory.influence(x).turns]

    def test_only_turns_that_held_a_text_count(self, memory: Memory) -> None:
        project = memory.project("p")
        entry = project.add("Ask Bob for the database access.")
        before = self.turn(memory, "before")
        secret = project.update(entry, content=self.RIDDLE)
        between = self.turn(memory, "between")
        project.update(entry, importance=0.9)
        still = self.turn(memory, "still")
        project.update(entry, content="Ask Carol for the database access.")
        after = self.turn(memory, "after")
        for x in ("swordfish", secret.seq):
            assert self.answers(memory, x) == [between, still]
        assert self.answers(memory, entry.seq) == [before]
        assert self.answers(memory, entry) == self.answers(memory, entry.id) == [before, between, still, after]
        answer = memory.why("swordfish")
        assert told(answer)[:1] == [("came", secret.seq)]
        assert before < min(step.seq for step in answer.of("shown")) <= max(s.seq for s in answer.of("shown")) < after
        assert len(memory.why(entry).of("shown")) == 4
        receipt = memory.erase(text="swordfish")
        assert (receipt.turns, receipt.conversations) == (2, 2)
        assert self.answers(memory, secret.seq) == [between, still]

    def test_a_text_that_a_restore_brought_back_was_shown_after_it(self, memory: Memory) -> None:
        project = memory.project("p")
        entry = project.add(self.RIDDLE)
        memory.snapshot("early")
        project.update(entry, content="Ask Carol for the database access.")
        self.turn(memory, "without")
        memory.restore("early")
        back = self.turn(memory, "back")
        project.delete(entry)
        self.turn(memory, "deleted")
        for x in ("swordfish", entry.seq):
            assert self.answers(memory, x) == [back]
        assert [relation for relation, _ in told(memory.why("swordfish"))] == [
            *("came", "left", "returned", "left", "shown")
        ]

    def test_a_recall_shows_the_text_of_its_moment(self, memory: Memory) -> None:
        project, chat = memory.project("p"), memory.conversation("c")
        entry = project.add(self.RIDDLE)
        project.recall("database", conversation=chat)
        answer = chat.append("assistant", "noted").seq
        project.update(entry, content="Ask Carol for the database access.")
        project.recall("database", conversation=chat)
        chat.append("assistant", "noted again")
        assert self.answers(memory, "swordfish") == [answer]

    def test_many_memories_are_counted_like_few(self, memory: Memory) -> None:
        project = memory.project("p")
        with memory.batch():
            entries = [project.add(f"The database number {number} needs access {number}.") for number in range(20)]
        shown = self.turn(memory, "first")
        with memory.batch():
            for entry in entries:
                project.update(entry, content=entry.content.replace("database", "store"))
        self.turn(memory, "second")
        receipt = memory.erase([entry.seq for entry in entries])
        assert (receipt.turns, receipt.conversations) == (1, 1)
        assert {seq for entry in entries for seq in self.answers(memory, entry.seq)} == {shown}

    def test_a_text_is_gone_once_another_took_its_place(self, memory: Memory) -> None:
        project = memory.project("p")
        entry = project.add(self.RIDDLE, keywords=["door"])
        project.update(entry, content="Ask Carol.")
        left = memory.head
        answer = memory.why("swordfish")
        assert (answer.is_there, told(answer)) == (False, [("came", entry.seq), ("left", left)])
        assert "its content changed" in str(answer).splitlines()[0]
        assert memory.why("door").is_there, "the keywords stayed"
        assert memory.why("Carol").is_there
        assert memory.why(entry).is_there
        project.update(entry, content=self.RIDDLE)
        assert ("returned", memory.head) in told(memory.why("swordfish"))
        assert memory.why("swordfish").is_there

    def test_turns_that_held_what_a_quotation_led_to_count_until_that_was_replaced(self, memory: Memory) -> None:
        project = memory.project("p")
        entry = project.add("Ask Bob for the database access.", source_context="It was said in the hallway.")
        held = self.turn(memory, "held")
        project.update(entry, importance=0.9)
        still = self.turn(memory, "still")
        project.update(entry, content="Ask Carol for the database access.", source_context="It was said on the stairs.")
        after = self.turn(memory, "after")
        assert self.answers(memory, "hallway") == [held, still]
        assert self.answers(memory, "on the stairs") == [after]

    def test_a_source_stays_with_a_memory_whatever_it_says(self, memory: Memory) -> None:
        project = memory.project("p")
        entry = project.add(self.RIDDLE, source_context="It was said in the hallway.")
        project.update(entry, content="Ask Carol.")
        assert memory.why("hallway").is_there

    def test_a_file_and_a_skill_are_there_with_the_words_that_they_hold(self, memory: Memory) -> None:
        files = memory.files()
        files.create("/memories/a.md", "one\nsecretline\nthree\n")
        came = memory.head
        files.str_replace("/memories/a.md", "one", "two")
        changed = memory.head
        files.str_replace("/memories/a.md", "secretline", "clean")
        answer = memory.why("secretline")
        assert not answer.is_there
        assert told(answer) == [("came", came), ("changed", changed), ("left", memory.head)]
        assert memory.why("clean").is_there
        assert memory.why("/memories/a.md").is_there
        files.rename("/memories/a.md", "/memories/b.md")
        assert [each for each in memory.why("/memories/a.md").present if each.startswith("file")] == []
        assert memory.why("three").is_there
        library = memory.skills.library
        library.learn("deploy", "Deploy the service.", "Build it by hand.")
        learned = memory.head
        library.refine("deploy", body="Press the button.")
        answer = memory.why("by hand")
        assert (answer.is_there, told(answer)[0], answer.steps[-1].relation) == (False, ("came", learned), "left")
        assert memory.why("the button").is_there
        assert memory.why("deploy").is_there

    def test_a_memory_that_came_only_to_be_merged_is_known_by_its_id(self, memory: Memory) -> None:
        project = memory.project("p")
        first = project.add("The API listens on port 8080.")
        merged = project.upsert("The API listens on the port 8080.", importance=0.9)
        assert merged.outcome == "merged"
        seq = memory.head
        _, back = project.unmerge(seq)
        life = [("came", seq), ("source", first.seq), ("left", seq), ("returned", memory.head), ("source", seq)]
        for x in (back, back.id, project.search("on the port 8080")[0]):
            answer = memory.why(x)
            assert (answer.is_there, told(answer)) == (True, life)
        early = memory.at(seq).why(back.id)
        assert (early.is_there, told(early)) == (False, life[:3])
        held = memory.why("on the port")
        assert held.present == (f"memory of seq {memory.head} in project/p",)
        assert self.answers(memory, back) == []


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("is_shown", [True, False])
def test_turns_that_held_words_of_a_message_count_until_it_was_replaced(
    memory: Memory, *, count: int, is_shown: bool
) -> None:
    chat = memory.conversation("c")
    said = [chat.append("user", f"I like green tea number {number}.") for number in range(count)]

    def answer() -> int:
        if is_shown:
            memory.show(memory.context(chat))
        return chat.append("assistant", "noted").seq

    def answers(words: str, conversation: str | None = None) -> list[int]:
        return [turn.answer for turn in memory.influence(words, conversation=conversation).turns]

    held = answer()
    for message in said:
        chat.replace(message, "I like coffee.")
    chat.append("user", "What now?")
    after = answer()
    assert (answers("green tea"), answers("coffee")) == ([held], [after])
    fork = memory.conversation("c").fork("d")
    in_fork = fork.append("assistant", "noted there").seq
    assert (answers("green tea"), answers("coffee")) == ([held], [after, in_fork])
    for message in said:
        chat.replace(message, "I like green tea again.")
    again = answer()
    assert (answers("green tea"), answers("coffee")) == ([held, again], [after, in_fork])
    assert [turn.answer for turn in memory.influence(said[0]).turns] == [held, after, in_fork, again]


def test_a_turn_that_another_conversation_quoted_the_new_words_of_a_message_in_counts(memory: Memory) -> None:
    chat, other = (memory.conversation(name, project="acme") for name in ("c", "d"))
    said = chat.append("user", "I like green tea from Assam.")
    chat.replace(said, "I like black coffee from Kenya.")
    other.append("user", "Which black coffee from Kenya do I like?")
    memory.show(memory.context(other))
    answer = other.append("assistant", "From Kenya.").seq
    assert "I like black coffee from Kenya." in memory.context(other).text
    for words, answers in (("Assam", []), ("like black coffee", [answer]), (said, [answer])):
        assert [turn.answer for turn in memory.influence(words).turns] == answers


def test_a_note_in_a_fork_came_with_its_own_event(memory: Memory) -> None:
    chat = memory.conversation("a")
    chat.append("user", "hello")
    chat.scratchpad.note("to remember")
    came = memory.head
    chat.append("user", "later")
    chat.fork("f")
    memory.conversation("f").fork("g")
    for name in ("f", "g"):
        answer = memory.why("to remember", conversation=name)
        assert (answer.is_there, told(answer)) == (True, [("came", came)])


def test_the_subjects_of_a_text_are_found_in_linear_time() -> None:
    def steps(count: int) -> int:
        with Memory() as memory:
            with memory.batch():
                for number in range(count):
                    memory.conversation("c").append("user", f"word {number}", tokens=1)
            return steps_of(lambda: memory.why("word"))

    steps(10)
    few, many = steps(250), steps(1_000)
    assert many < 5 * few


def test_a_context_that_masked_a_secret_did_not_show_it(memory: Memory) -> None:
    chat = memory.conversation("s", project="shop/ada", window_tokens=200)
    said = chat.append("user", "My gate code is 5512, and my gate is green.")
    chat.append("assistant", "ok")
    chat.append("user", "What is my gate code?")
    early = memory.show(memory.context(chat, query="What is my gate code?"))
    chat.append("assistant", "It is what you said.")
    for number in range(40):
        chat.append("user", f"filler {number} about the weather in Graz today")
        chat.append("assistant", f"fine {number}")
    question = "What is my gate code, and which color has the gate?"
    chat.append("user", question)
    late = memory.show(memory.context(chat, query=question, budget=2000))
    assert "5512" not in repr(memory.rebuild(late).context.messages())
    answer = chat.append("assistant", "I do not know it.")
    (hidden,) = memory.why("5512", missing_from=late).of("hidden")
    assert hidden.text == (
        f"the context at seq {late} shows the message in its part messages, with [a door code, not shown] in place of "
        "it: contexts mask secrets"
    )
    assert memory.why("5512", missing_from=early).of("shown")[-1].seq == early
    assert [step.seq for step in memory.why("5512").of("shown")] == [early]
    assert answer.seq not in [turn.answer for turn in memory.influence("5512").turns]
    for shown in ("gate is green", said):
        assert [step.seq for step in memory.why(shown).of("shown")] == [early, late]
        assert answer.seq in [turn.answer for turn in memory.influence(shown).turns]
        assert "shows it in its part messages" in memory.why(shown, missing_from=late).of("shown")[-1].text


def test_an_answer_says_which_context_it_was_made_from(memory: Memory) -> None:
    chat = memory.conversation("c")
    asked = chat.append("user", "Where is the lamp?")
    first = memory.show(memory.context(chat))
    later = chat.append("user", "And the gluten-free flour?")
    second = memory.show(memory.context(chat))
    dead = memory.show(memory.context(chat))
    with memory.acting("assistant", cause=second):
        both = chat.append("assistant", "In the hall, and in the kitchen.")
    with memory.acting("assistant", cause=first):
        one = chat.append("assistant", "In the hall.")
    assert [memory.rebuild(each.seq).seq for each in (one, both)] == [first, second]
    assert [(turn.answer, turn.seen) for turn in memory.influence(later).turns] == [(0, dead), (both.seq, second)]
    assert {turn.answer for turn in memory.influence(asked).turns} == {both.seq, one.seq, 0}
    assert [step.seq for step in memory.why(one).of("source")] == [first]
    assert [step.seq for step in memory.why(one).of("cause")] == []
