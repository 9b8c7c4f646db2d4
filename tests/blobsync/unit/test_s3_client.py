"""Clients of boto3, tested without a server."""

from __future__ import annotations

import pytest
from botocore.loaders import JSONFileLoader

from blobsync import S3Config
from blobsync.errors import BlobSyncConfigError
from blobsync.s3.client import S3Clients, load_models

CONFIG = S3Config(endpoint_url="http://127.0.0.1:1", bucket="b", access_key_id="a", secret_access_key="s")


def test_client_reads_no_model_when_the_models_were_loaded_before(monkeypatch: pytest.MonkeyPatch) -> None:
    load_models()
    read: list[str] = []
    monkeypatch.setattr(JSONFileLoader, "load_file", lambda _self, path: read.append(path))

    S3Clients(CONFIG).close()

    assert read == []


def test_profile_that_is_missing_is_an_error_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody-has-this-one")

    with pytest.raises(BlobSyncConfigError, match="nobody-has-this-one"):
        S3Clients(CONFIG)
