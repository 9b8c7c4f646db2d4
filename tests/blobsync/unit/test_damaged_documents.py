"""Manifests, layouts and records of kept releases that are damaged, or that the disk cannot read."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from blobsync import LocalStore, ReleaseRef
from blobsync.cli.main import BlobsyncExit, main
from blobsync.local.store_context import StoreContext
from tests.blobsync.local_store_samples import (
    contents,
    fill,
    flip_a_byte_unseen,
    make_unreadable,
    overwrite,
    sample,
)
from tests.blobsync.sync_samples import SOON, Rig

Eventually = Callable[..., None]
OFTEN = timedelta(milliseconds=200)


def document(root: Path, ref: ReleaseRef, suffix: str) -> Path:
    return root / "releases" / ref.name / f"{ref.digest}{suffix}"


@pytest.mark.parametrize("suffix", [".json", ".layout", ".record"])
def test_document_that_cannot_be_read_goes_to_quarantine_and_the_round_goes_on(
    rig: Rig, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    p, q = rig.publish("p", a="some data"), rig.publish("q", b="other data")
    syncer = rig.syncer(p, q, scrub=OFTEN, look=OFTEN)
    eventually(lambda: syncer.readiness().is_ready(p) and syncer.readiness().is_ready(q))
    path = document(rig.folder / "local", p, suffix)
    good = path.read_bytes()

    make_unreadable(monkeypatch, path)
    flip_a_byte_unseen(rig.path(q, "b"))

    eventually(lambda: len(list((rig.folder / "local" / "quarantine").iterdir())) == 2)
    eventually(lambda: path.exists() and path.read_bytes() == good)
    eventually(lambda: syncer.readiness().is_ready(p) and syncer.readiness().is_ready(q))
    rounds = syncer.scrub_progress().finished_rounds
    eventually(lambda: syncer.scrub_progress().finished_rounds > rounds)


def test_release_whose_manifest_cannot_be_read_is_not_ready_until_it_is_fetched(
    rig: Rig, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = rig.publish("p", a="some data")
    syncer = rig.syncer(p, scrub=OFTEN)
    eventually(lambda: syncer.readiness().is_ready(p))
    rig.store.unavailable = True

    make_unreadable(monkeypatch, document(rig.folder / "local", p, ".json"))

    eventually(lambda: not syncer.readiness().is_ready(p))
    assert syncer.scrub_progress().damaged_objects == 1
    rig.store.unavailable = False
    eventually(lambda: syncer.readiness().is_ready(p))
    assert contents(syncer.ensure(p, SOON)) == {"a": b"some data"}


@pytest.mark.parametrize("suffix", [".json", ".layout"])
def test_document_that_can_neither_be_read_nor_moved_is_counted_and_the_round_goes_on(
    rig: Rig, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    p, q = rig.publish("p", a="some data"), rig.publish("q", b="other data")
    syncer = rig.syncer(p, q, scrub=OFTEN)
    eventually(lambda: syncer.readiness().is_ready(p) and syncer.readiness().is_ready(q))
    path = document(rig.folder / "local", p, suffix)
    quarantine = StoreContext.quarantine

    def fails(self: StoreContext, moved: Path, reason: str) -> None:
        if moved == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        quarantine(self, moved, reason)

    monkeypatch.setattr(StoreContext, "quarantine", fails)
    make_unreadable(monkeypatch, path)

    eventually(lambda: syncer.scrub_progress().failed_objects > 0)
    rounds = syncer.scrub_progress().finished_rounds
    eventually(lambda: syncer.scrub_progress().finished_rounds > rounds)
    flip_a_byte_unseen(rig.path(q, "b"))
    eventually(lambda: syncer.scrub_progress().damaged_objects == 1)


def test_scrub_counts_a_damaged_layout_and_the_next_look_writes_it_again(
    rig: Rig, eventually: Eventually
) -> None:
    p = rig.publish("p", a="some data")
    syncer = rig.syncer(p, scrub=OFTEN)  # the periodic look is far away
    eventually(lambda: syncer.readiness().is_ready(p))
    path = document(rig.folder / "local", p, ".layout")
    good = path.read_bytes()

    overwrite(path, b"{}")

    eventually(lambda: syncer.scrub_progress().damaged_objects == 1)
    eventually(lambda: path.exists() and path.read_bytes() == good)
    eventually(lambda: syncer.readiness().is_ready(p))
    flip_a_byte_unseen(rig.path(p, "a"))
    eventually(lambda: syncer.scrub_progress().damaged_objects == 2)


def test_release_that_is_collected_during_a_round_is_no_damage(
    rig: Rig, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = rig.publish("p", a="some data")
    gone = ReleaseRef("gone", "0" * 64)
    listed = LocalStore.releases
    monkeypatch.setattr(LocalStore, "releases", lambda self: [gone, *listed(self)])
    syncer = rig.syncer(p, scrub=OFTEN)
    eventually(lambda: syncer.readiness().is_ready(p))
    rounds = syncer.scrub_progress().finished_rounds

    eventually(lambda: syncer.scrub_progress().finished_rounds > rounds + 1)
    told = syncer.scrub_progress()
    assert (told.damaged_objects, told.failed_objects) == (0, 0)


@pytest.mark.parametrize("suffix", [".json", ".layout"])
@pytest.mark.parametrize("named", [True, False])
def test_verify_reports_a_damaged_document_and_goes_on_with_the_other_releases(
    tmp_path: Path, suffix: str, named: bool
) -> None:
    p, q = sample({"a": b"1"}, name="p"), sample({"b": b"2"}, name="q")
    with LocalStore(tmp_path) as local:
        fill(local, p)
        fill(local, q)
    path = document(tmp_path, p.manifest.ref, suffix)
    overwrite(path, bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])

    command = ["verify", "--store", str(tmp_path), "-o", "json", *(["p", "q"] if named else [])]
    done = CliRunner().invoke(main, command)

    assert done.exit_code == BlobsyncExit.PROBLEM
    # The log is on standard output, too: only the program sends it elsewhere.
    found = {one["name"]: one for one in json.loads(done.stdout.splitlines()[-1])["releases"]}
    assert {name: one["kept"] for name, one in found.items()} == {"p": False, "q": True}
    assert {name: one["damaged"] for name, one in found.items()} == {"p": [], "q": []}


def test_status_reports_a_damaged_layout_and_goes_on_with_the_other_releases(tmp_path: Path) -> None:
    p, q = sample({"a": b"1"}, name="p"), sample({"b": b"2"}, name="q")
    with LocalStore(tmp_path) as local:
        fill(local, p)
        fill(local, q)
    overwrite(document(tmp_path, p.manifest.ref, ".layout"), b"{}")

    done = CliRunner().invoke(main, ["status", "--store", str(tmp_path), "-o", "json"])

    assert done.exit_code == BlobsyncExit.PROBLEM
    found = {one["name"]: one for one in json.loads(done.stdout.splitlines()[-1])["releases"]}
    assert {name: one["kept"] for name, one in found.items()} == {"p": False, "q": True}
    assert (found["q"]["files"], found["q"]["missing"]) == (1, 0)

    overwrite(document(tmp_path, q.manifest.ref, ".layout"), b"{}")
    done = CliRunner().invoke(main, ["status", "--store", str(tmp_path)])
    assert done.exit_code == BlobsyncExit.PROBLEM
    assert "its manifest or layout is damaged" in done.stdout


def test_verify_of_a_release_that_is_not_here_is_no_damage(tmp_path: Path) -> None:
    with LocalStore(tmp_path) as local:
        fill(local, sample({"a": b"1"}, name="p"))

    for ref in (f"p@{'0' * 64}", f"r@{'0' * 64}", "r"):
        done = CliRunner().invoke(main, ["verify", "--store", str(tmp_path), ref])
        assert done.exit_code == BlobsyncExit.NOT_FOUND
