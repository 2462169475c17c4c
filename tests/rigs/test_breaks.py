"""Every broken build is seen by some rig."""

from tests.rigs import test_damage, test_dictionary, test_erasures, test_faults, test_histories, test_power
from tests.rigs.breaks import BUILDS


def test_every_broken_build_is_tried() -> None:
    seen = {build for build, _ in test_power.SEEN_IN} | {build for build, *_ in test_damage.SEEN_AS}
    seen |= test_power.ERASURES_SEEN_AS.keys() | test_power.WITNESSES_SEEN_AS.keys() | test_faults.SEEN_IN.keys()
    seen |= test_histories.SEEN_BY.keys() | test_erasures.SEEN_AS.keys() | test_dictionary.SEEN_IN
    assert seen == BUILDS.keys() - {"sound"}
