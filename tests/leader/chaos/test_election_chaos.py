"""Five participants, three ZooKeeper servers, many faults: never two leaders, and soon one again.

NIMBUS_CHAOS_SECONDS: for how long (`make chaos`: ten minutes). NIMBUS_CHAOS_SEED: to play the same faults
again. NIMBUS_CHAOS_SESSION_MS: session timeout.
"""

from __future__ import annotations

import secrets
from datetime import timedelta
from pathlib import Path

import pytest

from tests.leader.chaos.election.election_driver import Driver
from tests.leader.chaos.election.election_report import report
from tests.leader.chaos.election.stage import stage
from tests.report import number_from, say

LENGTH = timedelta(seconds=number_from("NIMBUS_CHAOS_SECONDS", 10))
SESSION = timedelta(milliseconds=number_from("NIMBUS_CHAOS_SESSION_MS", 2_000))
START_LIMIT = timedelta(seconds=60)

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(LENGTH.total_seconds() + 240)]


def test_no_two_participants_ever_lead_and_somebody_soon_does_whatever_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = number_from("NIMBUS_CHAOS_SEED", secrets.randbelow(1 << 31))
    with stage(tmp_path, participants=5, session=SESSION) as played:
        say(capsys, [f"election chaos: seed {seed}, {LENGTH.total_seconds():g} s, histories in {tmp_path}"])
        played.start(START_LIMIT)

        outcome = Driver(played, seed).run(LENGTH)

        say(capsys, report(outcome, played.lines()))
    assert outcome.wrong == []
