"""Several processes share a store: one fetches an object, and all can use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from blobsync.local.store import LocalStore
from tests.blobsync.local_store_samples import Sample, contents, sample

ROOT = Path(__file__).parents[3]

RACER = """
import os, sys, time
from pathlib import Path
from blobsync.local.store import LocalStore
from tests.blobsync.integration.test_local_processes import release
from tests.blobsync.local_store_samples import write
wanted, until = release(), time.monotonic() + 120
with LocalStore(Path(sys.argv[1])) as local:
    print("ready", flush=True)
    sys.stdin.readline()
    while (lacking := local.missing(wanted.known)) and time.monotonic() < until:
        for item in lacking.objects:
            incoming = local.receive(item)
            if incoming is None:
                continue
            with incoming:
                for start, size in incoming.missing():
                    write(incoming.fd, start, wanted.objects[item][start : start + size])
                    incoming.took(start, size)
                incoming.install()
                print(item.name, flush=True)
    assert not local.keep(wanted.known)
    print(local.materialise(wanted.manifest.ref))
"""


def release() -> Sample:
    files = {f"d{number % 9}/f{number}": str(number).encode() * 50 for number in range(300)}
    chunked = b"".join(bytes([number]) * (1 << 20) for number in range(17))
    large = {f"large{number}": bytes([number]) * (5 << 20) for number in range(4)}
    return sample({**files, **large, "chunked": chunked}, members=10)


def test_processes_that_fill_one_store_at_once_fetch_each_object_once_and_share_one_tree(
    tmp_path: Path,
) -> None:
    wanted = release()
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for _ in range(3)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    ends = []
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        out, _ = racer.communicate(timeout=240)
        assert racer.returncode == 0
        ends.append(out.split())

    trees = {lines[-1] for lines in ends}
    fetched = [name for lines in ends for name in lines[:-1]]
    assert sorted(fetched) == sorted(item.name for item in wanted.objects)
    assert trees == {str(tmp_path / "trees" / wanted.manifest.digest)}
    with LocalStore(tmp_path) as local:
        assert not local.verify(wanted.manifest.ref)
        assert contents(local.materialise(wanted.manifest.ref)) == dict(wanted.files)
    for folder in ("quarantine", "partial"):
        assert list((tmp_path / folder).iterdir()) == []
