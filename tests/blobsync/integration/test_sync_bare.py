"""A process that only syncs does not import boto3, on a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from blobsync import S3ObjectStore, collect, publish
from nimbus.localstack.s3 import S3Server

SCRIPT = """
import sys
from datetime import timedelta
from pathlib import Path
from blobsync import LocalStore, ReleaseRef, RetryPolicy, S3Config, S3ObjectStore, Syncer

endpoint, bucket, root, digest = sys.argv[1:]
store = S3ObjectStore(S3Config(endpoint_url=endpoint, bucket=bucket))
store.check()
with LocalStore(Path(root)) as local:
    syncer = Syncer(store, local, retry=RetryPolicy())
    tree = syncer.ensure(ReleaseRef("p", digest), timedelta(seconds=50))
    print((tree / "sub" / "a.txt").read_text(), (tree / "large").stat().st_size)
    syncer.close(timedelta(seconds=5))
store.close()
print(sorted({name.partition(".")[0] for name in sys.modules} & {"boto3", "botocore", "urllib3"}))
"""


def test_sync_with_keys_of_the_environment_does_without_boto3(
    s3_server: S3Server, s3_bucket: str, store: S3ObjectStore, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a.txt").write_text("hello")
    (source / "large").write_bytes(bytes(5 << 20))
    keys = {"AWS_ACCESS_KEY_ID": s3_server.access_key, "AWS_SECRET_ACCESS_KEY": s3_server.secret_key}
    made = publish(store, name="p", files=collect(source, include=["**/*"]))

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, s3_server.endpoint_url, s3_bucket, str(tmp_path / "l"), made.digest],
        env={**os.environ, **keys},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    assert done.stdout.splitlines() == [f"hello {5 << 20}", "[]"], done.stderr
