"""Bugs that other schedulers had, built into ours one at a time, to show that the laws find them."""

from __future__ import annotations

from tests.nimbus.simulation import (  # noqa: F401 - they add theirs
    mutants_alerts,
    mutants_attempts,
    mutants_children,
    mutants_commands,
    mutants_datasets,
    mutants_due,
    mutants_explanations,
    mutants_kept,
    mutants_leaders,
    mutants_schedules,
    mutants_shares,
    mutants_shells,
)
from tests.nimbus.simulation.mutant import MUTANTS

__all__ = ["MUTANTS"]
