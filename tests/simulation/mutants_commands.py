"""Faults about commands, and what they leave in runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nimbus.domain import lifecycle
from nimbus.engine.state import State
from tests.simulation.mutant import mutant, replaced


@mutant
def pause_is_forgotten_by_the_next_leader() -> Iterator[None]:
    """DS 3.2.2, `processReadyPause`: a pause is a state of the process, and no part of the record."""
    original = State.put_run

    def put(self: Any, run: Any, *rest: Any) -> None:
        known = run.id in self.runs
        original(self, run if known or run.state.is_final else replace(run, paused=None), *rest)

    with replaced(State, put_run=put):
        yield


@mutant
def retry_begins_in_a_paused_run() -> Iterator[None]:
    """A pause holds what follows, and a retry that is due begins all the same."""
    original = State._put_readiness

    def put(self: Any, run: Any, task: Any) -> None:
        original(self, replace(run, paused=None) if task.attempts else run, task)

    with replaced(State, _put_readiness=put), replaced(lifecycle, open_attempt=_open_in_any_run):
        yield


_open_attempt = lifecycle.open_attempt


def _open_in_any_run(run: Any, *args: Any, **named: Any) -> Any:
    return replace(_open_attempt(replace(run, paused=None), *args, **named), paused=run.paused)
