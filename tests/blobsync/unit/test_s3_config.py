"""Settings of a bucket: invalid ones are refused, the others have their effect."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from blobsync import BlobSyncConfigError, S3Config, Secret
from blobsync.s3.client import S3Clients
from blobsync.s3.config import MAX_PARTS
from blobsync.s3.upload import part_bytes_for

MIB = 1 << 20


def config(**more: Any) -> S3Config:
    settings: dict[str, Any] = {
        "endpoint_url": None,
        "bucket": "my-bucket",
        "access_key_id": "a",
        "secret_access_key": Secret("s"),
    }
    return S3Config(**(settings | more))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("addressing_style", "sideways"),
        ("max_attempts", 0),
        ("max_connections", 0),
        ("slowest_bytes_per_s", 0),
        ("part_bytes", MIB),
        ("multipart_bytes", 6 << 30),
        ("endpoint_url", "ftp://host"),
        ("endpoint_url", "http://host:99999"),
        ("endpoint_url", "http://host:port"),
        ("endpoint_url", "http://[::1"),
        ("endpoint_url", "http://user:word@host"),
        ("bucket", "a/b"),
        ("prefix", "../up"),
    ],
)
def test_setting_that_cannot_work_is_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(BlobSyncConfigError, match=setting.partition("_")[0]):
        config(**{setting: value})


@pytest.mark.parametrize("endpoint", ["http://me:word@host", "ftp://me:word@host", "me:word@host:9000"])
def test_credentials_in_an_endpoint_are_refused_and_not_repeated(endpoint: str) -> None:
    with pytest.raises(BlobSyncConfigError, match="must not hold credentials") as refused:
        config(endpoint_url=endpoint)

    assert "word" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "host", "path"),
    [
        ({"endpoint_url": "http://10.0.0.1:9000"}, "10.0.0.1:9000", "/my-bucket/"),
        (
            {"endpoint_url": "https://s3.corp:9000", "addressing_style": "virtual"},
            "my-bucket.s3.corp:9000",
            "/",
        ),
        ({"region": "eu-central-1"}, "my-bucket.s3.eu-central-1.amazonaws.com", "/"),
        (
            {"region": "eu-central-1", "bucket": "with.dots"},  # no certificate is valid for such a host name
            "s3.eu-central-1.amazonaws.com",
            "/with.dots/",
        ),
        (
            {"region": "eu-central-1", "addressing_style": "path"},
            "s3.eu-central-1.amazonaws.com",
            "/my-bucket/",
        ),
    ],
)
def test_bucket_stands_where_the_addressing_style_wants_it(
    settings: dict[str, Any], host: str, path: str
) -> None:
    clients = S3Clients(config(**settings))

    url = urlsplit(clients.presigned("get_object", "k", timedelta(hours=1)))

    assert (url.netloc, url.path) == (host, f"{path}k")
    clients.client.close()


def test_missing_ca_bundle_is_a_fault_of_the_settings() -> None:
    clients = S3Clients(config(endpoint_url="https://10.0.0.1", ca_bundle="/nowhere/ca.pem"))

    with pytest.raises(BlobSyncConfigError, match="ca_bundle"):
        clients.reader()
    clients.client.close()


@pytest.mark.parametrize("size", [1, 160_000 * MIB, 160_000 * MIB + 1, 5_000_000 * MIB])
def test_parts_are_as_large_as_their_limit_demands(size: int) -> None:
    part = part_bytes_for(size, 16 * MIB)

    assert part >= 16 * MIB
    assert -(-size // part) <= MAX_PARTS
    assert part == 16 * MIB or (part - MIB) * MAX_PARTS < size
