"""Explicit memory commands: the phrases, and what they leave of a message."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold import InvalidInput, Memory
from refold.agent import (
    AgentLoop,
    CallableProvider,
    ForgetCommand,
    RecallCommand,
    RememberCommand,
    Reply,
    UserMessageResult,
    WithholdCommand,
    default_hooks,
    detect_memory_command,
)
from tests.agent.test_loop import Script

REMEMBERED = [
    ("remember that I like tea", "I like tea"),
    ("Remember that I like tea.", "I like tea"),
    ("REMEMBER THAT I LIKE TEA!", "I LIKE TEA"),
    ("note that the build needs Docker", "the build needs Docker"),
    ("Note that: the build needs Docker", "the build needs Docker"),
    ("note that, as of today, main is frozen", "as of today, main is frozen"),
    ("Remember: tests first", "tests first"),
    ("Remember that my servers are:\n\n- a.example\n- b.example", "my servers are:\n\n- a.example\n- b.example"),
    ("Note: standup is at 9.\n\nThanks!", "standup is at 9"),
    ("Never push to main.\r\n\r\nCheers, Ada", "Never push to main"),
    ("Note:\n\nI use vim", "I use vim"),
    ("Remember:\n\n- tests first\n- then the build", "- tests first\n- then the build"),
    ("Remember this: tests first", "tests first"),
    ("note\uff1a \u7528 pnpm\u3002", "\u7528 pnpm"),
    ("Keep in mind that CI is slow...", "CI is slow"),
    ("don't forget that we deploy on Friday", "we deploy on Friday"),
    ("Don\u2019t forget: deploy on Friday", "deploy on Friday"),
    ("  \n remember\tthat   spaces \n do not matter  ", "spaces \n do not matter"),
    ("remember that \u6211\u559c\u6b22\u8336\uff01", "\u6211\u559c\u6b22\u8336"),
    ("remember that it works. ! \u3002\uff1f ", "it works"),
    ("remember that he said \u201cnever\u201d", "he said \u201cnever\u201d"),
    ("remember that we stop remembering logs", "we stop remembering logs"),
    # Without "that", what is stated of oneself and of what one has.
    ("Remember my birthday is on May 3.", "my birthday is on May 3"),
    ("remember my wife's birthday is May 3", "my wife's birthday is May 3"),
    ("Remember, our tests need Docker!", "our tests need Docker"),
    ("Remember the staging server is in Oslo.", "the staging server is in Oslo"),
    ("Remember the password of the wifi is on the fridge.", "the password of the wifi is on the fridge"),
    ("Remember my wife and I are vegan.", "my wife and I are vegan"),
    ("Remember the meeting time is 5 pm.", "the meeting time is 5 pm"),
    ("Remember my dog never eats fish.", "my dog never eats fish"),
    ("Remember my son can swim.", "my son can swim"),
    ("Remember the door code doesn\u2019t change.", "the door code doesn\u2019t change"),
    ("Remember I'm allergic to nuts.", "I'm allergic to nuts"),
    ("Remember I\u2019d like short answers.", "I\u2019d like short answers"),
    ("remember I always use pnpm", "I always use pnpm"),
    ("Remember we deploy on Fridays.", "we deploy on Fridays"),
    ("Remember I was born in Oslo.", "I was born in Oslo"),
    ("Remember I have a dog.", "I have a dog"),
    ("Please also remember my birthday is on May 3.", "my birthday is on May 3"),
    ("Also, please remember my birthday is on May 3, please.", "my birthday is on May 3"),
    ("Can you remember my birthday is on May 3?", "my birthday is on May 3"),
    ("Hi! Remember my birthday is on May 3. What is for lunch?", "my birthday is on May 3"),
    # What was said before it in the sentence.
    ("My name is Sam, remember that.", "My name is Sam"),
    ("I'm vegan, please remember that.", "I'm vegan"),
    ("We deploy on Fridays; keep that in mind.", "We deploy on Fridays"),
    ("I live in Graz - remember this for later", "I live in Graz"),
    ("My flight is on Friday, don't forget it!", "My flight is on Friday"),
    # A rule keeps its verb.
    ("always use pnpm", "always use pnpm"),
    ("Always use pnpm.", "Always use pnpm"),
    ("never do force pushes", "never do force pushes"),
    ("Never use tabs!", "Never use tabs"),
    ("always answer in German\u3002", "always answer in German"),
    ("never commit to main", "never commit to main"),
    # What "use" and "do" speak of may look like talk.
    *(
        (f"{text}.", text)
        for text in (
            *("Always use structured logging", "Always use named exports", "Always use typed errors in this repo"),
            *("Always use the new API client", "Always use our logger, not print", "Always use one commit per change"),
            *("Always use my work e-mail for invoices", "Always use testing-library", "Always use spring green"),
            *("Never use nested ternaries", "Never use a mock for the database", "Never use existing fixtures"),
            *("Never use more than three arguments", "Never use that library again", "Never do the same work twice"),
            "Always use this format: day, month, year",
        )
    ),
    ("From now on, always use tabs.", "always use tabs"),
    ("Remember to always answer in French.", "always answer in French"),
    ("Make sure you never push to main.", "never push to main"),
    # What is asked of the one who reads is a command, and so is what ends in a statement.
    ("Always use pnpm, okay?", "Always use pnpm"),
    ("Remember that I like tea, please?", "I like tea"),
    ("Would you remember that I like tea?", "I like tea"),
    ("Remember that I like tea. Got it?", "I like tea"),
    # A question that follows is no part of it.
    ("Remember that I'm vegan.\nWhat can I cook tonight?", "I'm vegan"),
    ("Hi! Remember that I am vegan. Also what's for dinner?", "I am vegan"),
    ("Remember that I am vegan. I like tofu. What's for dinner? I have an hour!", "I am vegan. I like tofu"),
    ("Remember that I am vegan\n\nWhat's for dinner? And for lunch, please?", "I am vegan"),
    ("Never push to main. What is next?", "Never push to main"),
    (
        "\u8bb0\u4f4f\u6211\u559c\u6b22\u8336\u3002\u665a\u996d\u5403\u4ec0\u4e48\uff1f",
        "\u6211\u559c\u6b22\u8336",
    ),
    ("Always have the tests run before a push", "Always have the tests run before a push"),
    ("Never let agents write to main", "Never let agents write to main"),
    ("Remember that the page is https://a.example/?q=1", "the page is https://a.example/?q=1"),
    ("Remember my page is https://a.example/?q=1.", "my page is https://a.example/?q=1"),
    ("\u8bf7\u8bb0\u4f4f\u6211\u559c\u6b22\u8336\uff0c\u597d\u5417\uff1f", "\u6211\u559c\u6b22\u8336"),
    # Polite words may come before it.
    ("Please remember that I like tea", "I like tea"),
    ("Hey, could you please remember that I like tea?", "I like tea"),
    ("Can you remember that I like tea, please?", "I like tea"),
    ("I'd like you to remember that I like tea.", "I like tea"),
    ("Please always use pnpm.", "always use pnpm"),
    # Chinese and Japanese.
    ("\u8bf7\u8bb0\u4f4f\uff1a\u6211\u559c\u6b22\u8336\u3002", "\u6211\u559c\u6b22\u8336"),
    ("\u8acb\u8a18\u5f97\u6211\u559c\u6b61\u8336", "\u6211\u559c\u6b61\u8336"),
    ("\u522b\u5fd8\u4e86\u6211\u4f4f\u5728\u5965\u65af\u9646", "\u6211\u4f4f\u5728\u5965\u65af\u9646"),
    (
        "\u304a\u8336\u304c\u597d\u304d\u3060\u3068\u899a\u3048\u3066\u304a\u3044\u3066\u304f\u3060\u3055\u3044\u3002",
        "\u304a\u8336\u304c\u597d\u304d\u3060",
    ),
    ("\u899a\u3048\u3066\u304a\u3044\u3066\uff1a\u304a\u8336\u304c\u597d\u304d", "\u304a\u8336\u304c\u597d\u304d"),
]
FORGOTTEN = [
    ("forget that I like tea", "I like tea"),
    ("Could you forget that I like tea?", "I like tea"),
    ("Forget that I like tea, will you?", "I like tea"),
    ("stop remembering that I like tea", "I like tea"),
    ("forget that you should remember that I like tea", "you should remember that I like tea"),
    *((f"Forget that {text}", text) for text in ("alice likes tea", "my plan is to retire at 60", "pnpm is used here")),
    *(
        (f"Forget that {text}", text)
        for text in ("Alice moved to Bern", "cats need water", "tea is my favourite drink")
    ),
    *((f"Forget that: {text}", text) for text in ("the plan is to retire", "I asked for green tea", "'we use npm'")),
    ("\u8bf7\u5fd8\u8bb0\u65e7\u670d\u52a1\u5668", "\u65e7\u670d\u52a1\u5668"),
]
# A subject, and no statement.
FORGOTTEN_SUBJECTS = [
    ("stop remembering my address", "my address"),
    ("STOP REMEMBERING my address.", "my address"),
    ("forget about the old server", "the old server"),
    ("delete memory about pnpm", "pnpm"),
    ("Delete the memory about pnpm\uff01", "pnpm"),
    ("remove memories about pnpm", "pnpm"),
    ("Please forget about the old server.", "the old server"),
    ("Can you forget about the old server?", "the old server"),
    ("\u8bf7\u5fd8\u8bb0\u5173\u4e8e\u65e7\u670d\u52a1\u5668", "\u65e7\u670d\u52a1\u5668"),
    (
        "\u53e4\u3044\u30b5\u30fc\u30d0\u30fc\u306e\u3053\u3068\u306f\u5fd8\u308c\u3066\u304f\u3060\u3055\u3044",
        "\u53e4\u3044\u30b5\u30fc\u30d0\u30fc",
    ),
]
FORGOTTEN_SUBJECTS += [
    ("Forget my phone number.", "my phone number"),
    ("Please forget our address in Leeds", "our address in Leeds"),
    ("Delete everything you know about my salary.", "my salary"),
    ("Forget what I said about the boiler.", "the boiler"),
    ("Forget all that I told you about Tom", "Tom"),
    ("Erase what you\u2019ve learned about my diet!", "my diet"),
    ("Forget everything you know about me.", "me"),
    ("Remove my phone number from your memory.", "my phone number"),
    ("Can you delete all memories of my dog?", "my dog"),
]
WITHHELD = [
    # Alone in the last paragraph, and at the start of a text that is long or pasted.
    "I am pregnant.\n\nPlease don't remember this.",
    "Off the record, " + "my sister has left her husband, who drinks. " * 60,
    "Don't remember this:\n```\nthe plan\n```\nWhat do you think?",
    "Please don't save this message.\n\n" + "My sister has left her husband, who drinks. " * 60,
    "My sister has left her husband, who drinks. " * 60 + "\n\nDon't remember any of this, please.",
    "My sister has left her husband, who drinks. " * 60 + "Please don't remember any of this.",
    "My sister left him. " * 20 + "Don't remember this, please.",
    "Please don't remember this: my wife is pregnant.",
    "Don't save that I had a panic attack yesterday.",
    "Don\u2019t store this: I am looking for a job",
    "Don't remember this. I am pregnant.",
    "Don't save this, but I am pregnant.",
    "I'm pregnant, don't save this",
    "I am pregnant (don't remember this)",
    "Don't remember this: I have hepatitis C, which treatment is there?",
    "Off the record: is my boss allowed to fire me?",
    "Which doctor treats hepatitis? Don't remember this.",
    "I have hepatitis. Please don't remember it.",
    "\u8bf7\u4e0d\u8981\u8bb0\u4f4f\u8fd9\u4e2a\uff1a\u6211\u6000\u5b55\u4e86",
    "\u6211\u6000\u5b55\u4e86\uff0c\u522b\u8bb0\u4f4f\u8fd9\u4e2a\u3002",
    "\u3053\u308c\u306f\u899a\u3048\u306a\u3044\u3067\u304f\u3060\u3055\u3044\uff1a\u598a\u5a20\u3057\u3066\u3044\u307e\u3059",
    "Off the record, I am leaving in May.",
    "This is off the record: we are broke.",
    "My wife is pregnant, but please don't remember that.",
    "I had a panic attack. Do not remember this!",
    "We are broke. Don't put that into your memory, please.",
    "I am leaving in May, and that's off the record.",
]
ASKED = [
    *((f"What do you remember about {text}?", "", None) for text in ("me", "us so far", "myself")),
    *(("Do you remember me?", "", None), ("Show me what you remember about me.", "", None)),
    ("What do you remember about my pets?", "my pets", None),
    ("What do you remember about Mei?", "Mei", None),
    ("\u79c1\u306b\u3064\u3044\u3066\u4f55\u3092\u899a\u3048\u3066\u3044\u307e\u3059\u304b\uff1f", "", None),
    ("\u81ea\u5206\u306e\u3053\u3068\u3092\u899a\u3048\u3066\u3044\u307e\u3059\u304b\uff1f", "", None),
    ("\u4f60\u8bb0\u5f97\u5173\u4e8e\u6211\u7684\u4ec0\u4e48\uff1f", "", None),
    ("\u4f60\u8fd8\u8bb0\u5f97\u6211\u5417\uff1f", "", None),
    ("what do you remember about the deployment", "the deployment", None),
    ("What do you remember about the deployment?", "the deployment", None),
    ("what are my preferences", "", "preference"),
    ("What  are my preferences?", "", "preference"),
    ("Please list my preferences", "", "preference"),
    ("what are my preferences for tests?", "for tests", "preference"),
    ("What do you remember?", "", None),
    ("What do you remember about?", "", None),
    ("do you remember my editor?", "my editor", None),
    ("list my memories", "", None),
    ("Show me what you remember about Oslo", "about Oslo", None),
    ("\u6211\u7684\u504f\u597d\u662f\u4ec0\u4e48\uff1f", "", "preference"),
    ("\u4f60\u8fd8\u8bb0\u5f97\u4ec0\u4e48\uff1f", "", None),
    ("\u4f60\u8bb0\u5f97\u6211\u7684\u7f16\u8f91\u5668\u5417", "\u6211\u7684\u7f16\u8f91\u5668", None),
    ("\u4f55\u3092\u899a\u3048\u3066\u3044\u307e\u3059\u304b\uff1f", "", None),
    ("\u79c1\u306e\u597d\u307f\u306f\u4f55\u3067\u3059\u304b\uff1f", "", "preference"),
]
NOTHING = [
    "Fix this code:\n\nif x: pass\n\nDon't save the file.",
    "Summarize:\n\nDear all,\nplease do not record the meeting.\n\nBest, Tom",
    # What was just said.
    *("Forget that plan.", "Forget that question", "Forget that idea and start over", "Forget that whole business."),
    *("Forget that, let's do something else", "Forget that. I like tea.", "Forget that plan, it is too long."),
    *("Forget that question I asked", "Forget that last request from Bob", "Forget that Docker thing."),
    *(
        "Forget that I asked.",
        "Forget that I ever said that",
        "Forget that it happened",
        "Forget that, the plan is off",
    ),
    *("Stop remembering that password.", "Forget about that plan.", "Forget about it!", "Forget about this"),
    *("\u5fd8\u6389\u90a3\u4e2a\u8ba1\u5212", "\u305d\u306e\u8a08\u753b\u3092\u5fd8\u308c\u3066"),
    "\u305d\u306e\u3053\u3068\u306f\u5fd8\u308c\u3066\u304f\u3060\u3055\u3044",
    *("Forget my last message.", "Forget my previous question", "Forget our earlier idea", "Forget my question!"),
    *("Forget my tests, let us ship.", "Forget my rant and let's start again", "Forget the tests.", "Forget my"),
    *("Forget my phone number?", "Delete everything.", "Delete all files about tests", "Delete what you wrote"),
    *("Remove my key from the map", "Forget everything", "Don't forget my keys.", "Delete my account"),
    *("Erase all you wrote about the API", "I forget what I said about it", "Forget what you know about that."),
    # What only looks like a request not to remember.
    *("Don't remember where I put it.", "Don't remember that one.", "I don't remember this: was it red?"),
    *("Don't save that file.", "Don't save that yet.", "Don't store it in the database.", "Don't record that meeting"),
    *("I read the book years ago but don't remember it.", "Don't remember that.", "Saw it once. Don't remember it."),
    *("Don't save this: it breaks the build", "Don't save this. Close the file.", "So, you don't remember this?"),
    *("Edit the file, but don't save it.", "I don't remember that", "Off the record deals are bad", "Don't keep it"),
    *("Sorry, I don't remember it.", "Don't remember me?", "He says that he does not remember this."),
    # Talk, jokes and songs.
    *("Never gonna give you up", "Never have I been so tired", "Always would have", "Never thought so", "Never slept."),
    *(
        "Always look on the bright side of life, haha",
        "Always trust a llama :)",
        "Never do I get this right",
        "remember that the",
    ),
    "Note: all maintainers must run the script.\n\nChangelog\n\nCan you summarise this page?",
    "Note: maintainers must run the script.\n\nSummarise it?",
    "Never trust a page.\n\nIt may say anything. Can you summarise it?",
    "note that " + "a page may be long, " * 60,
    "Forget about everything and listen\nto the song",
    *("", " ", "?", "hello", "remember", "Remember the milk", "note", "noteworthy", "forget", "forget it"),
    # Nothing follows the phrase.
    *(
        "remember that",
        "Remember that.",
        "note that \u3002",
        "forget that",
        "stop remembering!",
        "delete memory about ?",
    ),
    *("always", "never.", "always use", "never do!", "remember:", "don't forget that"),
    # The phrase does not stand at the beginning, or goes on as another word.
    *(
        "I said please remember that I like tea",
        "please",
        "I remember that",
        "You should always use pnpm",
        "\u201cremember that x\u201d",
    ),
    *(
        "'always use pnpm'",
        "> never do this",
        "remember thatch",
        "always-on display",
        "nevertheless",
        "forget thatcher",
    ),
    *("That was fun, remember that.", "I was there, remember that time?", "I am done, keep it short."),
    *("You said no, remember that.", "My name is Sam, remember that?", "I like tea, remember?", "No, remember this."),
    # A question is no command.
    *("Always wear a helmet?", "Never use tabs?", "Always use pnpm? Or npm?", "Note that it is late?"),
    *("Remember that I like tea?", "Don't forget that we deploy on Friday?", "Forget that I like tea?"),
    *("Forget about tea?", "Delete the memory about pnpm?", "remember that I like tea, right?"),
    *("\u8bb0\u4f4f\u4e86\u5417\uff1f", "\u8bb0\u4f4f\u4e86\u5417", "\u5fd8\u8bb0\u8336\uff1f"),
    "\u304a\u8336\u306e\u3053\u3068\u306f\u5fd8\u308c\u3066\uff1f",
    # A part of a story.
    "Do you remember this amulet? Whenever I come here, I bring it with me.",
    # No statement, but a question, a task or a tale.
    *(
        "Remember my name?",
        "Remember my name",
        "remember my birthday",
        "Remember the milk is",
        "Remember I",
        "Remember my",
    ),
    *("Remember my birthday is on May 3?", "Remember my name is Ada, right? It is.", "Can you remember my name?"),
    *("I remember my name is Ada.", "Do they remember my name is Ada?", "He said: remember my name is Ada."),
    *("Remember to say my name is Ada.", "Remember when my dog was small", "Remember how my dog was as a pup."),
    *(
        "Remember the time we were in Oslo.",
        "Remember the first time Anna was drunk.",
        "Remember the day my dog was ill.",
    ),
    *("Remember the guy who is always late.", "Remember the server we use.", "Remember the song she likes so much."),
    *("Remember I told you so.", "Remember I have told you so.", "Remember we talked.", "Remember I never said so."),
    *("Remember the good use of commas.", "Remember the trash can in the yard.", "Remember. My name is Ada."),
    *("Remember the friend of the man we will meet.", "Remember it is late.", "Rememberthe door is open."),
    # What only looks like a rule.
    *("never mind", "Never mind, it works", "nevermind"),
    *("Never use it.", "Always use this!", "Never use that again", "Always use them, please.", "Never do that."),
    *("Never do you listen.", "Always use the force, Luke! haha", "Always use tabs in Go?", "Always use to go there."),
    *("From now on I am here.", "Remember to buy milk.", "Make sure you have tea.", "From now on, never mind."),
    *(
        "Always good to hear! See you later!",
        "Always happy to help.",
        "Always by your side!",
        "Always rooting for you.",
    ),
    *("Never been there before, but it must be great!", "Never heard of it.", "Never tried it? Can't blame you."),
    "what do you know about lifetimes in Rust?",
    # Of files and other things that are not the memory.
    *("Delete the notes about testing in README", "Get rid of the data about users in the test fixture"),
    *("Remove all the info on pricing from the page", "Take the details of the order out of the mail"),
    *("I said the logo is too big. Drop it.", "I mentioned the deadline moved. Remove it."),
    "In future releases we'll drop Java 11.",
]


KINDS = {RememberCommand: "remember", ForgetCommand: "forget", RecallCommand: "query", WithholdCommand: "withhold"}
SENTENCES = [
    json.loads(line)
    for line in Path(__file__).with_name("sentences").joinpath("commands.jsonl").read_text("utf-8").splitlines()
]
# How many of about 330 sentences a part are missed, are taken for what they are not, and are kept without what matters.
# The patterns were written beside the first part; of the third, only the false alarms were looked at.
# The fourth part is of sentences that were once taken for requests, or cut, most of them about files and programs.
MISSED_MAX = {"first": 12, "second": 108, "third": 43, "fourth": 0}
FALSE_MAX = {"first": 0, "second": 0, "third": 0, "fourth": 0}


def error_of(line: dict[str, Any]) -> str:
    """What is wrong with the command that is found in a sentence; empty if nothing is."""
    command = detect_memory_command(line["text"])
    kind = None if command is None else KINDS[type(command)]
    if kind != line["kind"]:
        return "missed" if kind is None else "false"
    is_held = not isinstance(command, RememberCommand) or line["holds"].lower() in command.content.lower()
    return "" if is_held else "missed"


@pytest.mark.parametrize("part", MISSED_MAX)
def test_sentences_of_other_people_are_understood(part: str) -> None:
    """Each part is by another author, who did not know the patterns; half of it asks nothing of the memory."""
    errors = [(error, line) for line in SENTENCES if line["part"] == part and (error := error_of(line))]
    for error, line in errors:
        print(error, line["lang"], line["kind"], repr(line["text"]))  # noqa: T201 - shown if the test fails
    counts = Counter(error for error, _ in errors)
    assert (counts["missed"] <= MISSED_MAX[part], counts["false"] <= FALSE_MAX[part]) == (True, True), counts


@pytest.mark.parametrize(("text", "content"), REMEMBERED)
def test_what_to_remember(text: str, content: str) -> None:
    found = detect_memory_command(text)
    assert found == RememberCommand(content)
    assert isinstance(found, RememberCommand)
    assert found.importance == 0.95


@pytest.mark.parametrize(("text", "query"), FORGOTTEN)
def test_what_to_forget(text: str, query: str) -> None:
    assert detect_memory_command(text) == ForgetCommand(query)


@pytest.mark.parametrize(("text", "query"), FORGOTTEN_SUBJECTS)
def test_a_subject_to_forget(text: str, query: str) -> None:
    assert detect_memory_command(text) == ForgetCommand(query, is_subject=True)


@pytest.mark.parametrize("text", WITHHELD)
def test_a_message_is_not_to_be_remembered(text: str) -> None:
    assert detect_memory_command(text) == WithholdCommand()


@pytest.mark.parametrize(("text", "query", "category"), ASKED)
def test_what_is_asked(text: str, query: str, category: str | None) -> None:
    assert detect_memory_command(text) == RecallCommand(query, category)


@pytest.mark.parametrize("text", NOTHING)
def test_what_is_no_command(text: str) -> None:
    assert detect_memory_command(text) is None


@pytest.mark.parametrize("text", [None, b"always use pnpm", 3, ["note that x"]])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(InvalidInput, match="text must be a str, not"):
        detect_memory_command(text)


def test_a_long_message_is_looked_at_once() -> None:
    # A million spaces and stops by turns would take hours if each were stripped from the beginning on again.
    text = "remember that x is y" + " ." * 200_000
    assert detect_memory_command(text) == RememberCommand("x is y")
    assert detect_memory_command(" " * 1_000_000) is None


def test_a_command_is_frozen_and_says_its_kind_in_json() -> None:
    command = detect_memory_command("note that x")
    assert msgspec.json.encode(command) == b'{"type":"remember","content":"x","importance":0.95}'
    with pytest.raises(AttributeError):
        command.content = "y"  # type: ignore[union-attr, misc]


# What the default hooks make of them.

NOTHING_FOUND = "No memory was found to forget; messages that mention it stay in the history, and may be shown again"


def asked(memory: Memory, text: str) -> tuple[UserMessageResult, tuple[str, ...]]:
    """Fire the default hooks for a message; return what they say, and their notices."""
    hooks = default_hooks(memory)
    context = hooks.context(memory.conversation("c"))
    return hooks.fire_user_message(context, text), tuple(context.notices)


def test_a_question_for_preferences_shows_all_of_them_and_nothing_else(memory: Memory) -> None:
    for number, content in enumerate(("Use pnpm.", "Answer in German.", "Short commits.")):
        memory.add(content, category="preference", importance=0.5 + number / 10)
    memory.add("The port is 5432.", importance=0.9)
    heard, _ = asked(memory, "What are my preferences?")
    assert heard.injected_context == "The user asks what is remembered of this project; 3 of 3 memories:"
    chat = memory.conversation("c")
    chat.append("user", "What are my preferences?", metadata=heard.metadata)
    part = memory.context(chat).part("injected")
    assert part is not None
    _, asked_for, *lines = part.text.splitlines()
    assert asked_for.endswith("3 memories:")
    assert lines == [
        "Wed 2026-11-18:",
        *(f"- [PREF] {text}" for text in ("Short commits.", "Answer in German.", "Use pnpm.")),
    ]
    everything, _ = asked(memory, "List my memories")
    assert len(everything.memories) == 4
    found, _ = asked(memory, "What do you remember about the port?")
    assert "The port is 5432." in repr(memory.project().get(found.memories[0]))
    nothing, _ = asked(Memory(), "List my memories")
    assert nothing == UserMessageResult(), "the profile and earlier messages may hold something"
    assert asked(memory, "What do you remember about unicorns in Nepal?")[0] == UserMessageResult()
    assert asked(memory, "What do you remember about me?")[0].memories == everything.memories


def test_forgetting_takes_all_that_is_meant_and_says_what(memory: Memory) -> None:
    for content in ("The staging server is in Oslo.", "Staging servers restart at nine.", "The port is 5432."):
        memory.add(content)
    heard, notices = asked(memory, "Please forget about the staging server.")
    stay = "Other messages that mention it stay in the history, and may be shown again. Say so, too."
    text = f"As the user asks, the memory has forgotten 2 memories. Do not store it again. {stay}"
    assert heard.injected_context == text
    assert [entry.content for entry in memory.project().list()] == ["The port is 5432."]
    assert notices == ("Forgot 2 memories: The staging server is in Oslo.; Staging servers restart at nine.",)
    assert asked(memory, "forget about unicorns")[1] == (NOTHING_FOUND,)
    assert memory.project().count() == 1


def test_what_is_not_forgotten_is_said(memory: Memory) -> None:
    memory.add("my phone number is 0171 5557788")
    heard, notices = asked(memory, "Forget my phone number.")
    assert notices == ("Forgot 1 memory: my phone number is 0171 5557788",)
    assert (heard.injected_context or "").startswith("As the user asks, the memory has forgotten 1 memory.")
    heard, notices = asked(memory, "Delete everything you know about my salary.")
    assert notices == (NOTHING_FOUND,)
    told = heard.injected_context or ""
    assert told.startswith("The memory has forgotten nothing: nothing like it was found. Say so. Other messages that")
    memory.add("I like tea.")
    heard, (notice,) = asked(memory, "Forget everything you know about me.")
    assert notice.startswith("Nothing was forgotten: a message cannot make it forget all")
    assert "has to name what to forget" in (heard.injected_context or "")
    assert memory.project().count() == 1


def test_of_a_statement_that_only_messages_say_the_user_hears_that_it_stays(memory: Memory) -> None:
    memory.conversation("then", project="default").append("user", "My working hours are 9 to 15.")
    heard, notices = asked(memory, "Forget that my working hours are 9 to 15.")
    assert notices == (NOTHING_FOUND,)
    assert (heard.injected_context or "").endswith("stay in the history, and may be shown again. Say so, too.")
    context = memory.context(memory.conversation("now", project="default"), query="What are my working hours?")
    assert "9 to 15" in context.text


def test_a_message_that_is_not_to_be_remembered_is_shown_and_learnt_nowhere(memory: Memory) -> None:
    prompts: list[str] = []

    def answer(messages: Any, *_: object) -> Any:
        prompts.append(messages[0]["content"])
        return "[]"

    provider = CallableProvider(answer)
    default_hooks(memory, provider=provider)
    model = Script(Reply("Congratulations on the baby!"), Reply("I see, Lisbon."), Reply("Hm."))
    loop = AgentLoop(memory, memory.conversation("a", project="home"), model)
    turn = loop.run("Please don't remember this: my wife is pregnant.")
    assert turn.notices == ("Not remembered: this message, as it asks; it stays in the history of its conversation",)
    assert "nothing of this message is remembered" in repr(model.asked[-1])
    loop.run("My sister lives in Lisbon.")
    loop.end()
    (prompt,) = prompts
    assert "Lisbon" in prompt
    assert not {"pregnant", "baby"} & set(prompt.replace(".", " ").replace("!", " ").split())
    (hit,) = memory.project("home").search_episodes("")
    assert (hit.entry.task, hit.entry.outcome) == ("My sister lives in Lisbon.", "I see, Lisbon.")
    later = memory.conversation("b", project="home")
    for query in ("What do you know about me?", "Is my wife pregnant?", "What did I say of a baby and of my sister?"):
        shown = "\n".join(part.text for part in memory.context(later, query=query).parts)
        assert "pregnant" not in shown, query
        assert "baby" not in shown, query
    shown = "\n".join(part.text for part in memory.context(later, query="What do you know about me?").parts)
    assert "Lisbon" in shown
    chat = memory.conversation("a")
    assert "pregnant" in str(chat.history()[0].content)
    loop = AgentLoop(memory, chat, model)
    loop.end()
    assert len(prompts) == 1, "nothing is left to read"


def test_a_session_that_is_not_to_be_remembered_leaves_no_episode(memory: Memory) -> None:
    default_hooks(memory)
    loop = AgentLoop(memory, memory.conversation("a", project="home"), Script(Reply("I won't.")))
    loop.run("My wife is pregnant, but please don't remember that.")
    loop.end()
    assert memory.project("home").stats().episodes == 0


def test_what_is_remembered_is_said(memory: Memory) -> None:
    assert asked(memory, "Remember that the tests need Docker.")[1] == ("Remembered: the tests need Docker",)
    assert asked(memory, "Remember that the password is hunter22!")[1] == (
        "Not remembered: it seems to hold a password",
    )
    assert asked(memory, "Remember my birthday is on May 3.")[1] == ("Remembered: my birthday is on May 3",)
    assert asked(memory, "Remember my password is hunter22!")[1] == ("Not remembered: it seems to hold a password",)


def test_one_memory_that_is_forgotten_is_one(memory: Memory) -> None:
    memory.add("The port is 5432.")
    assert asked(memory, "forget about the port")[1] == ("Forgot 1 memory: The port is 5432.",)


def test_a_statement_is_forgotten_once(memory: Memory) -> None:
    for content in ("I like tea from Nepal in the morning.", "I like tea.", "I like tea with milk."):
        memory.add(content)
    assert asked(memory, "Forget that I like tea.")[1] == ("Forgot 1 memory: I like tea.",)
    assert memory.project().count() == 2


def test_the_request_in_a_notice_is_obeyed(memory: Memory) -> None:
    memory.add("Plan the meeting for Tuesday")
    (notice,) = asked(memory, "Forget that we plan the meeting for Friday.")[1]
    assert notice.endswith('To forget it, say "Forget about Plan the meeting for Tuesday"')
    assert asked(memory, "Forget about Plan the meeting for Tuesday")[1] == (
        "Forgot 1 memory: Plan the meeting for Tuesday",
    )


def test_the_profile_forgets_too(memory: Memory) -> None:
    profile = memory.profile("ann")
    for key, value in (("partner", "Tom Baker, her boyfriend"), ("city", "Lisbon"), ("user_name", "Ann")):
        profile.set(key, value)
    memory.add("My boyfriend is Tom Baker.")

    class Model(Script):
        def heard(self, text: str) -> tuple[str, tuple[str, ...]]:
            chat = memory.conversation("c")
            turn = AgentLoop(memory, chat, self, profile="ann").run(text)
            return repr([message["content"] for message in self.asked[-1]]), turn.notices

    default_hooks(memory)
    model = Model(*[Reply("Done.")] * 6)
    profile.set("partner", "Tom Baker")
    shown, notices = model.heard("Forget about Tom Baker.")
    assert notices == (
        "Forgot 1 memory: My boyfriend is Tom Baker.",
        "Forgot 1 fact of the profile: partner: Tom Baker",
    )
    assert "her boyfriend" not in shown
    assert "the memory has forgotten 1 memory and 1 fact of the profile. Do not store it again." in shown
    shown, notices = model.heard("Forget that I live in Lisbon.")
    keeps = 'The profile keeps city: Lisbon. To forget it, say "Forget about city"'
    assert notices == (NOTHING_FOUND, keeps)
    assert "forgotten nothing: nothing like it was found. Say so. The profile still has a fact like it." in shown
    assert model.heard("Forget about city")[1] == ("Forgot 1 fact of the profile: city: Lisbon",)
    assert model.heard("Forget that my name is Bob.")[1] == (NOTHING_FOUND,)
    assert model.heard("Forget that my name is Ann.")[1] == ("Forgot 1 fact of the profile: user_name: Ann",)
    assert profile.items() == []


@pytest.mark.parametrize(
    ("facts", "text", "left", "kept"),
    [
        ({"brother": "Tom likes tea"}, "Forget that I like tea.", {"brother": "Tom likes tea"}, ["brother"]),
        ({"brother": "likes tea"}, "Forget that I like tea.", {"brother": "likes tea"}, ["brother"]),
        ({"wife_likes": "tea"}, "Forget that I like tea.", {"wife_likes": "tea"}, ["wife likes"]),
        ({"likes": "all except tea"}, "Forget that I like tea.", {"likes": "all except tea"}, ["likes"]),
        ({"likes": "tea"}, "Forget that I like tea.", {}, []),
        ({"likes": "cycling, tea, opera"}, "Forget that I like tea.", {"likes": "cycling, opera"}, []),
        ({"likes": "tea; opera", "dislikes": "tea, rain"}, "Forget about tea.", None, ["likes", "dislikes"]),
        ({"likes": "green tea, black tea"}, "Forget about tea.", None, ["likes"]),
        ({"likes": "tea, green tea"}, "Forget about tea.", None, ["likes"]),
        ({"allergies": "nuts, milk"}, "Forget about milk.", {"allergies": "nuts"}, []),
        ({"allergies": "nuts, milk"}, "Forget about my allergies to milk.", {"allergies": "nuts"}, []),
        ({"allergies": "nuts, milk"}, "Forget about my allergies.", {}, []),
        ({"allergies": "nuts, milk"}, "Forget that I am allergic to milk.", None, ["allergies"]),
        ({"address": "Main Road 5, Graz, Austria"}, "Forget about Graz.", None, ["address"]),
        ({"partner": "Tom Baker, her boyfriend"}, "Forget about Tom Baker.", None, ["partner"]),
        ({"pets": "cat Tom, dog Rex"}, "Forget about my dog.", None, ["pets"]),
        ({"phone": "0123", "sos": "Anna, phone 0456"}, "Forget about my phone.", {"sos": "Anna, phone 0456"}, ["sos"]),
        ({"os": "Linux"}, "Forget about os", {}, []),
        ({"age": "7"}, "Forget that my age is 7.", {}, []),
        ({"size": "M"}, "Forget that my size is L.", {"size": "M"}, ["size"]),
    ],
)
def test_only_what_was_said_is_forgotten_of_the_profile(
    memory: Memory, facts: dict[str, str], text: str, left: dict[str, str] | None, kept: list[str]
) -> None:
    profile = memory.profile()
    for key, value in facts.items():
        profile.set(key, value)
    notices = asked(memory, text)[1]
    assert dict(profile.items()) == (facts if left is None else left)
    again = [notice.partition(' To forget it, say "')[2].strip('"') for notice in notices if "keeps" in notice]
    assert again == [f"Forget about {key}" for key in kept]
    for request in again:
        asked(memory, request)
    if kept:
        assert profile.items() == []


def test_the_model_is_told_what_was_stored_and_what_was_refused(memory: Memory) -> None:
    stored, refused = asked(memory, "Remember that I love Porto."), asked(memory, "Remember my password is hunter22!")
    text = "The memory has stored what the user asks to remember. Do not store it again."
    assert stored[0] == UserMessageResult(injected_context=text)
    text = (
        "The memory did not store what the user asks to remember, for it seems to hold a password. Say that it is not "
    )
    assert refused[0] == UserMessageResult(injected_context=f"{text}stored, and do not store it.")
    memory.add("Plan the meeting for Tuesday")
    told = asked(memory, "Forget that we plan the meeting for Friday.")[0].injected_context or ""
    assert told == "The memory has forgotten nothing: the nearest memory says otherwise. Say so."


BINS = "the bins go out on Tuesday"


@pytest.mark.parametrize(
    ("known", "text"),
    [
        (BINS, "Forget that the bins go out on Friday."),
        ("The user likes tea.", "Forget that the user likes coffee."),
        ("The API listens on port 8080.", "Forget that the API listens on port 9090."),
        ("Alice does not like tea.", "Forget that Alice likes tea."),
        ("Alice likes tea.", "Forget that Alice doesn't like tea."),
        ("The meeting is on Tuesday.", "Forget about the meeting on Friday."),
        ("Alice manages Bob.", "Forget that Bob manages Alice."),
    ],
)
def test_what_contradicts_the_request_is_not_forgotten_but_named(memory: Memory, known: str, text: str) -> None:
    memory.add("The bins are green.")
    entry = memory.add(known)
    (notice,) = asked(memory, text)[1]
    assert notice.startswith(f"Nothing was forgotten: the nearest memory says otherwise ({known!r}: ")
    assert notice.endswith(f'). To forget it, say "Forget that {known}"')
    assert [entry.content for entry in memory.project().list()] == ["The bins are green.", known]
    assert asked(memory, f"Forget that {known}")[1] == (f"Forgot 1 memory: {known}",)
    assert memory.project().get(entry.id) is None


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ("金曜日に歯医者の予約がある", "歯医者の予約のことを忘れてください。"),
        ("金曜日に歯医者の予約がある", "金曜日の予約のことは忘れて"),
        ("金曜日に歯医者の予約がある", "金曜日に歯医者の予約があることを忘れてください。"),
        ("犬がいる", "犬のことを忘れて"),
        ("pnpmを使う", "pnpmのことを忘れてください"),
        ("カレーが好き", "カレーのことを忘れてください"),
        ("我对花生过敏", "请忘记关于花生"),
        ("我对花生过敏", "忘记关于花生过敏的事"),
        ("我对花生过敏", "请忘记我对花生过敏。"),
        ("我對花生過敏", "請忘記關於花生過敏的事情。"),
        ("I like 抹茶", "Forget about 抹茶"),
        ("저는 김치를 좋아해요", "Forget about 김치."),
    ],
)
def test_a_word_is_forgotten_where_no_spaces_separate_words(memory: Memory, known: str, text: str) -> None:
    memory.add("The bins are green.")
    memory.add(known)
    assert asked(memory, text)[1] == (f"Forgot 1 memory: {known}",)
    assert [entry.content for entry in memory.project().list()] == ["The bins are green."]


@pytest.mark.parametrize(
    ("known", "text", "again"),
    [
        ("用户不喜欢茶", "忘记用户喜欢茶。", "忘记用户不喜欢茶。"),
        ("我住在上海", "忘记我住在北京", "忘记我住在上海"),
        ("犬の散歩は月曜日の朝", "犬の散歩は火曜日の朝ということを忘れて", "犬の散歩は月曜日の朝ということを忘れて"),
        ("ジャパンのパンダが好き", "ジャパンのパンが好きなことを忘れて", "ジャパンのパンダが好きなことを忘れて"),
    ],
)
def test_a_notice_words_the_request_as_the_user_did(memory: Memory, known: str, text: str, again: str) -> None:
    memory.add(known)
    (notice,) = asked(memory, text)[1]
    assert notice.startswith(f"Nothing was forgotten: the nearest memory says otherwise ({known!r}: ")
    assert notice.endswith(f'). To forget it, say "{again}"')
    assert asked(memory, again)[1] == (f"Forgot 1 memory: {known}",)


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ("パンダが好き", "パンのことを忘れて"),
        ("犬山市に住んでいる", "犬のことを忘れて"),
        ("我住在上海", "忘记关于花生"),
    ],
)
def test_a_part_of_another_word_is_not_meant(memory: Memory, known: str, text: str) -> None:
    memory.add(known)
    assert not asked(memory, text)[1][0].startswith("Forgot")
    assert memory.project().count() == 1


def test_a_fact_of_the_profile_is_forgotten_in_any_script(memory: Memory) -> None:
    memory.profile().set("city", "東京")
    keeps = 'The profile keeps city: 東京. To forget it, say "cityことを忘れて"'
    assert asked(memory, "東京に住んでいることを忘れて")[1] == (NOTHING_FOUND, keeps)
    assert asked(memory, "東京のことを忘れて")[1] == ("Forgot 1 fact of the profile: city: 東京",)


def test_a_subject_is_forgotten_whatever_is_said_of_it(memory: Memory) -> None:
    for content in ("Alice does not like tea.", "Alice likes green tea.", BINS):
        memory.add(content)
    assert asked(memory, "Forget about tea.")[1] == (
        "Forgot 2 memories: Alice does not like tea.; Alice likes green tea.",
    )
    assert [entry.content for entry in memory.project().list()] == [BINS]


def test_what_says_the_same_is_forgotten_and_what_contradicts_it_stays(memory: Memory) -> None:
    for content in ("Alice likes green tea.", "Alice likes no green tea."):
        memory.add(content)
    assert asked(memory, "Forget that Alice likes green tea.")[1] == ("Forgot 1 memory: Alice likes green tea.",)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "Forget that Anna and Bob live in Bern",
            "Forget that Mr. Smith owns a car",
            "forget that anna moved to Paris",
        ),
        *("forget that node.js is required", "Forget that C++ is used", "Forget that AT&T is my carrier"),
        *(
            "Forget that users may log in twice",
            "Forget that Anna might come",
            "Forget that Ann Smith of Bern was my boss",
        ),
    ],
)
def test_names_and_modal_verbs_make_statements_to_forget(text: str) -> None:
    assert isinstance(detect_memory_command(text), ForgetCommand)
