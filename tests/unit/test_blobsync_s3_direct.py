"""What is known without boto3 is what boto3 would have said."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from blobsync.errors import BlobSyncConfigError
from blobsync.storage.s3_client import S3Clients
from blobsync.storage.s3_config import S3Config
from blobsync.storage.s3_direct import direct_getter, static_credentials
from blobsync.storage.secret import Secret

KEYS = {"AWS_ACCESS_KEY_ID": "from-the-environment", "AWS_SECRET_ACCESS_KEY": "a-secret"}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


def config(**more: Any) -> S3Config:
    settings: dict[str, Any] = {"endpoint_url": "http://10.0.0.1:9000", "bucket": "my-bucket"}
    return S3Config(**{**settings, **more})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"endpoint_url": "http://10.0.0.1"},
        {"endpoint_url": "http://10.0.0.1:80"},
        {"endpoint_url": "http://storage.example:9000/", "addressing_style": "path"},
        {"endpoint_url": "http://storage.example:9000", "bucket": "with.dots"},
    ],
)
def test_requests_go_where_boto3_would_send_them(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    clients = S3Clients(config(**settings))

    ours, theirs = direct_getter(config(**settings)), clients.getter()

    assert ours is not None
    assert theirs is not None
    assert ours.place == theirs.place
    assert urlsplit(clients.presigned("get_object", "k", timedelta(hours=1))).path == f"{ours.place.path}k"
    clients.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"endpoint_url": None},
        {"addressing_style": "virtual"},
        {"endpoint_url": "http://10.0.0.1:9000/below"},
        {"endpoint_url": "https://10.0.0.1"},
        {"bucket": "express--usw2-az1--x-s3"},
        {"bucket": "arn:aws:s3:us-west-2:1:accesspoint:mine"},
    ],
)
def test_what_only_boto3_knows_is_left_to_it(settings: dict[str, Any]) -> None:
    assert direct_getter(config(**settings), KEYS) is None


def test_keys_are_those_that_boto3_would_find_first() -> None:
    own = config(access_key_id="configured", secret_access_key=Secret("s"))

    assert static_credentials(own, KEYS | {"AWS_SESSION_TOKEN": "t"}) is not None
    found = static_credentials(own, KEYS | {"AWS_SESSION_TOKEN": "t"})
    assert (found.access_key, found.token) == ("configured", None)  # type: ignore[union-attr]
    found = static_credentials(config(), KEYS | {"AWS_SESSION_TOKEN": "t"})
    assert (found.access_key, found.token) == ("from-the-environment", "t")  # type: ignore[union-attr]
    assert "a-secret" not in repr(found)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"AWS_ACCESS_KEY_ID": "half"},
        {**KEYS, "AWS_SECRET_ACCESS_KEY": ""},
        {**KEYS, "AWS_CREDENTIAL_EXPIRATION": "2030-01-01T00:00:00Z"},
    ],
)
def test_keys_that_are_not_there_or_expire_are_left_to_boto3(environ: dict[str, str]) -> None:
    assert static_credentials(config(), environ) is None
    assert direct_getter(config(), environ) is None


def test_reading_goes_through_boto3_where_a_proxy_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert direct_getter(config(), KEYS) is not None

    monkeypatch.setenv("http_proxy", "http://10.0.0.2:3128")

    assert direct_getter(config(), KEYS) is None


def test_authorities_that_cannot_be_read_are_a_fault_of_the_settings() -> None:
    with pytest.raises(BlobSyncConfigError, match="ca_bundle"):
        direct_getter(config(endpoint_url="https://10.0.0.1", ca_bundle="/nowhere/ca.pem"), KEYS)


@pytest.mark.parametrize("region", ["", "a b", "-a", "a-", "123", "a" * 64, "a/b"])
def test_region_that_none_can_have_is_refused(region: str) -> None:
    with pytest.raises(BlobSyncConfigError, match="region"):
        config(region=region)


def test_store_is_made_without_boto3() -> None:
    script = (
        "import sys; from blobsync import S3Config, S3ObjectStore\n"
        "S3ObjectStore(S3Config(endpoint_url='http://127.0.0.1:9', bucket='my-bucket')).close()\n"
        "sys.exit('boto3' in sys.modules or 'botocore' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
