"""A leader process that is killed while it advances a backfill: see `test_backfill_kills`."""

from __future__ import annotations

import sys
from datetime import timedelta

from nimbus.domain.ids import PipelineName, ReleaseDigest, TaskName
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.pipeline import Concurrency, PipelineSpec, Schedule, TaskKind, TaskSpec
from nimbus.engine.policy import Policy
from tests.benchmark.engine.child import play
from tests.benchmark.engine.engine_role import EngineRole

LIMIT = 8
SPEC = PipelineSpec(
    name=PipelineName("dates"),
    schedule=Schedule(cron="0 * * * *", timezone="Europe/Berlin"),
    concurrency=Concurrency(limit=LIMIT),
    tasks=(TaskSpec(name=TaskName("t0-f0"), kind=TaskKind.PYTHON, script="x.py"),),
)
RELEASE = ReleaseOf(SPEC.name, ReleaseDigest("b" * 64))


def main(hosts: str, root: str, name: str) -> int:
    """Queue for the lead, until standard input ends."""
    policy = Policy(keep_finished=timedelta(0))
    role = EngineRole(hosts, root, name, policy, session_timeout=timedelta(seconds=3))
    role._specs[RELEASE.digest] = SPEC
    role.election.add_to_leader_lock_queue()
    return play(role)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
