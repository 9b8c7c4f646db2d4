"""Runs that end by a decision."""

from __future__ import annotations

from collections.abc import Sequence

from nimbus.domain.run import Run
from nimbus.domain.writes import CreateRun, PutRun, Write


def ended_runs(writes: Sequence[Write]) -> list[Run]:
    """Runs that these writes make final."""
    return [
        write.run for write in writes if isinstance(write, (CreateRun, PutRun)) and write.run.state.is_final
    ]
