"""Data from outside in a bucket, compared with their digest over HTTP, with a worker's own connection."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from nimbus.bootstrap.resources import open_bucket
from nimbus.config import load_settings
from nimbus.domain.data.publications import OutsideData
from nimbus.worker.data.outside import OutsideRefusedError, verify

if TYPE_CHECKING:
    from nimbus.localstack.s3 import S3Server


def test_object_is_compared_with_the_keys_of_the_worker(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str
) -> None:
    keys = {"access_key_id": s3_server.access_key, "secret_access_key": s3_server.secret_key}
    document = {
        "leadership": {"elector": "single"},
        "scheduler": {"state_dir": str(tmp_path / "state")},
        "worker": {"data": f"s3://{s3_bucket}/data"},
        "storage": {"endpoint_url": s3_server.endpoint_url, "bucket": s3_bucket, **keys},
    }
    (file := tmp_path / "nimbus.yaml").write_text(yaml.safe_dump(document))
    opened = partial(open_bucket, load_settings(file, {}))
    data = bytes(3_000_000)
    store = opened(s3_bucket)
    store.write("in/day 1.csv", data)
    store.close()

    def check(uri: str, digest: str = hashlib.sha256(data).hexdigest()) -> None:
        verify(OutsideData(uri=uri, sha256=digest), opened, timedelta(minutes=1))

    check(f"s3://{s3_bucket}/in/day 1.csv")
    for uri, digest, why in (
        (f"s3://{s3_bucket}/in/day 1.csv", "0" * 64, "has another digest"),
        (f"s3://{s3_bucket}/in/day 2.csv", "0" * 64, "does not exist"),
        ("s3://no-such-bucket/x", "0" * 64, "no-such-bucket"),
    ):
        with pytest.raises(OutsideRefusedError, match=why):
            check(uri, digest)
