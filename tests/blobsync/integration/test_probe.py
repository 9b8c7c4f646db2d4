"""The probe reports the capabilities of two real servers, and leaves no objects."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any

import pytest

from blobsync import BucketMissingError, BucketUnavailableError, S3Config, S3ObjectStore, Secret
from blobsync.probe import Capability, ProbeFinding, ProbeReport, probe
from blobsync.s3.client import S3Clients
from nimbus.localstack.ports import free_port
from nimbus.localstack.s3 import S3Server
from tests.s3_proxy.faults import Fail, IgnoreRange, ProxiedRequest, StaleListing
from tests.s3_proxy.proxy import FaultProxy

CONDITIONS = {Capability.PUT_IF_ABSENT, Capability.PUT_IF_MATCH, Capability.PUT_IF_MATCH_MISSING}


@pytest.fixture
def rclone(s3_config: S3Config) -> S3Config:
    return replace(s3_config, prefix="a/prefix", max_attempts=1)


@pytest.fixture
def moto(moto_endpoint: str) -> S3Config:
    return S3Config(
        endpoint_url=moto_endpoint,
        bucket=f"b-{uuid.uuid4().hex}",
        access_key_id="any",
        secret_access_key=Secret("thing"),
    )


def lacks(report: ProbeReport) -> set[Capability]:
    return {found.capability for found in report.findings if not found.holds}


@pytest.mark.parametrize(
    ("server", "lacking"),
    [("rclone", CONDITIONS), ("moto", {Capability.MD5_VERIFIED})],
)
def test_probe_finds_what_a_server_lacks_and_cleans_up(
    request: pytest.FixtureRequest, server: str, lacking: set[Capability]
) -> None:
    config = request.getfixturevalue(server)
    store = S3ObjectStore(config)
    store.ensure_bucket()
    store.write("mine", b"1")

    report = probe(config)

    assert lacks(report) == lacking
    assert Capability.ENCRYPTION not in {found.capability for found in report.findings}  # none was asked for
    assert report.usable
    assert report.left_behind == ()
    assert [info.key for info in store.list("")] == ["mine"]
    assert list(store.unfinished_uploads("")) == []
    store.close()


@pytest.mark.parametrize("options", [{"encryption": "AES256"}, {"encryption": "aws:kms", "kms_key_id": "k1"}])
def test_probe_tells_whether_objects_are_encrypted_as_asked_for(
    moto: S3Config, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    S3ObjectStore(moto).ensure_bucket()
    has = probe(replace(moto, **options))
    monkeypatch.setattr(S3Clients, "_encrypt", lambda *_, **__: None)  # as a server that ignores the header
    without = probe(replace(moto, **options))

    assert not without.usable
    assert Capability.ENCRYPTION in lacks(without)
    assert has.has(Capability.ENCRYPTION)


def test_report_is_for_people_and_for_machines(rclone: S3Config) -> None:
    report = probe(replace(rclone, encryption="AES256"))

    words, data = "\n".join(report.lines()), json.loads(json.dumps(report.as_data()))

    assert rclone.bucket in words
    assert "NO  refuses a write with If-None-Match" in words
    assert len(data["findings"]) == len(Capability)
    assert data["usable"] is True
    assert {each["capability"]: each["holds"] for each in data["findings"]}["put_if_absent"] is False


def test_server_with_stale_listings_or_without_ranges_is_found_out(
    s3_server: S3Server, rclone: S3Config
) -> None:
    def rule(request: ProxiedRequest) -> IgnoreRange | Fail | StaleListing | None:
        if request.start is not None:
            return IgnoreRange()
        if request.lists and "start-after" in request.query:
            return Fail(501, "NotImplemented")
        return None

    with FaultProxy(
        s3_server.endpoint_url, rule, access_key=s3_server.access_key, secret_key=s3_server.secret_key
    ) as proxy:
        report = probe(replace(rclone, endpoint_url=proxy.endpoint_url))

    assert {Capability.RANGES, Capability.LIST_PAGING} <= lacks(report)
    assert not report.usable
    assert "lacks what blobsync needs" in "\n".join(report.lines())


def test_store_that_does_not_answer_is_an_error_and_no_report(rclone: S3Config) -> None:
    with pytest.raises(BucketUnavailableError):
        probe(replace(rclone, endpoint_url=f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(BucketMissingError):
        probe(replace(rclone, bucket="nobody-made-this"))


def test_what_could_not_be_found_out_is_not_taken_for_granted() -> None:
    report = ProbeReport("here", "", (ProbeFinding(Capability.LIST_ORDER, None, "503 SlowDown"),), ("left",))

    assert not report.usable
    assert "?" in "\n".join(report.lines())
    assert "left" in "\n".join(report.lines())
