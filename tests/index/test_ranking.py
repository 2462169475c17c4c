"""Rankings: the seed's formula computed by hand, the presets, ties, every script, and what is refused."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.errors import InvalidInput
from refold.evaluation.retrieval import BASELINES
from refold.index.columns import product
from refold.index.ranking import RANKINGS, SIGNALS, Query, Ranking, ranking_of
from refold.index.signals import RowText, TextIndex, month_of
from refold.index.terms import STEMMERS, forms_of, light, porter, question_share, terms_of
from refold.text import keywords

DAY_NS = 86_400 * 10**9


def texts_of(
    *contents: str, importance: float = 0.5, session: str | None = None, occurred_ns: int | None = None
) -> TextIndex:
    """One row for each text, with its keywords; every other value is the same in all."""
    texts = TextIndex()
    for row, content in enumerate(contents):
        texts.add(row, RowText(content, session, occurred_ns), keywords=keywords(content), importance=importance)
    return texts


def cosines(*numbers: float) -> Any:
    return numpy.array(numbers, dtype=numpy.float32)


# Computed by hand: the row, the query, the cosine, the days since the last access, and what the formula gives.
SEED = {
    # The sum of the weights.
    "all at their most": (("pnpm",), 1.0, "pnpm", 1.0, 0.0, 1.0),
    # Recency alone: 0.15 / (1 + 0.1 * 0).
    "new and nothing else": (("pnpm",), 0.0, "yarn", 0.0, 0.0, 0.15),
    # 0.4 * 0.5 + 0.25 * 2 / 4 + 0.2 * 0.6 + 0.15 / (1 + 0.1 * 10) = 0.2 + 0.125 + 0.12 + 0.075
    "half of all": (("use", "pnpm", "npm"), 0.6, "use pnpm yarn", 0.5, 10.0, 0.52),
    # 0.4 * -1 + 0.2 * 0.25 + 0.15 / (1 + 0.1 * 90) = -0.4 + 0.05 + 0.015
    "opposite": ((), 0.25, "", -1.0, 90.0, -0.335),
    # Half a day: 0.15 / 1.05; 12 hours are not rounded to a day.
    "days are fractions": ((), 0.0, "", 0.0, 0.5, 0.142857),
    # A moment before the last access counts as no days.
    "never below no days": ((), 0.0, "", 0.0, -5.0, 0.15),
}


@pytest.mark.parametrize("name", SEED)
def test_the_formula_of_the_seed_computed_by_hand(name: str) -> None:
    words, importance, query, cosine, days, expected = SEED[name]
    now_ns = 100 * DAY_NS
    texts = TextIndex()
    accessed_ns = now_ns - round(days * DAY_NS)
    texts.add(0, RowText("another text"), keywords=words, importance=importance, accessed_ns=accessed_ns)
    total, parts = texts.score(Query(text=query, now_ns=now_ns, ranking=RANKINGS["seed"]), cosines(cosine))
    assert float(total[0]) == pytest.approx(expected, abs=1e-6)
    assert list(parts) == ["cosine", "keywords", "importance", "recency"]
    assert total.dtype == numpy.float32
    assert float(parts["cosine"][0]) == cosine


def test_given_keywords_stand_in_place_of_those_of_the_query_and_case_does_not_count() -> None:
    texts = TextIndex()
    texts.add(0, RowText("text"), keywords=("PNPM", "pnpm", "Npm"), importance=0, accessed_ns=0)
    given = Query(text="text", words=("Pnpm", "YARN"), ranking=Ranking(keywords=1))
    assert texts.score(given)[0].tolist() == pytest.approx([1 / 3])
    assert texts.score(Query(text="text", words=(), ranking=Ranking(keywords=1)))[0].tolist() == [0]
    assert texts.score(Query(text="a pnpm", ranking=Ranking(keywords=1)))[0].tolist() == [0.5]


NAMED = {**RANKINGS, **BASELINES}
VARIANTS = {
    "seed-without-recency": 0.4 * 0.5 + 0.2 * 0.5,
    "seed-exponential": 0.4 * 0.5 + 0.2 * 0.5 + 0.15 * 0.95**2,
    "browse": 0.8 * 0.5 + 0.2 / 2.4,
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_variants_of_the_seed_computed_by_hand(name: str) -> None:
    texts = texts_of("tea")
    total, _ = texts.score(Query(now_ns=14 * DAY_NS, ranking=NAMED[name]), cosines(0.5))
    assert float(total[0]) == pytest.approx(VARIANTS[name], abs=1e-6)


def test_coverage_with_neighbours_computed_by_hand() -> None:
    # Of four rows one has "paint" and none "sunset"; "when", "did" and "you" are no terms.
    texts = texts_of("When did you paint", "Yesterday", "Lovely", "Yesterday", session="s")
    paint, sunset = numpy.log(1 + 3.5 / 1.5), numpy.log(1 + 4.5 / 0.5)
    gate = 1 / (1 + (1 / 80) ** 2)
    expected = [
        gate**0 * share * paint / (paint + sunset) for share in (1, 0.8 * gate**2, 0.5 * gate**2, 0.2 * gate**2)
    ]
    ranking = Ranking(coverage=1)
    assert texts.score(Query(text="paint a sunset", ranking=ranking))[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_forms_of_an_irregular_word_count_for_the_same() -> None:
    # Of two rows one has "go", in another form, and none has "sunset".
    texts = texts_of("We went", "Tea")
    go, sunset = numpy.log(1 + 1.5 / 1.5), numpy.log(1 + 2.5 / 0.5)

    def found(*, irregular: bool) -> Any:
        ranking = Ranking(coverage=1, irregular=irregular)
        return texts.score(Query(text="Where did you go at sunset, and where go?", ranking=ranking))[0].tolist()

    assert found(irregular=False) == [0, 0]
    assert found(irregular=True) == pytest.approx([go / (go + sunset), 0], abs=1e-6)


def test_a_preset_never_changes_under_its_name() -> None:
    own = Ranking(cosine=1).__struct_fields__[1:]
    shapes = {
        name: {field: value for field in own if (value := getattr(ranking, field)) != getattr(Ranking(cosine=1), field)}
        for name, ranking in NAMED.items()
    }
    seed = {"cosine": 0.40, "keywords": 0.25, "importance": 0.20}
    assert shapes == {
        "seed": {**seed, "recency": 0.15},
        "seed-without-recency": seed,
        "seed-exponential": {**seed, "recency": 0.15, "recency_curve": "exponential"},
        "browse": {"cosine": 0.0, "importance": 0.80, "recency": 0.20},
        "window": {"cosine": 0.5, "coverage": 0.5, "stemmer": "light"},
        "hybrid": {"cosine": 0.5, "coverage": 0.5, "question": -0.1, "pivot_terms": 50.0, "irregular": True},
        "lexical": {"cosine": 0.0, "coverage": 1.0, "question": -0.1, "pivot_terms": 50.0, "irregular": True},
        "bm25": {"cosine": 0.0, "bm25": 1.0, "stemmer": "light"},
        "idf-cosine": {"cosine": 0.40, "idf_cosine": 0.25, "stemmer": "light"},
        "idf-coverage": {"cosine": 0.40, "coverage": 0.25, "stemmer": "light", "neighbours": (), "damping": 0.0},
        "cosine": {},
    }


def test_every_preset_has_its_own_name_and_ranks_what_answers_first() -> None:
    texts = texts_of("Ada drinks green tea", "Bob sold his boat", "The weather in Oslo was bad", now := "ok")
    query, found = Query(text="Who drinks tea?", now_ns=0), cosines(0.9, 0.1, 0.0, 0.0)
    assert now == "ok"
    for name, ranking in NAMED.items():
        assert ranking.name == name
        total, parts = texts.score(msgspec.structs.replace(query, ranking=ranking), found)
        assert list(parts) == list(ranking.weights())
        assert texts.best(total, 1)[0][0] == 0


LANGUAGES = {
    "Chinese": ("\u6211\u4eec\u5728\u5317\u4eac\u5f00\u4f1a", "\u5317\u4eac", "\u4eca\u5929\u5929\u6c14\u5f88\u597d"),
    "one Chinese character": ("\u6211\u517b\u4e86\u4e00\u53ea\u732b", "\u732b", "\u4eca\u5929\u5929\u6c14\u5f88\u597d"),
    "Japanese": (
        "\u6628\u65e5\u6771\u4eac\u3067\u4f1a\u8b70\u304c\u3042\u3063\u305f",
        "\u6771\u4eac\u306e\u4f1a\u8b70\u306f\uff1f",
        "\u732b\u304c\u597d\u304d\u3067\u3059",
    ),
    "Korean": (
        "\uc11c\uc6b8\uc5d0\uc11c \ud68c\uc758\ub97c \ud588\ub2e4",
        "\uc11c\uc6b8 \ud68c\uc758",
        "\uace0\uc591\uc774\ub97c \uc88b\uc544\ud55c\ub2e4",
    ),
    "Thai": (
        "\u0e09\u0e31\u0e19\u0e2d\u0e22\u0e39\u0e48\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e",
        "\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e",
        "\u0e41\u0e21\u0e27\u0e19\u0e48\u0e32\u0e23\u0e31\u0e01",
    ),
    "Russian": (
        "\u041c\u043e\u0441\u043a\u0432\u0430 \u2014 \u0441\u0442\u043e\u043b\u0438\u0446\u0430",
        "\u043c\u043e\u0441\u043a\u0432\u0430?",
        "\u042f \u043b\u044e\u0431\u043b\u044e \u0447\u0430\u0439",
    ),
    "Arabic": (
        "\u0627\u0644\u0627\u062c\u062a\u0645\u0627\u0639 \u0641\u064a \u062f\u0628\u064a",
        "\u062f\u0628\u064a\u061f",
        "\u0623\u062d\u0628 \u0627\u0644\u0634\u0627\u064a",
    ),
    "German": ("Die Stra\u00dfe ist gesperrt", "STRASSE", "Der Tee ist gr\u00fcn"),
    "Hindi": (
        "\u0926\u093f\u0932\u094d\u0932\u0940 \u092e\u0947\u0902 \u092c\u0948\u0920\u0915",
        "\u0926\u093f\u0932\u094d\u0932\u0940",
        "\u092e\u0941\u091d\u0947 \u091a\u093e\u092f \u092a\u0938\u0902\u0926 \u0939\u0948",
    ),
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("signal", ["coverage", "bm25", "idf_cosine"])
@pytest.mark.parametrize("stemmer", ["porter", "light", "none"])
def test_a_word_is_found_in_any_script_without_a_session(language: str, signal: str, stemmer: str) -> None:
    answer, query, other = LANGUAGES[language]
    texts = texts_of(other, answer, other)
    weight: Any = {signal: 1.0}
    total, _ = texts.score(Query(text=query, ranking=Ranking(**weight, stemmer=stemmer)))
    assert total[1] > 0.2
    assert total[0] == total[2] < total[1] / 2


def test_a_row_without_a_session_has_no_neighbours() -> None:
    ranking = Ranking(coverage=1)
    assert texts_of("tea", "yes").score(Query(text="tea", ranking=ranking))[0][1] == 0
    assert texts_of("tea", "yes", session="s").score(Query(text="tea", ranking=ranking))[0][1] > 0.7


def test_a_month_is_found_only_where_it_is_known_when_something_happened() -> None:
    texts = texts_of("We went hiking", occurred_ns=1_684_000_000 * 10**9)
    texts.add(1, RowText("We went hiking"), importance=0.5, accessed_ns=0)
    total, _ = texts.score(Query(text="hiking in May 2023", ranking=Ranking(coverage=1)))
    assert total[0] == 1
    assert total[1] < 0.5


@given(st.integers(-(2**62) // 10**9, 2**62 // 10**9))
def test_a_month_is_that_of_the_calendar(seconds: int) -> None:
    assert month_of(seconds * 10**9) == datetime.fromtimestamp(seconds, UTC).strftime("%B %Y")


def test_equal_scores_stand_by_importance_and_then_by_seq() -> None:
    texts = TextIndex()
    for row, importance in enumerate([0.1, 0.9, 0.5, 0.9]):
        texts.add(row, RowText("tea"), importance=importance, accessed_ns=0)
    total = cosines(0.7, 0.7, 0.7, 0.7)
    assert [row for row, _ in texts.best(total, 4)] == [1, 3, 2, 0]
    assert [row for row, _ in texts.best(total, 2)] == [1, 3]
    # What rounding on another machine could change does not count.
    assert [row for row, _ in texts.best(cosines(0.7000001, 0.7, 0.7, 0.6999999), 1)] == [1]
    assert texts.best(total, 9)[-1] == (0, 0.7)


def test_the_best_are_taken_among_some_rows_and_never_a_removed_one() -> None:
    texts = texts_of("a", "b", "c", "d")
    total = cosines(0.1, 0.2, 0.3, 0.4)
    texts.remove(3)
    assert [row for row, _ in texts.best(total, 2)] == [2, 1]
    assert [row for row, _ in texts.best(total, 2, numpy.array([0, 1]))] == [1, 0]
    assert texts.best(total, 0) == []
    assert texts.best(total, 3, numpy.array([], dtype=int)) == []
    assert TextIndex().best(cosines(), 3) == []


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(1, 30))
def test_the_best_are_those_of_a_whole_sort(numbers: list[int], count: int) -> None:
    texts = TextIndex()
    for row, number in enumerate(numbers):
        texts.add(row, RowText(""), importance=(number * 7 % 3) / 2, accessed_ns=0)
    total = cosines(*[number % 2 / 3 for number in numbers])
    importance = texts.importance.values.tolist()
    whole = sorted(range(len(numbers)), key=lambda row: (-float(total[row]), -importance[row], row))
    assert [row for row, _ in texts.best(total, count)] == whole[:count]


QUESTIONS = {
    "": 0.0,
    "Tea.": 0.0,
    "How are you?": 1.0,
    "Ada: How are you?": 1.0,
    "Fine. And you?": 8 / 13,
    "\u5143\u6c17\u3067\u3059\u304b\uff1f": 1.0,
    "\u5143\u6c17\u3002\u541b\u306f\uff1f": 3 / 6,
    "\u0643\u064a\u0641 \u062d\u0627\u0644\u0643\u061f": 1.0,
    "See a?b": 0.0,
}


@pytest.mark.parametrize(("text", "share"), QUESTIONS.items(), ids=range(len(QUESTIONS)))
def test_how_much_of_a_text_asks(text: str, share: float) -> None:
    assert question_share(text) == pytest.approx(share)


# From the paper that the algorithm was published in.
PORTER_PAIRS = """
    caresses:caress ponies:poni ties:ti caress:caress cats:cat feed:feed agreed:agre plastered:plaster
    bled:bled motoring:motor sing:sing conflated:conflat troubled:troubl sized:size hopping:hop
    tanned:tan falling:fall hissing:hiss fizzed:fizz failing:fail filing:file happy:happi sky:sky
    relational:relat conditional:condit rational:ration valenci:valenc digitizer:digit radicalli:radic
    vietnamization:vietnam predication:predic operator:oper feudalism:feudal decisiveness:decis
    hopefulness:hope formaliti:formal sensitiviti:sensit sensibiliti:sensibl triplicate:triplic
    formative:form formalize:formal electrical:electr hopeful:hope goodness:good revival:reviv
    allowance:allow inference:infer airliner:airlin gyroscopic:gyroscop adjustable:adjust
    defensible:defens irritant:irrit replacement:replac adjustment:adjust dependent:depend
    adoption:adopt homologou:homolog communism:commun activate:activ effective:effect bowdlerize:bowdler
    probate:probat rate:rate cease:ceas controll:control roll:roll generalizations:gener
    oscillators:oscil as:as is:is yes:ye syzygy:syzygi toy:toi b2b:b2b
