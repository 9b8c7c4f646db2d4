"""The sizes of all measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Counts of one run.

    Args:
        turn_live: Numbers of live runs with which a turn is measured.
        events: Number of turns of each kind.
        quiet: Live runs of the quiet cluster.
        crowds: Numbers of live runs of the crowded clusters.
        pipelines: Pipelines in the catalog of a crowded cluster; also those that are due in the same second.
        small_crowd: Live runs for the takeover with few of them.
        fan_out: Number of runs that fan out, and of tasks of each, for the tasks per second.
        small_runs: The same for small runs.
        chain: Tasks of the chain whose gaps are measured.
        floor_tasks: Tasks for the floor of the store.
        logged: Tasks of the run whose bytes in the log are counted.
        large: Tasks of the large runs.
        large_chain: Tasks of the large chain.
        wide: Tasks of the wide run, without its join.
        requests: Requests of each kind to the API.
        patience_s: Timeout of each wait.
    """

    turn_live: tuple[int, ...] = (10, 1_000, 10_000)
    events: int = 1_000
    quiet: int = 10
    crowds: tuple[int, ...] = (10_000,)
    pipelines: int = 1_000
    small_crowd: int = 100
    fan_out: tuple[int, int] = (10, 1_000)
    small_runs: tuple[int, int] = (1_000, 10)
    chain: int = 100
    floor_tasks: int = 2_000
    logged: int = 1_000
    large: tuple[int, ...] = (10_000, 1_000)
    large_chain: int = 1_000
    wide: int = 9_999
    requests: int = 100
    patience_s: float = 1_800.0


FULL = Scale()
QUICK = Scale(
    turn_live=(5, 20),
    events=20,
    quiet=3,
    crowds=(20,),
    pipelines=10,
    small_crowd=5,
    fan_out=(1, 40),
    small_runs=(4, 10),
    chain=10,
    floor_tasks=40,
    logged=20,
    large=(50,),
    large_chain=20,
    wide=40,
    requests=5,
    patience_s=60.0,
)
