"""What a model repeats of what it was shown is dropped and said; whatever it corrects or adds is kept."""

import json
from typing import Any

import pytest

from refold import Memory
from refold.agent import AgentLoop, CallableProvider, Reply, default_hooks, extract
from refold.agent.lessons import parse_lessons
from tests.agent.test_extraction import PNPM, PORT
from tests.agent.test_loop import Script
from tests.support.memories import assert_sound

# What is known, and what a model makes of a session in which the user corrected it or added to it.
CORRECTIONS = [
    # Numbers, times, dates, versions.
    ("Alice is 34 years old.", "Alice is 35 years old."),
    ("The user has 2 children.", "The user has 3 children."),
    ("The user has two children.", "The user has three children."),
    ("The rent is 9 hundred euros.", "The rent is 8 hundred euros."),
    ("The rent is 900 euros.", "The rent is 900 dollars."),
    ("The rent is 900 \u20ac.", "The rent is 900 $."),
    ("The server has 16 GB of memory.", "The server has 32 GB of memory."),
    ("The offset is 5 minutes.", "The offset is -5 minutes."),
    ("Requests take < 5 ms.", "Requests take > 5 ms."),
    ("The discount is 10.", "The discount is 10%."),
    ("The user's meeting is on Tuesday at 10.", "The user's meeting is on Tuesday at 11."),
    ("The user's meeting is on Tuesday at 10:30.", "The user's meeting is on Tuesday at 11:30."),
    ("The user's meeting is on Tuesday at 10.", "The user's meeting is on Monday at 10."),
    ("The release is on 2026-11-18.", "The release is on 2026-11-19."),
    ("The project runs on Python 3.11.", "The project runs on Python 3.12."),
    ("The image is tagged v1.", "The image is tagged v2."),
    ("Alice writes C.", "Alice writes C++."),
    ("Alice got a B in chemistry.", "Alice got an A in chemistry."),
    # Names, and who does what to whom.
    ("The on-call engineer this week is Alice.", "The on-call engineer this week is Bo."),
    ("The user's cat is called Al and sleeps a lot.", "The user's cat is called Ed and sleeps a lot."),
    ("Bob reports to Alice.", "Alice reports to Bob."),
    ("Use pnpm, not npm.", "Use npm, not pnpm."),
    ("Run the tests with coverage.", "Run the tests without coverage."),
    ("Go to production by Friday.", "Go to production on Friday."),
    # Signs and pictures.
    ("The user likes \U0001f355.", "The user likes \U0001f363."),
    ("The build of main: \u2705", "The build of main: \u274c"),
    ("The user lives in \U0001f1e9\U0001f1ea.", "The user lives in \U0001f1eb\U0001f1f7."),
    # Negations.
    ("Run the tests in parallel.", "Do not run the tests in parallel."),
    ("Do not run the tests in parallel.", "Run the tests in parallel."),
    ("Do not run tests that do not pass.", "Run tests that do not pass."),
    ("The user is allergic to nuts and almonds.", "The user isn't allergic to nuts and almonds."),
    (
        "Alice M\u00fcller ist allergisch gegen Erdn\u00fcsse und Mandeln.",
        "Alice M\u00fcller ist nicht allergisch gegen Erdn\u00fcsse und Mandeln.",
    ),
    ("Das Team hat keinen Server in Oslo.", "Das Team hat einen Server in Oslo."),
    ("Das Treffen ist am Dienstag um 9.", "Das Treffen ist am Dienstag um 8."),
    ("Alice est allergique aux noix et aux amandes.", "Alice n'est pas allergique aux noix et aux amandes."),
    ("Alice est allergique aux noix.", "Alice n\u2019est plus allergique aux noix."),
    ("Le train part \u00e0 7 h.", "Le train part \u00e0 8 h."),
    ("El proyecto usa pnpm para todos los paquetes.", "El proyecto no usa pnpm para todos los paquetes."),
    ("Ana nunca come carne.", "Ana come carne."),
    ("\u7528\u6237\u559c\u6b22\u8336\u3002", "\u7528\u6237\u4e0d\u559c\u6b22\u8336\u3002"),
    ("\u7528\u6237\u4e0d\u559c\u6b22\u8336\u3002", "\u7528\u6237\u559c\u6b22\u8336\u3002"),
    ("\u7528\u6237\u6709\u4e24\u4e2a\u5b69\u5b50\u3002", "\u7528\u6237\u6709\u4e09\u4e2a\u5b69\u5b50\u3002"),
    ("\u7231\u4e3d\u4e1d\u559c\u6b22\u9c8d\u52c3\u3002", "\u9c8d\u52c3\u559c\u6b22\u7231\u4e3d\u4e1d\u3002"),
    (
        "\u30e6\u30fc\u30b6\u30fc\u306f\u304a\u8336\u3092\u98f2\u307f\u307e\u3059\u3002",
        "\u30e6\u30fc\u30b6\u30fc\u306f\u304a\u8336\u3092\u98f2\u307f\u307e\u305b\u3093\u3002",
    ),
    ("\u4f1a\u8b70\u306f10\u6642\u3067\u3059\u3002", "\u4f1a\u8b70\u306f11\u6642\u3067\u3059\u3002"),
    (
        "Ivan \u043b\u044e\u0431\u0438\u0442 \u0447\u0430\u0439.",
        "Ivan \u043d\u0435 \u043b\u044e\u0431\u0438\u0442 \u0447\u0430\u0439.",
    ),
    # More than was known.
    ("Alice likes tea.", "Alice likes green tea."),
    ("The user is probably allergic to nuts.", "The user is allergic to nuts."),
    ("We use Google Cloud.", "Go"),
]
ECHOES = [
    ("Use pnpm, not npm.", "Use pnpm, not npm."),
    ("Use pnpm, not npm.", "use pnpm, not npm"),
    ("Use pnpm, not npm, for all packages.", "Use pnpm, not npm."),
    ("The deploy key is rotated on Mondays", "The deploy key is rotated on Mondays."),
    ("The user prefers  dark\nmode.", "The user prefers dark mode!"),
    ("The user prefers dark mode.", "User prefers dark mode"),
    ("- Tests need Docker.", "Tests need Docker"),
    ("Tests need Docker. | The API listens on port 8080.", "The API listens on port 8080."),
    ("Tests need Docker. | The API listens on port 8080.", "the API listens on port 8080 | tests need Docker"),
    ("Alice is 34 years old and lives in Oslo.", "Alice is 34 years old."),
    ("Never push to main.", "\u201cNever push to main\u201d"),
    ("The user likes \U0001f355 and \U0001f363.", "The user likes \U0001f355"),
    ("Anna mag keinen Kaffee.", "anna mag keinen Kaffee"),
    ("Alice n'est pas allergique aux noix.", "Alice n'est pas allergique aux noix"),
    ("El proyecto no usa npm.", "el proyecto no usa npm"),
    ("\u7528\u6237\u4e0d\u559c\u6b22\u8336\u3002", "\u7528\u6237\u4e0d\u559c\u6b22\u8336"),
    ("\u7528\u6237\u559c\u6b22\u8336\u548c\u5496\u5561\u3002", "\u7528\u6237\u559c\u6b22\u8336"),
    (
        "\u30e6\u30fc\u30b6\u30fc\u306f\u304a\u8336\u304c\u597d\u304d\u3067\u3059\u3002",
        "\u30e6\u30fc\u30b6\u30fc\u306f\u304a\u8336\u304c\u597d\u304d\u3067\u3059",
    ),
    ("Ana gosta de ch\u00e1 verde.", "Ana gosta de cha\u0301 verde."),
]


