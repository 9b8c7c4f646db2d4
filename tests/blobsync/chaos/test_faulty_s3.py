"""Publishing and syncing through a proxy that injects all its faults.

NIMBUS_BLOB_SEED: the seed that a run printed, to repeat its faults. NIMBUS_BLOB_FAULT_RUNS: minimum number of
injections of each fault.
"""

from __future__ import annotations

import hashlib
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import (
    BucketAccessDeniedError,
    LocalStore,
    ReleaseRef,
    ReleaseState,
    RetryPolicy,
    S3Config,
    S3ObjectStore,
    Syncer,
    collect,
    publish,
)
from blobsync.bucket import keys
from nimbus.localstack.s3 import S3Server
from tests.blobsync.chaos.truth import VERSIONS, audit, files_of, write_versions
from tests.blobsync.local_store_samples import contents
from tests.report import number_from, say, spread
from tests.s3_proxy.faults import (
    USUAL_FAULTS,
    Fault,
    InterimAnswers,
    NoHttp,
    ProxiedRequest,
    SlowBody,
    Stall,
    Trickle,
    WrongBytes,
)
from tests.s3_proxy.proxy import FaultProxy

SEED = number_from("NIMBUS_BLOB_SEED", secrets.randbelow(1_000_000))
RUNS = number_from("NIMBUS_BLOB_FAULT_RUNS", 1)
RETRY = RetryPolicy(
    first_wait=timedelta(milliseconds=20),
    max_wait=timedelta(milliseconds=200),
    deadline=timedelta(seconds=30),
)
NAME, RATE = "p", 0.4
BOUND_S = 120.0
HEAVY: list[Fault] = [Stall(10), Stall(100_000), SlowBody(1000), NoHttp(), InterimAnswers(), Trickle()]
"""Faults that cost a timeout each."""
ALL_FAULTS = [*USUAL_FAULTS, *HEAVY]
Eventually = Callable[..., None]


class Site:
    """A bucket behind a proxy."""

    def __init__(self, server: S3Server, config: S3Config, folder: Path, stack: ExitStack) -> None:
        self._config, self._stack = config, stack
        self.folder = folder
        self.proxy = stack.enter_context(
            FaultProxy(server.endpoint_url, access_key=server.access_key, secret_key=server.secret_key)
        )
        self.direct = self.connected(server.endpoint_url)
        self.broken = self.connected(self.proxy.endpoint_url)
        write_versions(folder / "src")

    def connected(self, endpoint: str) -> S3ObjectStore:
        store = S3ObjectStore(
            replace(
                self._config,
                endpoint_url=endpoint,
                read_timeout=timedelta(milliseconds=500),
                max_attempts=2,
            )
        )
        self._stack.callback(store.close)
        return store

    def publish(self, store: S3ObjectStore, version: int) -> ReleaseRef:
        files = collect(self.folder / "src" / str(version), include=["**"])
        made = publish(store, name=NAME, files=files, retry=RETRY, scratch=self.folder)
        return ReleaseRef(NAME, made.digest)

    @contextmanager
    def syncing(self, root: Path) -> Iterator[Syncer]:
        """A host that reaches the bucket only through the proxy."""
        with LocalStore(root) as local:
            syncer = Syncer(self.broken, local, retry=RETRY)
            syncer.start()
            try:
                yield syncer
            finally:
                syncer.close(timedelta(seconds=30))


