"""Which questions are about the user or about earlier conversations as a whole."""

import unicodedata

import pytest

from refold.index.questions import PAST, USER, asked_about

ABOUT_THE_USER = (
    "What do you know about me?",
    "Who am I?",
    "What did I tell you?",
    "Do you remember me?",
    "What did I tell you last time?",
    "Tell me something about myself.",
    "What do you remember about me?",
    "\u00bfQu\u00e9 sabes de m\u00ed?",
    "\u79c1\u306e\u3053\u3068\u3092\u4f55\u3092\u899a\u3048\u3066\u3044\u307e\u3059\u304b\uff1f",
    "\u79c1\u306e\u3053\u3068\u3092\u899a\u3048\u3066\u3044\u307e\u3059\u304b\uff1f",
    "Hi! Do you know who I am?",
    "What have you learned about me so far?",
    "Was wei\u00dft du \u00fcber mich?",
    "Wer bin ich?",
    "Was habe ich dir erz\u00e4hlt?",
    "Was habe ich dir letztes Mal gesagt?",
    "Erinnerst du dich an mich?",
    "Que sais-tu de moi ?",
    "Qui suis-je ?",
    "Qu'est-ce que je t'ai dit ?",
    "Tu te souviens de moi ?",
    "\u00bfQui\u00e9n soy?",
    "\u00bfQu\u00e9 te he dicho?",
    "\u00bfTe acuerdas de m\u00ed?",
    "Cosa sai di me?",
    "Chi sono?",
    "Cosa ti ho detto?",
    "Ti ricordi di me?",
    "O que voc\u00ea sabe sobre mim?",
    "Quem sou eu?",
    "O que eu te disse?",
    "Voc\u00ea se lembra de mim?",
    "Wat weet je over mij?",
    "Wie ben ik?",
    "Wat heb ik je verteld?",
    "\u4f60\u77e5\u9053\u6211\u4ec0\u4e48\uff1f",
    "\u6211\u662f\u8c01\uff1f",
    "\u4f60\u8fd8\u8bb0\u5f97\u6211\u5417\uff1f",
    "What do you have on me?",
    "Erz\u00e4hl mir, was du \u00fcber mich wei\u00dft.",
    "Tell me everything you know about me",
    "What did I say yesterday?",
)
ABOUT_THE_PAST = (
    "What did we talk about last time?",
    "Summarize our previous conversations.",
    "What did we talk about yesterday?",
    "What did we discuss?",
    "Can you summarize our last conversation?",
    "Please recap our past chats",
    "What was our last conversation about?",
    "Where did we leave off?",
    "Wor\u00fcber haben wir gesprochen?",
    "Wor\u00fcber haben wir letztes Mal gesprochen?",
    "Fasse unsere letzten Gespr\u00e4che zusammen.",
    "De quoi avons-nous parl\u00e9 la derni\u00e8re fois ?",
    "R\u00e9sume nos conversations pr\u00e9c\u00e9dentes.",
    "\u00bfDe qu\u00e9 hablamos la \u00faltima vez?",
    "Resume nuestras conversaciones anteriores.",
    "Di cosa abbiamo parlato l'ultima volta?",
    "Riassumi le nostre conversazioni precedenti.",
    "Sobre o que falamos da \u00faltima vez?",
    "Resuma nossas conversas anteriores.",
    "Waar hebben we het de vorige keer over gehad?",
    "Vat onze vorige gesprekken samen.",
    "\u6211\u4eec\u4e0a\u6b21\u804a\u4e86\u4ec0\u4e48\uff1f",
    "\u603b\u7ed3\u4e00\u4e0b\u6211\u4eec\u4e4b\u524d\u7684\u5bf9\u8bdd",
    "\u524d\u56de\u4f55\u3092\u8a71\u3057\u307e\u3057\u305f\u304b\uff1f",
    "\u3053\u308c\u307e\u3067\u306e\u4f1a\u8a71\u3092\u8981\u7d04\u3057\u3066\u304f\u3060\u3055\u3044",
    "Have we talked before?",
    "What happened last time?",
)
ABOUT_SOMETHING_ELSE = (
    "Hi again!",
    "How are you?",
    "Thanks!",
    "What do you think?",
    "Tell me more",
    "Where were we?",
    "What did you mean by that?",
    "who are you?",
    "Don't you remember?",
    "Tell me a joke",
    "What did I tell you about the mortgage?",
    "Summarize this conversation",
    "What should I tell him?",
    "do you know?",
    "What do you know about Lisbon?",
    "Can you help me?",
    "How do you know that?",
    "Who am I meeting tomorrow?",
    "What did you say?",
    "Summarize our meeting notes",
    "What did we do?",
    "forget what I said before",
    "Erz\u00e4hl mir was",
    "kennst du das?",
    "me gusta",
)


@pytest.mark.parametrize(
    ("text", "about"), [(text, USER) for text in ABOUT_THE_USER] + [(text, PAST) for text in ABOUT_THE_PAST]
)
def test_a_question_about_the_user_or_the_past(text: str, about: str) -> None:
    for spelled in (text, text.upper(), unicodedata.normalize("NFD", text), f"  {text}\n"):
        assert asked_about(spelled) == about


@pytest.mark.parametrize("text", [*ABOUT_SOMETHING_ELSE, "", "?", f"Who am I? {'x' * 200}"])
def test_a_text_about_something_else(text: str) -> None:
    assert asked_about(text) == ""