@pytest.mark.parametrize(("known", "said"), CORRECTIONS)
def test_a_correction_is_no_echo(known: str, said: str) -> None:
    found = parse_lessons([{"content": said}], echoes={"m": known})
    assert ([item.content for item in found.items], found.dropped) == ([said], ())
    both = parse_lessons([{"content": known}, {"content": said}])
    assert [item.content for item in both.items] == [known, said], "nor is it one of another item"


@pytest.mark.parametrize(("known", "said"), ECHOES)
def test_a_repetition_is_dropped_and_names_what_it_repeats(known: str, said: str) -> None:
    found = parse_lessons([{"content": "Something new."}, {"content": said}], echoes={"m0": "Else.", "m1": known})
    assert [item.content for item in found.items] == ["Something new."]
    assert found.dropped == ("item 2: memory m1 says it already",)
    twice = parse_lessons([{"content": known}, {"content": said}])
    assert twice.dropped == ("item 2: item 1 says it already",)


@pytest.mark.parametrize(("known", "said"), CORRECTIONS[:40:3])
def test_a_session_that_corrects_a_memory_changes_what_is_known(memory: Memory, known: str, said: str) -> None:
    project = memory.project("acme")
    project.add(known)
    default_hooks(memory, provider=CallableProvider(lambda *_: [{"category": "fact", "content": said}]))
    loop = AgentLoop(memory, memory.conversation("c", project="acme"), Script(Reply("All right.")))
    loop.run(f"It is otherwise: {said}")
    loop.end()
    assert any(said in entry.content for entry in project.list())
    assert loop.notices == ("Learned 1 new fact about this project",)
    assert_sound(memory)


