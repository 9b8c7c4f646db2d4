"""A process is stopped while it receives an object, and continues much later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blobsync.local import partials
from blobsync.local.store import LocalStore
from tests.blobsync.local_store_samples import Sample, bring, contents, sample

ROOT = Path(__file__).parents[3]
Eventually = Callable[..., None]
RECEIVER = """
import sys
from pathlib import Path
from blobsync.local.store import LocalStore
from tests.blobsync.integration.test_local_stopped import release
from tests.blobsync.local_store_samples import write
wanted = release()
pack = wanted.packs[0]
with LocalStore(Path(sys.argv[1])) as local, local.receive(pack) as incoming:
    write(incoming.fd, 0, wanted.objects[pack][:10])
    print("begun", flush=True)
    sys.stdin.readline()
    write(incoming.fd, 10, wanted.objects[pack][10:])
    incoming.install()
    print(local.has(pack), flush=True)
"""


def release() -> Sample:
    return sample({"a": b"1" * 5000})


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that begins to receive the pack, and is stopped."""
    running = subprocess.Popen(
        [sys.executable, "-c", RECEIVER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    os.kill(running.pid, signal.SIGSTOP)
    yield running
    running.kill()
    running.communicate()


def test_stopped_process_holds_an_object_up_for_a_while_only_and_wakes_to_a_sound_store(
    tmp_path: Path,
    stopped: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:
    monkeypatch.setattr(partials, "STALLED_AFTER_S", 0.5)
    wanted = release()
    pack = wanted.packs[0]
    with LocalStore(tmp_path) as local:

        def brought() -> bool:
            bring(local, pack, wanted.objects[pack])
            return local.has(pack)

        eventually(brought)
        assert not local.keep(wanted.known)
        tree = local.materialise(wanted.manifest.ref)
        inode = local._objects.path(pack).stat().st_ino

        os.kill(stopped.pid, signal.SIGCONT)
        out, _ = stopped.communicate("go on\n", timeout=60)
        assert (stopped.returncode, out) == (0, "True\n")

        assert contents(tree) == dict(wanted.files)
        assert not local.verify(wanted.manifest.ref)
        assert local._objects.path(pack).stat().st_ino == inode  # the second copy was dropped
        assert list((tmp_path / "partial").iterdir()) == []
        assert list((tmp_path / "quarantine").iterdir()) == []
