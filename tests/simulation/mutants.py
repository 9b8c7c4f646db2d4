"""Faults that other schedulers had, built into ours one at a time, to show that the laws find them."""

from __future__ import annotations

from tests.simulation import mutants_attempts, mutants_commands, mutants_leaders  # noqa: F401 - they add theirs
from tests.simulation.mutant import MUTANTS

__all__ = ["MUTANTS"]
