"""Settings of Hypothesis: no test fails because the machine is busy.

Laws without their own number of examples are tested with 25 in `make test`, and with 500 in `make simulate`.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.thorough import examples


def load() -> None:
    """Called by the `conftest.py` of each folder with properties: other tests do not import Hypothesis."""
    settings.register_profile(
        "unhurried", max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("unhurried")
