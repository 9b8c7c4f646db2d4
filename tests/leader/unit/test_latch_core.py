"""A latch's core over a ZooKeeper in memory: when its driver fails, and when a link gives no answer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leader.core.latch import model as m
from leader.core.latch.core import LatchCore
from leader.core.latch.machine import SuspendedPolicy
from leader.core.latch.model import News
from leader.core.latch.steps import PlainClaimant
from leader.core.lease import LeadershipLease, SessionLiveness
from leader.errors import ZooKeeperUnavailableError
from leader.journal import LogJournal
from leader.local.zookeeper import MemoryZooKeeper
from leader.protocol.requests import Steps

S = timedelta(seconds=10)


class Stage:
    """A started latch, and its reports. This object is also the latch's session."""

    def __init__(self, policy: SuspendedPolicy) -> None:
        self.now = timedelta(0)
        self.connection = MemoryZooKeeper(lambda: self.now).connect(lambda _path, _gone: None)
        self.liveness = SessionLiveness()
        self.attach()
        self.lease = LeadershipLease(
            self.liveness, lambda: self.now, S / 5, any_connection=policy is SuspendedPolicy.SESSION
        )
        self.told: list[News] = []
        self.cuts = 0
        self.core = LatchCore(
            session=self,
            queue="/q",
            data=b"",
            claimant=PlainClaimant("/q"),
            lease=self.lease,
            clock=lambda: self.now,
            uniform=lambda _low, high: high,
            retry_max=S / 5,
            tell=self.told.append,
            journal=LogJournal(),
            policy=policy,
        )
        self.run(self.core.handle(m.Started()))

    def attach(self) -> None:
        """Connect again with the same session, without an event for the latch."""
        self.liveness.attached(self.connection.session_id, self.now, S)

    def reconnect(self) -> None:
        self.cuts += 1

    def run(self, steps: Steps[None]) -> None:
        self.connection.run(steps)

    def wait(self, pause: timedelta) -> None:
        """Advance the time, and run the latch's timers that are due in it."""
        until = self.now + pause
        while self.core.due_at is not None and self.core.due_at <= until:
            self.now = max(self.now, self.core.due_at)
            self.run(self.core.expired())
        self.now = until


@pytest.mark.parametrize("policy", SuspendedPolicy)
@pytest.mark.parametrize("proof_is_under_way", [False, True])
def test_a_latch_whose_driver_failed_while_it_held_the_lock_takes_the_lock_again(
    policy: SuspendedPolicy, proof_is_under_way: bool
) -> None:
    stage = Stage(policy)
    assert stage.lease.stands(stage.lease.hold)
    if proof_is_under_way:
        next(stage.core.expired())

    stage.core.abort("the election's driver failed")
    assert not stage.lease.stands(stage.lease.hold)
    stage.wait(2 * S)

    assert [type(one) for one in stage.told] == [m.Gained, m.LatchLost, m.Gained]
    assert stage.lease.stands(stage.lease.hold)


def test_a_latch_whose_driver_failed_while_it_claimed_the_lock_claims_it_again() -> None:
    stage = Stage(SuspendedPolicy.STANDARD)
    stage.run(stage.core.handle(m.Refused("another try")))
    assert stage.core.due_at is not None
    stage.now = stage.core.due_at
    steps = stage.core.expired()
    request = next(steps)
    while not isinstance(stage.core.state, m.Claiming):
        request = steps.send(stage.connection.answer(request))

    stage.core.abort("the election's driver failed")
    stage.wait(2 * S)

    assert stage.lease.stands(stage.lease.hold)


@pytest.mark.parametrize("policy", SuspendedPolicy)
@pytest.mark.parametrize(
    ("breaks_before", "breaks_meanwhile", "cuts"), [(False, False, 1), (False, True, 0), (True, False, 1)]
)
def test_a_proof_without_an_answer_cuts_the_link_it_was_sent_on_and_no_newer_one(
    policy: SuspendedPolicy, breaks_before: bool, breaks_meanwhile: bool, cuts: int
) -> None:
    stage = Stage(policy)
    if breaks_before:  # the core gets the event of the break only after the proof has failed
        stage.liveness.broke(lost=False)
        stage.attach()
    proof = stage.core.expired()
    next(proof)
    if breaks_meanwhile:
        stage.liveness.broke(lost=False)
        stage.attach()

    fail(proof)

    assert stage.cuts == cuts


@pytest.mark.parametrize("policy", SuspendedPolicy)
def test_a_proof_that_was_due_without_a_link_does_not_cut_the_next_one(policy: SuspendedPolicy) -> None:
    stage = Stage(policy)
    stage.liveness.broke(lost=False)
    proof = stage.core.expired()
    next(proof)
    stage.attach()

    fail(proof)

    assert stage.cuts == 0


def test_a_look_without_an_answer_cuts_the_link_that_it_was_sent_on() -> None:
    stage = Stage(SuspendedPolicy.SESSION)
    stage.liveness.broke(lost=False)
    stage.attach()
    look = stage.core.link(m.LinkUp(stage.connection.session_id))
    next(look)

    fail(look)

    assert stage.cuts == 1


def fail(steps: Steps[None]) -> None:
    """Let the request that waits for an answer fail."""
    with pytest.raises(StopIteration):
        steps.throw(ZooKeeperUnavailableError("no answer"))
