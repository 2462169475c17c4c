"""Statements that look alike and contradict each other are never merged into one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import Memory
from refold.text import contains, contradiction, entails
from tests.support.memories import assert_sound

CONTRADICTING = [
    ("The API listens on port 8080.", "The API listens on port 9090."),
    ("The release is on 2026-11-18.", "The release is on 2026-11-19."),
    ("Uploads are limited to 1,000 rows", "Uploads are limited to 10,000 rows"),
    ("Use Python 3.11 here", "Use Python 3.12 here"),
    ("Use pnpm, not npm", "Use npm, not pnpm"),
    ("Use tabs in Go files", "Do not use tabs in Go files"),
    ("Force pushes are fine", "Force pushes are never fine"),
    ("The user lives in Oslo", "The user lives in Bergen"),
    ("Alice likes green tea", "Bob likes green tea"),
    ("Deborah finished an engineering project last week", "Jolene finished an engineering project last week"),
    ("Deborah bought a new bench", "Jolene bought a new bench"),
    ("Mike's editor is vim", "Mike's editor is emacs"),
    ("The user prefers dark mode here", "The user prefers light mode here"),
    ("config.yaml holds the ports", "config.json holds the ports"),
    ("The worker calls get_user first", "The worker calls get_account first"),
    ("Requests take < 5 ms", "Requests take > 5 ms"),
    ("The rent is 900 €", "The rent is 900 $"),
    ("The offset is 5 minutes", "The offset is -5 minutes"),
    ("The user likes 🍕", "The user likes 🍣"),
    # Who does what to whom, and what is denied of whom.
    ("Alice, not Bob, is on call", "Not Alice, Bob is on call"),
    ("Please use pnpm, not npm", "We use npm, never pnpm"),
    ("Bob reports to Alice.", "Alice reports to Bob."),
    ("Bob reports to Alice", "Alice now reports to Bob"),
    ("Bob reports directly to Alice", "Alice now reports to Bob"),
    ("Tea is better than coffee", "Coffee is better than tea"),
    ("The cat of the user chases the dog", "The dog of the user chases the cat"),
    ("The bus goes from Oslo to Bergen", "The bus goes from Bergen to Oslo"),
    ("Alice and Bob report to Carol", "Carol and Bob report to Alice"),
    ("爱丽丝喜欢鲍勃", "鲍勃喜欢爱丽丝"),
    ("アリスはボブが好きです", "ボブはアリスが好きです"),
]
# A statement, and its negation.
DENIED = {
    "English": [
        ("Use tabs", "Don’t use tabs"),
        ("The parser is stable", "The parser is unstable"),
        ("Alice eats meat and fish", "Alice eats neither meat nor fish"),
        ("Alice does not eat meat and likes fish", "Alice does not eat meat and does not like fish"),
    ],
    "German": [("Anna mag grünen Tee", "Anna mag keinen grünen Tee"), ("Anna raucht", "Anna raucht nicht")],
    "French": [
        ("Anna aime le thé vert", "Anna n'aime pas le thé vert"),
        ("Anna mange de la viande", "Anna ne mange jamais de viande"),
    ],
    "Spanish": [("Ana come carne", "Ana nunca come carne"), ("El equipo usa npm", "El equipo no usa npm")],
    "Portuguese": [
        ("Ana gosta de chá verde.", "Ana não gosta de chá verde."),
        ("Ana gosta de chá verde.", "Ana não gosta de chá verde."),
        ("Ana come carne", "Ana nunca come carne"),
    ],
    "Italian": [
        ("Anna ama il tè verde.", "Anna non ama il tè verde."),
        ("Il progetto usa npm", "Nessun progetto usa npm"),
        ("Anna mangia carne", "Anna non mangia mai carne"),
    ],
    "Dutch": [
        ("Anna houdt van groene thee.", "Anna houdt niet van groene thee."),
        ("Anna heeft een hond", "Anna heeft geen hond"),
        ("Anna rookt", "Anna rookt nooit"),
    ],
    "Swedish": [("Anna gillar grönt te.", "Anna gillar inte grönt te."), ("Anna röker", "Anna röker aldrig")],
    "Danish": [("Anna drikker te", "Anna drikker ikke te")],
    "Polish": [("Anna lubi herbatę", "Anna nie lubi herbaty"), ("Anna pali", "Anna nigdy nie pali")],
    "Czech": [("Anna pije kávu", "Anna nepije kávu"), ("Anna je doma", "Anna není doma")],
    "Croatian": [("Ana voli čaj", "Ana ne voli čaj")],
    "Hungarian": [("Anna szereti a teát", "Anna nem szereti a teát")],
    "Turkish": [("Ayşe evli", "Ayşe evli değil"), ("Ayşe'nin arabası var", "Ayşe'nin arabası yok")],
    "Greek": [("Η Άννα πίνει τσάι", "Η Άννα δεν πίνει τσάι")],
    "Russian": [("Ivan любит чай.", "Ivan не любит чай."), ("У Ивана есть собака", "У Ивана нет собаки")],
    "Ukrainian": [("Іван любить чай", "Іван не любить чай")],
    "Arabic": [
        ("أليس تحب الشاي الأخضر كثيرا", "أليس لا تحب الشاي الأخضر كثيرا"),
        ("أليس متزوجة", "أليس ليست متزوجة"),
        ("أليس أكلت اللحم", "أليس لم تأكل اللحم"),
    ],
    "Persian": [("آلیس چای می‌نوشد", "آلیس چای نمی‌نوشد")],
    "Hebrew": [("אליס אוהבת תה", "אליס לא אוהבת תה")],
    "Hindi": [("पीटर चाय पीता है", "पीटर चाय नहीं पीता है"), ("npm का उपयोग करो", "npm का उपयोग मत करो")],
    "Bengali": [("পিটার চা খায়", "পিটার চা খায় না")],
    "Vietnamese": [("Anna thích trà", "Anna không thích trà")],
    "Indonesian": [("Anna suka teh", "Anna tidak suka teh")],
    "Korean": [
        ("안나는 녹차를 좋아합니다.", "안나는 녹차를 안 좋아합니다."),
        ("안나는 녹차를 좋아합니다.", "안나는 녹차를 좋아하지 않습니다."),
        ("안나는 수영합니다", "안나는 수영을 못 합니다"),
        ("안나는 차가 있다", "안나는 차가 없다"),
    ],
    "Chinese": [
        ("用户喜欢茶", "用户不喜欢茶"),
        ("用户有孩子", "用户没有孩子"),
        ("測試已完成", "測試未完成"),
    ],
    "Japanese": [
        ("ユーザーはお茶を飲みます", "ユーザーはお茶を飲みません"),
        ("ユーザーは肉を食べた", "ユーザーは肉を食べなかった"),
    ],
    "Thai": [("แอนนาชอบชา", "แอนนาไม่ชอบชา")],
}
CONTRADICTING += [pair for pairs in DENIED.values() for pair in pairs]
AGREEING = [
    ("The API listens on port 8080.", "The API is on 8080, behind nginx."),
    ("Tests need Docker", "The tests need Docker to run"),
    ("The user likes tea.", "The user likes green tea"),
    ("Use pnpm for all installs", "Always use pnpm for installs"),
    ("The API listens on 8080", "The API server listens on port 8080"),
    ("The frontend uses Zustand for state management", "Zustand is the state management of the frontend"),
    ("Never push to main", "Pushing to main is never allowed"),
    ("Use pnpm for installs", "Use pnpm for installing"),
    # A negation in other words, or a part that has moved.
    ("Do not push to main", "Don't push to main"),
    ("Never push to main", "Do not push to main"),
    ("Use pnpm, not npm", "Use pnpm, and do not use npm"),
    ("Alice usually drinks tea", "Usually, Alice drinks tea"),
    ("The team meets on Friday in Oslo", "The team meets in Oslo on Friday"),
    ("We deploy to staging on Fridays", "On Fridays we deploy to staging"),
    ("Alice and Bob like green tea", "Bob and Alice like green tea"),
    ("The API uses PostgreSQL and Redis for storage", "The API uses Redis and PostgreSQL for its storage"),
    ("The new API uses PostgreSQL and Redis", "Redis and PostgreSQL are what it uses"),
    ("The user likes tea", "The user likes 🍵 tea"),
    ("Anna mag keinen grünen Tee", "Anna mag wirklich keinen grünen Tee"),
    ("Das Treffen ist im Mai", "Das Treffen ist im Mai in Oslo"),
    ("Anna n'aime pas le thé", "Anna n’aime pas du tout le thé"),
    ("Ana no come carne", "Ana no come carne roja"),
    ("Anna non ama il tè", "Anna non ama affatto il tè"),
    ("Anna houdt niet van thee", "Anna houdt helemaal niet van thee"),
    ("Anna gillar inte te", "Anna gillar inte te på morgonen"),
    ("Иван не пьёт кофе по утрам", "Иван по утрам не пьёт кофе"),
    ("Anna nie lubi kawy", "Anna bardzo nie lubi kawy"),
    ("أليس لا تحب الشاي", "أليس لا تحب الشاي الأخضر"),
    ("पीटर चाय नहीं पीता है", "पीटर अब चाय नहीं पीता है"),
    ("안나는 녹차를 좋아합니다", "안나는 녹차를 매우 좋아합니다"),
    ("用户喜欢茶", "用户特别喜欢茶"),
    ("用户喜欢喝茶", "用户非常喜欢喝绿茶"),
    ("ユーザーはお茶が好きです", "ユーザーはお茶がとても好きです"),
    ("", "x"),
    ("...", "Use pnpm"),
]


@pytest.mark.parametrize(("text", "other"), CONTRADICTING)
def test_what_differs_in_a_number_a_name_or_a_denial_contradicts(text: str, other: str) -> None:
    assert contradiction(text, other)
    assert contradiction(other, text)
    assert contradiction(f"Something else entirely | {text}", other), "a piece of a merged memory counts"


@pytest.mark.parametrize(("text", "other"), AGREEING)
def test_what_says_more_or_says_it_otherwise_does_not(text: str, other: str) -> None:
    assert contradiction(text, other) is None
    assert contradiction(other, text) is None


@given(st.text(max_size=60), st.text(max_size=60))
def test_it_is_symmetric_and_no_text_contradicts_itself(text: str, other: str) -> None:
    assert bool(contradiction(text, other)) == bool(contradiction(other, text))
    assert " | " in text or contradiction(text, text) is None


@given(st.text(st.characters(exclude_characters="|")), st.text(st.characters(exclude_characters="|")))
def test_a_joined_text_contains_both_and_every_text_itself(text: str, other: str) -> None:
    assert contains(text, text)
    assert contains(f"{text} | {other}", text)
    assert contains(f"{text} | {other}", other)
    assert contains(f"{text} | {other}", f"{other} | {text}")


@given(st.text(st.characters(exclude_characters="|")), st.text(st.characters(exclude_characters="|")))
def test_what_says_the_same_contains_it_and_every_text_says_itself(text: str, other: str) -> None:
    assert entails(text, text)
    assert entails(f"{other} | {text}", text)
    assert contains(text, other) or not entails(text, other)
    assert contradiction(text, other) is None or not entails(text, other)


def test_of_very_many_pieces_no_text_says_all() -> None:
    text = " | ".join(f"part {number}" for number in range(1_000))
    assert entails(text, "part 7")
    assert not entails(text, text)


def test_a_subject_denies_nothing() -> None:
    assert contradiction("Alice does not like tea.", "tea") == "only one of them denies it"
    assert contradiction("Alice does not like tea.", "tea", denials=False) is None
    assert contradiction("The meeting is on Tuesday.", "the meeting on Friday", denials=False)


@pytest.mark.parametrize(("text", "other"), CONTRADICTING)
def test_an_upsert_adds_what_contradicts_and_says_so(memory: Memory, text: str, other: str) -> None:
    project = memory.project()
    first = project.upsert(text, vector=[1.0, 0.0])
    second = project.upsert(other, vector=[1.0, 0.01])
    assert (first.outcome, first.reason, second.outcome) == ("inserted", None, "inserted")
    assert first.entry is not None
    assert second.reason is not None
    assert second.reason.endswith(f": it is not what {first.entry.id} says")
    assert second.cosine is not None
    assert second.cosine > 0.99
    assert [entry.content for entry in project.list()] == [text, other]
    assert project.compact().merged == 0
    assert project.upsert(text, vector=[1.0, 0.01]).outcome == "skipped", "its twin is found before"
    assert_sound(memory)


@pytest.mark.parametrize(("text", "other"), AGREEING[:-2])
def test_an_upsert_and_a_compaction_merge_what_agrees(memory: Memory, text: str, other: str) -> None:
    memory.project("a").upsert(text, vector=[1.0, 0.0])
    assert memory.project("a").upsert(other, vector=[1.0, 0.01]).outcome == "merged"
    for number, content in enumerate((text, other)):
        memory.project("b").add(content, vector=[1.0, 0.01 * number])
    assert memory.project("b").compact().merged == 1


def test_the_built_in_embedder_keeps_two_ports_apart() -> None:
    with Memory() as memory:
        for port in (8080, 9090):
            assert memory.upsert(f"The API of the payment service listens on port {port}.").outcome == "inserted"
        assert memory.project().count() == 2
