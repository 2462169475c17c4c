"""Names that are spelled as words of everyday talk or of grammar: told by how they are written."""

import pytest

from refold.index.names import names_in


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("What do we know about Mia?", ["mia"]),
        ("And Ben?", ["ben"]),
        ("Is Dan or Don coming with Ines and Ella?", ["dan", "don", "ines", "ella"]),
        ("What do you think about Hope, and of that guy Guy?", ["hope", "guy"]),
        ("Wann hat Ben Geburtstag?", ["ben"]),
        ("Qu'est-ce que Mia a dit ?", ["mia"]),
        ("What does June eat? And April?", ["june", "april"]),
        ("Which AI does the EU allow?", ["ai", "eu"]),
        ("When is the check-in, and who did the follow-up?", ["check"]),
        ("Was the take-off before the go-live?", ["take"]),
    ],
)
def test_a_word_that_is_written_as_a_name_is_one(text: str, names: list[str]) -> None:
    assert names_in(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "what do we know about mia?",
        "Ben je er? Hope you are fine.",
        "I think I am fine. So Am I.",
        "Good Morning! Thank You So Much!",
        "I Hope You Are Well",
        "I HOPE THE AI IS WELL",
        "What happened in June, on 3 August and in early April?",
        "Was habe ich Ihnen und Dir beim letzten Mal gesagt? Hast du bitte einen Moment? Wo ist das Problem?",
        "Que sait-on de La Haye, et que peut-on faire avec Vous ?",
        "Is it a one-off, or in-depth work of my brother-in-law?",
        "",
    ],
)
def test_no_other_word_is(text: str) -> None:
    assert names_in(text) == []
