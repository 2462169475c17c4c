"""The soak rig: a mixed load, for seconds and for twenty minutes, takes no more the longer it runs; leaks are seen."""

import pytest

from tests.rigs.soak import LEAKS, ROUNDS_MIN, WARM_ROUNDS, Own, Sample, drift, started

SEED = 1
ROUNDS = WARM_ROUNDS + ROUNDS_MIN


def run(seconds: int, *options: str) -> tuple[int, list[Sample], list[str]]:
    status, samples, found = started("--seconds", str(seconds), "--seed", str(SEED), *options)
    print(*samples[:: max(len(samples) // 20, 1)], sep="\n")  # noqa: T201 - shown if the test fails
    assert len(samples) >= ROUNDS
    assert samples[-1].head > samples[0].head
    return status, samples, found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_grows_in_seconds() -> None:
    status, _, found = run(1)
    assert (status, found) == (0, [])


@pytest.mark.soak
@pytest.mark.timeout(3_000)
def test_nothing_grows_in_twenty_minutes() -> None:
    status, _, found = run(1_200)
    assert (status, found) == (0, [])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("leak", "words"),
    [
        ("memory", "memory_bytes of the first process grew"),
        ("objects", "objects of the first process grew"),
        ("files", "files of the first process grew"),
        ("readers", "places in"),
        ("file size", "the file grew"),
    ],
)
def test_a_build_that_leaks_is_found(leak: str, words: str) -> None:
    status, _, found = run(1, "--leak", leak)
    assert status == 1
    assert any(words in finding for finding in found), found


def test_every_leak_is_tried() -> None:
    assert set(LEAKS) == {"memory", "objects", "files", "readers", "file size"}


def samples(**grown: int) -> list[Sample]:
    """Rounds of a store that is well, but for what grows by so much in each."""

    def own(process: str, number: int) -> Own:
        well = {"memory_bytes": 10**7, "objects": 10**5, "files": 10}
        return Own(**{name: value + grown.get(f"{process} {name}", 0) * number for name, value in well.items()})

    return [
        Sample(
            round=number,
            head=100 * (number + 1),
            file_bytes=500_000 + (20_000 + grown.get("file", 0)) * number,
            readers=2 + grown.get("readers", 0) * number,
            first=own("first", number),
            second=own("second", number),
        )
        for number in range(40)
    ]


@pytest.mark.parametrize(
    ("what", "grown", "words"),
    [
        ("first memory_bytes", 10**6, "memory_bytes of the first process grew"),
        ("second memory_bytes", 10**6, "memory_bytes of the second process grew"),
        ("first objects", 3_000, "objects of the first process grew"),
        ("second objects", 3_000, "objects of the second process grew"),
        ("first files", 1, "files of the first process grew"),
        ("second files", 1, "files of the second process grew"),
        ("readers", 1, "places in the table"),
        ("file", 40_000, "the file grew"),
    ],
)
def test_what_grows_is_told(what: str, grown: int, words: str) -> None:
    assert drift(samples()) == []
    (found,) = drift(samples(**{what: grown}))
    assert words in found
