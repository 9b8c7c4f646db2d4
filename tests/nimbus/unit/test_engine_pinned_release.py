"""A run stays with the release that it started with."""

from __future__ import annotations

from dataclasses import replace

from nimbus.domain.ids import ReleaseDigest
from nimbus.domain.runs.task_run import Outcome
from tests.nimbus.definitions import active
from tests.nimbus.engine_bench import ATTEMPT, DIGEST, NAME, SPEC, START, Bench


def ordered(bench: Bench) -> dict[str, ReleaseDigest]:
    """The release of each current order."""
    return {order.attempt: order.release for order in bench.cluster.world.orders.values()}


def test_retry_under_a_new_leader_uses_the_release_of_the_run_when_another_is_active_by_then() -> None:
    bench = Bench()
    bench.submit(START)
    bench.decide()
    assert ordered(bench) == {"p-1.a.1": DIGEST}

    activated = active(replace(SPEC, tasks=()))
    bench.cluster.change(pipelines={NAME: activated})
    bench.end(ATTEMPT, Outcome.LOST)
    bench.elect(2)
    bench.decide()
    bench.clocks.pass_s(60)
    bench.decide()

    assert ordered(bench) == {"p-1.a.2": DIGEST}