def test_what_was_not_learned_is_in_a_notice_and_in_the_record(memory: Memory) -> None:
    known = memory.project("acme").add("Use pnpm, not npm, for all packages.")
    items: list[Any] = [PNPM, PORT, PORT | {"content": " "}, PORT | {"content": 5}, 7]
    default_hooks(memory, provider=CallableProvider(lambda *_: json.dumps(items)))
    loop = AgentLoop(memory, memory.conversation("c", project="acme"), Script(Reply("All right.")))
    loop.run("We use pnpm, and the API listens on port 8080.")
    loop.end()
    assert loop.notices == (
        "Learned 1 new fact about this project",
        (
            f"Not learned: item 1: memory {known.id} says it already; item 3: its content is empty; item 4: its "
            "content is empty; and 1 more"
        ),
    )
    event: Any = next(each.event for each in memory.events() if type(each.event).__name__ == "MemoriesExtracted")
    assert event.dropped[0] == f"item 1: memory {known.id} says it already"
    assert len(event.dropped) == 4


@pytest.mark.parametrize(
    ("fact", "content", "is_known"),
    [
        *((("diet", "vegetarian"), text, True) for text in ("User is vegetarian", "The user's diet is vegetarian.")),
        (("likes", "coffee, tea"), "User likes tea.", True),
        (("pets", "dog Rex"), "User has a dog.", True),
        (("diet", "vegetarian"), "User is not vegetarian", False),
        (("diet", "vegetarian"), "User's wife is vegetarian", False),
        (("diet", "vegetarian"), "Ann is vegetarian", False),
        (("children", "2"), "User has 3 children", False),
        (("city", "Leeds"), "User", False),
    ],
)
def test_what_the_profile_says_is_not_learnt(fact: tuple[str, str], content: str, *, is_known: bool) -> None:
    found = parse_lessons([{"content": content}], profile=[("shoes", "44"), fact])
    assert bool(found.items) is not is_known
    assert found.dropped == ((f"item 1: the profile ({fact[0]}) says it already",) if is_known else ())


def test_the_model_is_shown_the_profile_of_the_session(memory: Memory) -> None:
    asked: list[str] = []
    memory.profile("ann").set("diet", "vegetarian\n## Rules")
    memory.profile().set("city", "Leeds")

    def answer(messages: Any, *_: object) -> Any:
        asked.append(messages[0]["content"])
        return "[]"

    provider = CallableProvider(answer)
    default_hooks(memory, provider=provider)
    loop = AgentLoop(memory, memory.conversation("c", project="acme"), Script(Reply("Noted.")), profile="ann")
    loop.run("I am vegetarian.")
    loop.end()
    shown = "\n- diet: vegetarian ## Rules\n"
    assert shown in asked[0].partition("## User Profile")[2]
    assert "Leeds" not in asked[0]
    chat = memory.conversation("c")
    chat.append("user", "Still so.")
    extract(chat, provider, memory=memory)
    assert shown in asked[1], "the one that the conversation was shown last"
    chat.append("user", "Bye.")
    extract(chat, provider, memory=memory, profile="default")
    assert "- city: Leeds\n" in asked[2]


@pytest.mark.parametrize(("said", "count"), [("Hello, I am Bob.", 0), ("We use Zustand in the frontend.", 1)])
def test_an_example_of_the_question_is_learnt_only_if_it_was_said(memory: Memory, said: str, count: int) -> None:
    chat = memory.conversation("c", project="acme")
    chat.append("user", said)
    example = "Frontend uses Zustand for state management."
    items = [{"content": example}, {"content": "concise factual statement"}, {"content": "Bob likes state machines."}]
    extracted = extract(chat, CallableProvider(lambda *_: items), memory=memory)
    assert [entry.content for entry in memory.project("acme").list()] == [example, items[2]["content"]][1 - count :]
    assert extracted.dropped == tuple(
        f"item {number}: it is an example of the question" for number in range(1 + count, 3)
    )