@pytest.fixture
def site(s3_server: S3Server, s3_config: S3Config, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(s3_server, s3_config, tmp_path, stack)


class Deck:
    """A rule: a share of the requests gets faults, and each fault comes once before any comes again."""

    def __init__(self, seed: int, faults: Sequence[Fault] = ALL_FAULTS) -> None:
        self._dice, self._left, self.dealt = random.Random(seed), list[Fault](), 0
        self._faults = faults

    def __call__(self, _request: ProxiedRequest) -> Fault | None:
        if self._dice.random() >= RATE:
            return None
        if not self._left:
            self._left = self._dice.sample(self._faults, len(self._faults))
        self.dealt += 1
        return self._left.pop()


class WithPoison:
    """A rule: one object is always served with a fault; a share of all other requests gets faults."""

    def __init__(self, poisoned: str, others: Deck) -> None:
        self.poisoned, self._others = poisoned, others

    def __call__(self, request: ProxiedRequest) -> Fault | None:
        if request.gets and request.key == self.poisoned:
            return WrongBytes(100)
        return self._others(request)


@pytest.mark.chaos
@pytest.mark.timeout(600 * RUNS)
def test_every_fault_at_a_rate_lets_nothing_wrong_in_and_holds_up_only_what_is_poisoned(
    site: Site, eventually: Eventually, capsys: pytest.CaptureFixture[str]
) -> None:
    say(capsys, [f"faulty S3: NIMBUS_BLOB_SEED={SEED}"])
    published = {site.publish(site.direct, version): files_of(version) for version in range(VERSIONS)}
    deck, took_s = Deck(SEED), list[float]()
    while deck.dealt < RUNS * len(ALL_FAULTS):  # until each fault has come often enough
        began_s = time.monotonic()
        _bring_up_a_host(site, published, deck, eventually, site.folder / str(len(took_s)))
        took_s.append(time.monotonic() - began_s)
        assert took_s[-1] < BOUND_S
    _say_faults(
        capsys, site.proxy.faults, f"hosts were complete after {spread(took_s)} s (least/median/most)"
    )


def _bring_up_a_host(
    site: Site,
    published: Mapping[ReleaseRef, Mapping[str, bytes]],
    deck: Deck,
    eventually: Eventually,
    root: Path,
) -> None:
    """Sync everything to a new store. One file is always wrong until all other files are on this host."""
    truth = {ref.digest: files for ref, files in published.items()}
    with_alone = next(ref for ref, files in published.items() if "alone" in files)
    others = set(published) - {with_alone}
    poisoned = hashlib.sha256(published[with_alone]["alone"]).hexdigest()
    site.proxy.rule = WithPoison(keys.blob(poisoned), deck)
    with site.syncing(root) as syncer:
        syncer.want(list(published))
        eventually(lambda: all(map(syncer.readiness().is_ready, others)), BOUND_S, "all other files are here")
        eventually(
            lambda: syncer.readiness().releases[with_alone].state is ReleaseState.CORRUPT,
            BOUND_S,
            "the wrong file is reported",
        )
        told = syncer.readiness().releases[with_alone]
        assert "alone" in [item.path for item in told.missing]
        assert poisoned in told.reason
        for ref in others:
            assert contents(syncer.ensure(ref, timedelta(seconds=60))) == published[ref]
        assert audit(root, truth) == []

        site.proxy.rule = deck
        eventually(lambda: syncer.readiness().is_ready(with_alone), BOUND_S, "the wrong file is repaired")
        assert contents(syncer.ensure(with_alone, timedelta(seconds=60))) == published[with_alone]
        assert syncer.readiness().quarantined_count == 0
    assert audit(root, truth) == []


def _say_faults(capsys: pytest.CaptureFixture[str], faults: Counter[str], more: str) -> None:
    say(capsys, [f"faulty S3: {faults.total()} faults, {dict(sorted(faults.items()))}; {more}"])


@pytest.mark.chaos
@pytest.mark.timeout(240)
def test_publishing_through_faults_makes_whole_releases_or_says_why_not(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    say(capsys, [f"faulty S3: NIMBUS_BLOB_SEED={SEED}"])
    site.proxy.rule = Deck(SEED)
    versions, refused, made = random.Random(SEED).sample(range(VERSIONS - 1), 4), 0, {}
    began_s = time.monotonic()
    for version in versions:
        try:
            ref = site.publish(site.broken, version)
        except BucketAccessDeniedError as exc:  # not retried: invalid keys stay invalid
            refused += 1
            assert str(exc).startswith("s3://")
            assert site.proxy.endpoint_url in str(exc)
            assert "ExpiredToken" in str(exc) or "403" in str(exc)  # no error text without a body
            assert "Check" in str(exc)
            continue
        made[ref.digest] = files_of(version)
    took_s = time.monotonic() - began_s

    with LocalStore(site.folder / "store") as local:
        syncer = Syncer(site.direct, local, retry=RETRY)
        try:
            for digest, files in made.items():
                assert contents(syncer.ensure(ReleaseRef(NAME, digest), timedelta(seconds=60))) == files
        finally:
            syncer.close(timedelta(seconds=30))
    assert audit(site.folder / "store", made) == []
    _say_faults(
        capsys,
        site.proxy.faults,
        f"{len(made)} of {len(versions)} published in {took_s:.1f} s, {refused} refused",
    )