"""
PORTER = dict(pair.split(":") for pair in PORTER_PAIRS.split())


@pytest.mark.parametrize(("word", "stem"), PORTER.items())
def test_stems_of_the_published_algorithm(word: str, stem: str) -> None:
    assert porter(word) == stem


LIGHT = {
    "hiking": "hik",
    "hikes": "hik",
    "hiked": "hik",
    "cities": "citi",
    "city": "citi",
    "stopped": "stop",
    "bed": "bed",
}


@pytest.mark.parametrize(("word", "stem"), LIGHT.items())
def test_light_stems(word: str, stem: str) -> None:
    assert light(word) == stem


@pytest.mark.parametrize("stemmer", ["porter", "light", "none"])
def test_forms_of_an_irregular_word_are_the_same_from_any_of_them(stemmer: str) -> None:
    stem = STEMMERS[stemmer]
    groups = {forms_of(stem(word), stemmer) for word in ("go", "went", "gone")}
    assert len(groups) == 1
    assert {stem("go"), stem("went"), stem("gone")} <= set(*groups)
    assert forms_of(stem("children"), stemmer)[0] == stem("child")
    assert forms_of(stem("paint"), stemmer) == (stem("paint"),)


def test_no_stems_are_made_of_other_scripts() -> None:
    for word in ("caf\u00e9s", "\u0441\u0442\u043e\u043b\u0438\u0446\u044b", "\u6771\u4eac"):
        assert (porter(word), light(word)) == (word, word)


def test_terms_and_lengths() -> None:
    assert terms_of("The dogs and a dog", "porter") == (["dog", "dog"], 2)
    assert terms_of("\u6771\u4eac\u90fd", "porter") == (
        ["\u6771\u4eac", "\u6771", "\u4eac", "\u4eac\u90fd", "\u4eac", "\u90fd"],
        1,
    )
    assert terms_of("\u732b", "porter") == (["\u732b"], 1)


BAD: dict[str, dict[str, Any]] = {
    "has no weight": {},
    "coverage": {"coverage": float("nan")},
    "importance": {"importance": "high"},
    "recency": {"recency": True},
    "cosine": {"cosine": float("inf")},
    "name": {"cosine": 1, "name": ""},
    "stemmer": {"cosine": 1, "stemmer": "snowball"},
    "recency_curve": {"cosine": 1, "recency_curve": "linear"},
    "recency_rate": {"cosine": 1, "recency_rate": -0.1},
    "recency_weekly": {"cosine": 1, "recency_weekly": 1.5},
    "bm25_length": {"cosine": 1, "bm25_length": 2},
    "neighbours": {"cosine": 1, "neighbours": (0.5, 2)},
    "neighbours of another type": {"cosine": 1, "neighbours": [0.5]},
    "too many neighbours": {"cosine": 1, "neighbours": (0.5,) * 17},
    "damping": {"cosine": 1, "damping": -1},
    "pivot_terms": {"cosine": 1, "pivot_terms": 0},
    "irregular": {"cosine": 1, "irregular": "yes"},
}


@pytest.mark.parametrize("what", BAD)
def test_a_ranking_that_cannot_be_is_refused_by_name(what: str) -> None:
    expected = what.replace("neighbours of another type", "neighbours").replace("too many ", "")
    with pytest.raises(InvalidInput, match=expected):
        Ranking(**BAD[what])


def test_a_ranking_is_data() -> None:
    ranking = Ranking(name="mine", cosine=0.7, question=-0.2, neighbours=(0.5,))
    assert ranking.weights() == {"cosine": 0.7, "question": -0.2}
    assert msgspec.json.decode(msgspec.json.encode(ranking), type=Ranking) == ranking
    assert hash(ranking) == hash(msgspec.structs.replace(ranking))
    with pytest.raises(AttributeError):
        ranking.cosine = 1.0  # type: ignore[misc]


def test_five_rankings_have_a_name_and_the_page_of_rankings_says_what_each_is_for() -> None:
    assert list(RANKINGS) == ["hybrid", "window", "lexical", "seed", "browse"]
    for name in BASELINES:
        with pytest.raises(InvalidInput, match="or one of 'hybrid'"):
            ranking_of(name)


def test_rankings_are_found_by_name_or_as_themselves() -> None:
    assert ranking_of("seed") is RANKINGS["seed"]
    mine = Ranking(cosine=1)
    assert ranking_of(mine) is mine
    for wrong in ("sead", None, 3, ["seed"]):
        with pytest.raises(InvalidInput, match="'seed', 'browse'"):
            ranking_of(wrong)
    with pytest.raises(TypeError):
        RANKINGS["seed"] = mine  # type: ignore[index]
    assert set(SIGNALS) <= set(Ranking.__struct_fields__)


@pytest.mark.parametrize("cosine", [None, cosines(1), cosines(1, 2, 3)])
def test_a_ranking_that_weighs_the_cosine_needs_one_for_each_row(cosine: Any) -> None:
    with pytest.raises(InvalidInput, match="for 2 rows"):
        texts_of("a", "b").score(Query(text="tea", ranking=RANKINGS["seed"]), cosine)


def test_a_row_comes_in_order_once_and_goes_once() -> None:
    texts = texts_of("a")
    for row in (0, 2):
        with pytest.raises(InvalidInput, match=f"row {row} cannot be added where there are 1"):
            texts.add(row, RowText("b"), importance=0, accessed_ns=0)
    texts.remove(0)
    for row in (0, 5):
        with pytest.raises(InvalidInput, match=f"row {row} is not live"):
            texts.remove(row)
    assert (len(texts), texts.size, texts.live_rows().tolist()) == (0, 1, [])


def test_a_product_tells_of_no_number_that_is_not_its_own() -> None:
    """Every warning is an error in these tests; numpy's own product gives one here."""
    left, right = numpy.array([[numpy.inf, 1.0]], numpy.float32), numpy.array([0.0, 1.0], numpy.float32)
    with pytest.raises(RuntimeWarning, match="invalid value"):
        numpy.dot(left, right)
    assert numpy.isnan(product(left, right)).all()
    room = numpy.full(1, numpy.nan, numpy.float32)
    assert product(left[:, 1:], right[1:], room) is room
    assert room.tolist() == [1.0]
