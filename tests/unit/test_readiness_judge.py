"""May this scheduler lead? The whole table: policy, state, ready peers, time without a leader."""

from __future__ import annotations

from datetime import timedelta

import pytest

from blobsync import MissingArtifact, Readiness, ReleaseReadiness, ReleaseRef, ReleaseState, Role
from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.engine.readiness import GatePolicy, Judgement, hopeless, judge, lacking

P, Q = PipelineName("p"), PipelineName("q")
DIGEST = ReleaseDigest("a" * 64)
REQUIRED = (ReleaseOf(P, DIGEST), ReleaseOf(Q, DIGEST))
BOUND = timedelta(minutes=5)
STRICT, PER_PIPELINE = GatePolicy.STRICT, GatePolicy.PER_PIPELINE
UNSEEN = None


def release(name: str, state: ReleaseState, missing: int = 0) -> ReleaseReadiness:
    files = tuple(MissingArtifact(f"f{n}.py", Role.CODE, 1, "0" * 64) for n in range(missing))
    return ReleaseReadiness(ref=ReleaseRef(name, DIGEST), state=state, missing=files, reason="because")


def readiness(state: ReleaseState | None, missing: int = 0) -> Readiness:
    """Pipeline q is complete; p stands as said, or was not looked at."""
    found = [release("q", ReleaseState.READY)]
    if state is not None:
        found.append(release("p", state, missing))
    return Readiness(releases={item.ref: item for item in found})


def judged(
    state: ReleaseState | None,
    policy: GatePolicy,
    *,
    peers: tuple[str, ...] = (),
    leaderless: timedelta = timedelta(0),
) -> Judgement:
    return judge(
        REQUIRED,
        readiness(state),
        policy=policy,
        ready_peers=peers,
        leaderless_for=leaderless,
        forced_takeover_after=BOUND,
    )


@pytest.mark.parametrize("policy", GatePolicy)
@pytest.mark.parametrize("peers", [(), ("s2",)])
@pytest.mark.parametrize("leaderless", [timedelta(0), BOUND])
def test_who_has_everything_leads(policy: GatePolicy, peers: tuple[str, ...], leaderless: timedelta) -> None:
    assert judged(ReleaseState.READY, policy, peers=peers, leaderless=leaderless) == Judgement(ready=True)


@pytest.mark.parametrize("policy", GatePolicy)
def test_who_needs_nothing_leads(policy: GatePolicy) -> None:
    judgement = judge(
        (),
        readiness(ReleaseState.ABSENT),
        policy=policy,
        ready_peers=(),
        leaderless_for=timedelta(0),
        forced_takeover_after=BOUND,
    )

    assert judgement == Judgement(ready=True)


@pytest.mark.parametrize(
    ("state", "policy", "peers", "ready"),
    [
        (ReleaseState.ABSENT, STRICT, (), False),
        (ReleaseState.ABSENT, STRICT, ("s2",), False),
        (ReleaseState.ABSENT, PER_PIPELINE, (), True),
        (ReleaseState.ABSENT, PER_PIPELINE, ("s2",), False),
        (ReleaseState.SYNCING, STRICT, (), False),
        (ReleaseState.SYNCING, PER_PIPELINE, (), False),
        (ReleaseState.UNAVAILABLE, STRICT, (), False),
        (ReleaseState.UNAVAILABLE, PER_PIPELINE, (), False),
        (ReleaseState.CORRUPT, STRICT, (), False),
        (ReleaseState.CORRUPT, PER_PIPELINE, (), True),
        (ReleaseState.CORRUPT, PER_PIPELINE, ("s2",), False),
        (UNSEEN, STRICT, (), False),
        (UNSEEN, PER_PIPELINE, (), False),
        (UNSEEN, PER_PIPELINE, ("s2",), False),
    ],
)
def test_who_lacks_something_leads_only_if_nobody_can_have_it(
    state: ReleaseState | None, policy: GatePolicy, peers: tuple[str, ...], ready: bool
) -> None:
    judgement = judged(state, policy, peers=peers, leaderless=BOUND - timedelta(microseconds=1))

    assert judgement.ready is ready
    assert not judgement.forced
    assert set(judgement.quarantined) == ({P} if ready else set())
    assert bool(judgement.reasons) is not ready


@pytest.mark.parametrize("state", [*(s for s in ReleaseState if s is not ReleaseState.READY), UNSEEN])
@pytest.mark.parametrize("policy", GatePolicy)
def test_after_too_long_without_a_leader_a_lack_bars_only_its_pipeline(
    state: ReleaseState | None, policy: GatePolicy
) -> None:
    judgement = judged(state, policy, leaderless=BOUND)

    assert (judgement.ready, judgement.forced) == (True, True)
    assert set(judgement.quarantined) == {P}


def test_the_reason_names_state_cause_and_the_first_files() -> None:
    found = lacking(REQUIRED, readiness(ReleaseState.ABSENT, missing=5))

    assert found == {P: "absent: because; missing: f0.py, f1.py, f2.py and 2 more"}
    assert lacking(REQUIRED, readiness(UNSEEN)) == {P: "its release was not looked at yet"}
    assert lacking(REQUIRED, readiness(ReleaseState.READY)) == {}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (ReleaseState.READY, set()),
        (ReleaseState.SYNCING, set()),
        (ReleaseState.UNAVAILABLE, set()),
        (UNSEEN, set()),
        (ReleaseState.ABSENT, {P}),
        (ReleaseState.CORRUPT, {P}),
    ],
)
def test_hopeless_is_what_storage_does_not_have(state: ReleaseState | None, expected: set[str]) -> None:
    assert set(hopeless(REQUIRED, readiness(state))) == expected
