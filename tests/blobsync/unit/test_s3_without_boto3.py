"""Endpoint, keys and proxy that are found without boto3 are those that boto3 would use."""

from __future__ import annotations

import subprocess
import sys
from typing import Any
from urllib.parse import urlsplit

import pytest

from blobsync.errors import BlobSyncConfigError
from blobsync.s3.client import S3Clients
from blobsync.s3.config import S3Config, Secret
from blobsync.s3.endpoint import Proxy, host_header, proxy_for
from blobsync.s3.messages import static_credentials
from blobsync.s3.reader import base_url_without_boto3, reader_without_boto3

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

    ours = base_url_without_boto3(config(**settings))

    assert ours is not None
    ours_url, theirs_url = urlsplit(ours), urlsplit(clients.base_url())
    assert (host_header(ours_url), ours_url.path) == (host_header(theirs_url), theirs_url.path)
    clients.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"endpoint_url": None},
        {"addressing_style": "virtual"},
        {"endpoint_url": "http://10.0.0.1:9000/below"},
        {"endpoint_url": "https://10.0.0.1"},
        {"bucket": "lambda-alias--ol-s3"},
        {"bucket": "arn:aws:s3:us-west-2:1:accesspoint:mine"},
    ],
)
def test_what_only_boto3_knows_is_left_to_it(settings: dict[str, Any]) -> None:
    assert reader_without_boto3(config(**settings), KEYS) is None


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
    assert reader_without_boto3(config(), environ) is None


@pytest.mark.parametrize(
    ("told", "proxy"),
    [
        ("http://10.0.0.2:3128", Proxy("10.0.0.2", 3128, "")),
        ("10.0.0.2", Proxy("10.0.0.2", 80, "")),
        (
            "http://user:p%40ss@proxy.example:3128/",
            Proxy("proxy.example", 3128, "Proxy-Authorization: Basic dXNlcjpwQHNz\r\n"),
        ),
    ],
)
def test_proxy_is_that_of_the_environment(told: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    assert proxy_for("http", "10.0.0.1:9000") is None

    monkeypatch.setenv("http_proxy", told)
    assert proxy_for("http", "10.0.0.1:9000") == proxy
    assert proxy_for("https", "10.0.0.1") is None

    monkeypatch.setenv("no_proxy", "localhost,10.0.0.1")
    assert proxy_for("http", "10.0.0.1:9000") is None


@pytest.mark.parametrize(
    "told", ["socks5://10.0.0.2:1080", "https://10.0.0.2:3128", "http://", "http://h:x", "http://[::1"]
)
def test_proxy_of_another_kind_is_refused(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", told)

    with pytest.raises(BlobSyncConfigError, match="https_proxy"):
        proxy_for("https", "10.0.0.1")


def test_authorities_that_cannot_be_read_are_a_fault_of_the_settings() -> None:
    with pytest.raises(BlobSyncConfigError, match="ca_bundle"):
        reader_without_boto3(config(endpoint_url="https://10.0.0.1", ca_bundle="/nowhere/ca.pem"), KEYS)


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


def test_bucket_whose_listings_have_no_order_is_refused() -> None:
    with pytest.raises(BlobSyncConfigError, match="general purpose bucket"):
        config(bucket="express--usw2-az1--x-s3")
