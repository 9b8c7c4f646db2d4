"""The guard reads the catalog itself, and judges the releases of its own scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from blobsync import Readiness, ReleaseReadiness, ReleaseRef, ReleaseState
from leader import Verdict
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipelines.catalog import PipelineState
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.ports import StoreUnavailableError
from nimbus.scheduler.readiness import ReadinessGuard
from tests.nimbus.definitions import active
from tests.nimbus.dict_cluster import DictCluster

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DIGEST = ReleaseDigest("a" * 64)
SPEC = PipelineSpec(name=PipelineName("p"))
RECORD = active(SPEC, published=DIGEST, release=DIGEST, updated_at=NOW)


class Bench:
    def __init__(self, *, strict: bool = False) -> None:
        self.cluster = DictCluster()
        self.cluster.put(RECORD, replace(RECORD, name=PipelineName("q")))
        self.state: ReleaseState | None = ReleaseState.READY
        self.lacking: list[Mapping[PipelineName, str]] = []
        self.guard = ReadinessGuard(
            reader=self.cluster.reader(),
            readiness=self.readiness,
            strict=strict,
            on_lacking=self.lacking.append,
        )

    def readiness(self) -> Readiness:
        """Pipeline q is complete. p has the given state; None: not examined."""
        found = {"q": ReleaseState.READY} | ({} if self.state is None else {"p": self.state})
        releases = (
            ReleaseReadiness(ref=ReleaseRef(name, DIGEST), state=state) for name, state in found.items()
        )
        return Readiness(releases={release.ref: release for release in releases})


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("strict", [True, False])
def test_who_has_everything_is_ready_and_what_an_earlier_term_quarantined_is_over(strict: bool) -> None:
    bench = Bench(strict=strict)

    assert bench.guard() == Verdict(True)
    assert bench.lacking == [{}]


@pytest.mark.parametrize(
    ("state", "strict", "ready"),
    [
        (ReleaseState.ABSENT, True, False),
        (ReleaseState.ABSENT, False, True),
        (ReleaseState.CORRUPT, True, False),
        (ReleaseState.CORRUPT, False, True),
        (ReleaseState.SYNCING, True, False),
        (ReleaseState.SYNCING, False, False),
        (ReleaseState.UNAVAILABLE, True, False),
        (ReleaseState.UNAVAILABLE, False, False),
        (None, True, False),
        (None, False, False),
    ],
)
def test_who_lacks_something_is_ready_only_if_nobody_can_have_it_and_then_degraded(
    state: ReleaseState | None, strict: bool, ready: bool
) -> None:
    bench = Bench(strict=strict)
    bench.state = state

    verdict = bench.guard()

    assert (verdict.ready, verdict.degraded) == (ready, ready)
    assert len(verdict.reasons) == 1
    assert verdict.reasons[0].startswith("p: ")


def test_what_is_missing_is_told_whatever_the_verdict_since_the_election_may_overrule_it(
    bench: Bench,
) -> None:
    bench.state = ReleaseState.SYNCING

    verdict = bench.guard()

    assert verdict == Verdict(False, ("p: syncing: not complete on this disk",))
    assert bench.lacking == [{"p": "syncing: not complete on this disk"}]


def test_what_was_taken_out_of_the_catalog_is_no_lack(bench: Bench) -> None:
    bench.state = ReleaseState.ABSENT
    bench.cluster.put(replace(RECORD, state=PipelineState.INACTIVE, release=None))

    assert bench.guard() == Verdict(True)


def test_a_guard_that_cannot_read_raises_which_the_election_takes_for_no(bench: Bench) -> None:
    bench.cluster.available = False

    with pytest.raises(StoreUnavailableError):
        bench.guard()
    assert bench.lacking == []
