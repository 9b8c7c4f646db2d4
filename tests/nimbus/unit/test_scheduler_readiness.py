"""Which required releases are missing, and which of them storage does not have."""

from __future__ import annotations

import pytest

from blobsync import MissingArtifact, Readiness, ReleaseReadiness, ReleaseRef, ReleaseState, Role
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.scheduler.readiness import Assessment, assess

P, Q = PipelineName("p"), PipelineName("q")
DIGEST = ReleaseDigest("a" * 64)
REQUIRED = (ReleaseOf(P, DIGEST), ReleaseOf(Q, DIGEST))
UNSEEN = None


def release(name: str, state: ReleaseState, missing: int = 0) -> ReleaseReadiness:
    files = tuple(MissingArtifact(f"f{n}.py", Role.CODE, 1, "0" * 64) for n in range(missing))
    return ReleaseReadiness(ref=ReleaseRef(name, DIGEST), state=state, missing=files, reason="because")


def readiness(state: ReleaseState | None, missing: int = 0) -> Readiness:
    """Pipeline q is complete. p has the given state; None: not examined."""
    found = [release("q", ReleaseState.READY)]
    if state is not None:
        found.append(release("p", state, missing))
    return Readiness(releases={item.ref: item for item in found})


def test_the_reason_names_state_cause_and_the_first_files() -> None:
    found = assess(REQUIRED, readiness(ReleaseState.ABSENT, missing=5))

    assert found.lacks == {P: "absent: because; missing: f0.py, f1.py, f2.py and 2 more"}
    assert found.reasons == (f"p: {found.lacks[P]}",)
    assert [(file.pipeline, file.path) for file in found.missing] == [(P, f"f{n}.py") for n in range(5)]
    assert assess(REQUIRED, readiness(UNSEEN)).lacks == {P: "syncing: its release was not checked yet"}
    assert assess(REQUIRED, readiness(ReleaseState.READY)) == Assessment(reasons=())


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
    found = assess(REQUIRED, readiness(state))

    assert set(found.hopeless) == expected
    assert found.is_hopeless == bool(expected)


def test_waiting_helps_while_one_of_several_releases_may_come() -> None:
    states = {"p": ReleaseState.ABSENT, "q": ReleaseState.SYNCING}
    found = [release(name, state) for name, state in states.items()]

    assert not assess(REQUIRED, Readiness(releases={one.ref: one for one in found})).is_hopeless
