"""What one round of a mirror takes, leaves and reports, against a plain model."""

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.mirroring.machine import MirrorMachine


def test_the_machine_finds_nothing() -> None:
    run_state_machine_as_test(
        MirrorMachine,
        settings=settings(
            max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
