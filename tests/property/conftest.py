"""How Hypothesis runs here: a law that holds does not fail because the machine is busy.

A law that does not say with how many examples it is tried is tried with 50, and with 500 in `make simulate`.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.thorough import examples

settings.register_profile(
    "unhurried", max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unhurried")
