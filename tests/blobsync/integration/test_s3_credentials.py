"""Credentials come from the usual chain, are renewed, and are never shown."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from blobsync import (
    BlobSyncError,
    BucketAccessDeniedError,
    BucketUnavailableError,
    S3Config,
    S3ObjectStore,
    Secret,
)
from nimbus.localstack.s3 import S3Server


@pytest.fixture(autouse=True)
def _no_chain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_environment_is_used_when_nothing_is_configured(
    s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    store = S3ObjectStore(S3Config(endpoint_url=s3_server.endpoint_url, bucket=s3_bucket))

    store.write("k", b"1")

    assert b"".join(store.read("k")) == b"1"
    store.close()


def test_no_credentials_at_all_are_told_as_denied(s3_server: S3Server, s3_bucket: str) -> None:
    store = S3ObjectStore(S3Config(endpoint_url=s3_server.endpoint_url, bucket=s3_bucket))

    for call in (lambda: b"".join(store.read("k")), lambda: store.write("k", b"1")):
        with pytest.raises(BucketAccessDeniedError, match="credentials"):
            call()
    store.close()


def test_credentials_that_cannot_be_fetched_now_are_worth_a_retry(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    given = tmp_path / "given.json"
    (tmp_path / "config").write_text(f"[default]\ncredential_process = cat {given}\n")
    store = S3ObjectStore(S3Config(endpoint_url=s3_server.endpoint_url, bucket=s3_bucket))

    for call in (store.check, lambda: store.write("k", b"1")):
        with pytest.raises(BucketUnavailableError, match="credentials cannot be fetched"):
            call()

    keys = {"AccessKeyId": s3_server.access_key, "SecretAccessKey": s3_server.secret_key}
    given.write_text(json.dumps({"Version": 1, **keys}))
    store.write("k", b"1")
    store.close()


def test_credentials_that_expire_are_renewed_by_the_same_store(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    given = tmp_path / "given.json"

    def give(secret: str) -> None:
        given.write_text(
            json.dumps(
                {
                    "Version": 1,
                    "AccessKeyId": s3_server.access_key,
                    "SecretAccessKey": secret,
                    # They expire so soon that each request asks for new ones.
                    "Expiration": (datetime.now(UTC) + timedelta(minutes=1)).isoformat(),
                }
            )
        )

    (tmp_path / "config").write_text(f"[default]\ncredential_process = cat {given}\n")
    give(s3_server.secret_key)
    store = S3ObjectStore(S3Config(endpoint_url=s3_server.endpoint_url, bucket=s3_bucket))
    store.write("k", b"1")
    assert b"".join(store.read("k")) == b"1"

    give("an-older-secret")
    with pytest.raises(BucketAccessDeniedError):
        b"".join(store.read("k"))

    give(s3_server.secret_key)
    assert b"".join(store.read("k")) == b"1"
    store.close()


def test_secret_is_in_no_log_no_error_and_no_representation(
    s3_server: S3Server, s3_bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "a-secret-that-must-not-be-told"
    config = S3Config(
        endpoint_url=s3_server.endpoint_url,
        bucket=s3_bucket,
        access_key_id=s3_server.access_key,
        secret_access_key=Secret(secret),
    )
    words = [repr(config), str(config)]
    with (
        caplog.at_level(logging.DEBUG),
        caplog.at_level(logging.DEBUG, "botocore"),  # an earlier test may have changed the level
        capture_logs() as events,
    ):
        store = S3ObjectStore(config)
        words.append(repr(store))
        for call in (
            lambda: b"".join(store.read("k")),
            lambda: store.write("k", b"1"),
            lambda: list(store.list("")),
            lambda: store.delete_many(["k"]),
            lambda: store.size("k"),
            store.check,
        ):
            with pytest.raises(BlobSyncError) as refused:
                call()
            words += [str(refused.value), repr(refused.value), repr(refused.value.__cause__)]
        store.close()

    assert caplog.text, "the client logs at this level; otherwise this test proves nothing"
    assert secret not in "".join(words) + caplog.text + repr(events)
