"""A simple boto3 program with 32 threads: `python boto3_peer.py BUCKET PREFIX FOLDER`.

It fetches small objects with `get_object` and large ones in ranges of 16 MiB, so that all threads have work.
It verifies nothing and flushes nothing.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

_THREADS = 32
_RANGE_BYTES = 16 << 20


def main(bucket: str, prefix: str, folder: str) -> int:
    config = Config(
        s3={"addressing_style": "path"},
        max_pool_connections=_THREADS,
        response_checksum_validation="when_required",
    )
    client: Any = boto3.client("s3", endpoint_url=os.environ["BENCH_ENDPOINT"], config=config)
    target = Path(folder)
    with ThreadPoolExecutor(_THREADS) as pool:
        jobs = []
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for item in page.get("Contents", []):
                path = target / item["Key"].removeprefix(prefix)
                path.parent.mkdir(parents=True, exist_ok=True)
                if item["Size"] <= _RANGE_BYTES:
                    jobs.append(pool.submit(_small, client, bucket, item["Key"], path))
                    continue
                path.touch()
                starts = range(0, item["Size"], _RANGE_BYTES)
                jobs += [pool.submit(_part, client, bucket, item["Key"], path, start) for start in starts]
        for job in jobs:
            job.result()
    return 0


def _small(client: Any, bucket: str, key: str, path: Path) -> None:
    path.write_bytes(client.get_object(Bucket=bucket, Key=key)["Body"].read())


def _part(client: Any, bucket: str, key: str, path: Path, start: int) -> None:
    wanted = f"bytes={start}-{start + _RANGE_BYTES - 1}"
    body = client.get_object(Bucket=bucket, Key=key, Range=wanted)["Body"]
    with path.open("r+b", buffering=0) as file:
        file.seek(start)
        for chunk in body.iter_chunks(1 << 20):
            file.write(chunk)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
