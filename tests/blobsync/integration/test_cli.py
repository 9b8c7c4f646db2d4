"""The command line, as people and scripts use it, with a real S3 server over HTTP.

Most commands run in this process, which spares each the start of an interpreter.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner

from blobsync.__main__ import _to_stderr
from blobsync.bucket import keys
from blobsync.bucket.releases import fetch_layout, fetch_manifest
from blobsync.cli.main import BlobsyncExit, main
from blobsync.log import log_all, log_errors_alone
from blobsync.release.manifest import CHUNK_BYTES, PACKED_BYTES
from blobsync.s3.store import S3ObjectStore
from nimbus.localstack.ports import free_port
from nimbus.localstack.s3 import S3Server

DEADLINE_S = 120
DIGEST = "0" * 64

IMPORTED = """
import runpy, sys
try:
    runpy.run_module("blobsync", run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
print()
print(*sys.modules)
"""


class Line:
    """Runs commands with a bucket in their environment."""

    def __init__(self, server: S3Server, bucket: str, root: Path) -> None:
        self.server, self.bucket, self.root = server, bucket, root
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "BLOBSYNC_"))}
        self.env = {
            **kept,
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "AWS_EC2_METADATA_DISABLED": "true",
            "BLOBSYNC_BUCKET": bucket,
            "BLOBSYNC_ENDPOINT": server.endpoint_url,
        }
        self.said = ""

    def __call__(self, *arguments: str, exits: int = 0, **env: str) -> str:
        """Run one command, check its exit code, and return its stdout."""
        code, stdout, self.said = self.run(arguments, {**self.env, **env})
        assert code == exits, f"{code}: {stdout}{self.said}"
        assert self.server.secret_key not in stdout + self.said
        assert "Traceback" not in self.said
        return stdout

    def run(self, arguments: Sequence[str], env: dict[str, str]) -> tuple[int, str, str]:
        """Run a command in this process. Returns its exit code, stdout and stderr."""
        cleared = dict.fromkeys(os.environ.keys() - env.keys())
        logging = structlog.get_config()
        log_errors_alone(_to_stderr)
        try:
            done = CliRunner().invoke(main, arguments, env={**cleared, **env})
        finally:
            log_all()
            structlog.configure(**logging)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout, done.stderr

    def json(self, *arguments: str, exits: int = 0, **env: str) -> Any:
        """Run a command with JSON output. Returns the document."""
        return json.loads(self(*arguments, "-o", "json", exits=exits, **env))

    def publish(self, folder: Path, **files: bytes) -> str:
        """Publish files as `flights`. Returns the digest."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        return str(self.json("publish", "flights", str(folder))["digest"])


class ProcessLine(Line):
    """Runs each command as its own process, `python -m blobsync`."""

    def run(self, arguments: Sequence[str], env: dict[str, str]) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "blobsync", *arguments],
            env=env,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def line(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> Line:
    return Line(s3_server, s3_bucket, tmp_path / "store")


@pytest.fixture
def process_line(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> Line:
    return ProcessLine(s3_server, s3_bucket, tmp_path / "store")


@pytest.fixture
def bucket(store: S3ObjectStore) -> S3ObjectStore:
    return store


def large_key(bucket: S3ObjectStore, digest: str) -> str:
    manifest = fetch_manifest(bucket, "flights", digest)
    return keys.blob(next(item.blob.name for item in manifest.artifacts if not item.blob.is_packed))


def test_release_goes_from_a_folder_through_the_bucket_into_a_folder(
    process_line: Line, tmp_path: Path
) -> None:
    line = process_line
    src, store = tmp_path / "src", str(line.root)
    large = os.urandom(PACKED_BYTES + 1)
    dry = line.json("publish", "flights", str(_made(src, a=b"1", large=large)), "--dry-run")
    line("ls", "flights", exits=BlobsyncExit.NOT_FOUND)  # a dry run publishes nothing
    digest = line.publish(src)
    assert digest == dry["digest"]
    again = line.json("publish", "flights", str(src), "--by", "me")
    assert (again["digest"], again["uploaded_count"]) == (digest, 0)

    synced = line.json("sync", "flights", "--store", store, "--tree")
    assert [(one["state"], one["missing"]) for one in synced["releases"]] == [("ready", [])]
    tree = Path(synced["releases"][0]["tree"])
    assert {path.name: path.read_bytes() for path in tree.iterdir()} == {"a": b"1", "large": large}
    assert line.json("status", "--store", store) == {
        "disk": {"ok": True, "reason": ""},
        "releases": [
            {
                "name": "flights",
                "digest": digest,
                "kept": True,
                "files": 2,
                "missing": 0,
                "size_bytes": len(large) + 1,
            }
        ],
    }
    assert line.json("verify", "--store", store)["releases"][0]["damaged"] == []


def _made(folder: Path, **files: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def test_ls_cat_and_diff_say_the_same_of_the_bucket_and_of_the_store(line: Line, tmp_path: Path) -> None:
    first = line.publish(tmp_path / "src", a=b"1", b=b"2")
    (tmp_path / "src" / "b").unlink()
    second = line.publish(tmp_path / "src", a=b"one", c=b"3")
    store = str(line.root)
    line("sync", f"flights@{first}", f"flights@{second[:8]}", "--store", store)

    assert line.json("ls") == {"names": ["flights"]}
    assert {one["digest"] for one in line.json("ls", "flights@")["releases"]} == {first, second}
    listed = line.json("ls", f"flights@{first}")
    assert [one["path"] for one in listed["files"]] == ["a", "b"]
    assert line.json("ls", f"flights@{first}", "--store", store) == listed
    assert line.json("ls", "--store", store)["releases"] == [
        {"name": "flights", "digest": digest} for digest in sorted([first, second])
    ]
    for place in ([], ["--store", store]):
        assert line("cat", f"flights@{second}", "a", *place) == "one"
        line("cat", f"flights@{second}", "b", *place, exits=BlobsyncExit.NOT_FOUND)
        assert line.json(
            "diff", f"flights@{first}", f"flights@{second}", *place, exits=BlobsyncExit.PROBLEM
        ) == {
            "added": ["c"],
            "removed": ["b"],
            "changed": ["a"],
            "new_bytes": 4,
        }
        assert line.json("diff", f"flights@{first}", f"flights@{first}", *place)["changed"] == []


def test_newest_release_is_meant_when_no_digits_are_said(line: Line, tmp_path: Path) -> None:
    first = line.publish(tmp_path / "src", a=b"1")
    assert line.json("ls", "flights")["digest"] == first


def test_release_is_refused_with_its_name_when_it_is_unknown_or_ambiguous(
    line: Line, bucket: S3ObjectStore, tmp_path: Path
) -> None:
    line.publish(tmp_path / "src", a=b"1")
    bucket.write(keys.manifest("twins", "ab" + "0" * 62), b"{}")
    bucket.write(keys.manifest("twins", "ab" + "1" * 62), b"{}")

    line("ls", "nothing", exits=BlobsyncExit.NOT_FOUND)
    assert "nothing is published as nothing" in line.said
    line("sync", f"flights@{DIGEST}", "--store", str(line.root), exits=BlobsyncExit.NOT_FOUND)
    line("ls", "twins@ab", exits=BlobsyncExit.USAGE)
    assert "may be ab0000000000, ab1111111111" in line.said
    line("ls", "flights@xyz", exits=BlobsyncExit.USAGE)
    line("status", "flights@12", "--store", str(line.root), exits=BlobsyncExit.NOT_FOUND)


def test_usage_errors_speak_of_options(line: Line, tmp_path: Path) -> None:
    line("ls", exits=BlobsyncExit.USAGE, BLOBSYNC_BUCKET="")
    assert "--bucket" in line.said
    line("probe", exits=BlobsyncExit.USAGE, BLOBSYNC_BUCKET="")
    assert "--bucket" in line.said
    line("status", exits=BlobsyncExit.USAGE)
    assert "--store" in line.said
    line("status", "--store", str(tmp_path / "none"), exits=BlobsyncExit.USAGE)
    assert not (tmp_path / "none").exists()
    line("ls", "--endpoint", "ftp://nowhere", exits=BlobsyncExit.USAGE)
    assert "--endpoint 'ftp://nowhere'" in line.said
    line("gc", exits=BlobsyncExit.PROBLEM)
    assert "say --keep-nothing" in line.said
    line.publish(tmp_path / "src", a=b"1")
    line("sync", "flights", "--store", str(line.root))
    line("gc", "--local", "--store", str(line.root), exits=BlobsyncExit.PROBLEM)
    assert "say --keep-nothing" in line.said
    line("sync", exits=BlobsyncExit.USAGE)
    line("nonsense", exits=BlobsyncExit.USAGE)


def test_publish_refuses_secrets_and_patterns_that_match_nothing(line: Line, tmp_path: Path) -> None:
    folder = _made(tmp_path / "src", a=b"1")
    (folder / "id_rsa").write_bytes(b"PASSWORD=x")
    line("publish", "flights", str(folder), exits=BlobsyncExit.PROBLEM)
    assert "id_rsa" in line.said
    assert "--allow-secret" in line.said
    line("publish", "flights", str(folder), "--allow-secret", "id_rsa")
    line("publish", "flights", str(folder), "--include", "*.nope", exits=BlobsyncExit.USAGE)
    line("publish", "Not/A/Name", str(folder), "--include", "a", exits=BlobsyncExit.USAGE)


def test_unreachable_bucket_is_said_within_the_timeout(line: Line, tmp_path: Path) -> None:
    with socket.socket() as deaf:  # accepts connections, and never answers
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(64)
        silent = {"BLOBSYNC_ENDPOINT": f"http://127.0.0.1:{deaf.getsockname()[1]}"}
        for command in (["ls"], ["sync", "flights", "--store", str(line.root)]):
            line(*command, "--timeout", "0.2", exits=BlobsyncExit.UNREACHABLE, **silent)
            assert "error: " in line.said
        folder = str(_made(tmp_path / "src", a=b"1"))
        line("publish", "flights", folder, "--timeout", "0.2", exits=BlobsyncExit.UNREACHABLE, **silent)
    closed = {"BLOBSYNC_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    late = ["--within", "1", "--timeout", "1", "--store", str(line.root)]
    line("sync", f"flights@{DIGEST}", *late, exits=BlobsyncExit.UNREACHABLE, **closed)
    assert "retrying" in line.said
    line("ls", "--bucket", "no-such-bucket", exits=BlobsyncExit.UNREACHABLE)
    assert "no-such-bucket" in line.said


def test_credentials_are_never_printed_when_they_are_refused(line: Line) -> None:
    wrong = "wrong-secret-that-nobody-may-see"
    line("ls", exits=BlobsyncExit.DENIED, AWS_SECRET_ACCESS_KEY=wrong)
    assert wrong not in line.said
    line("probe", "--timeout", "5", "--endpoint", f"http://me:{wrong}@127.0.0.1:1", exits=BlobsyncExit.USAGE)
    assert wrong not in line.said


def test_local_disk_that_refuses_is_said_with_its_own_code(line: Line, tmp_path: Path) -> None:
    line.publish(tmp_path / "src", a=b"1")
    (tmp_path / "file").write_bytes(b"")
    line("sync", "flights", "--store", str(tmp_path / "file" / "below"), exits=BlobsyncExit.DISK)
    assert "below" in line.said


def test_interrupted_sync_goes_on_where_it_was(
    line: Line, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    large = os.urandom(2 * CHUNK_BYTES + 5)
    line.publish(tmp_path / "src", large=large)
    slowly = [sys.executable, "-m", "blobsync", "sync", "flights", "--store", str(line.root), "--bandwidth"]
    process = subprocess.Popen([*slowly, "2"], env=line.env, stderr=subprocess.PIPE, text=True)
    try:

        def received() -> bool:
            assert process.poll() is None, "it ended before it was interrupted"
            return any(path.stat().st_blocks for path in (line.root / "partial").glob("*"))

        eventually(received)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == BlobsyncExit.INTERRUPTED
    assert "run the same command again to continue" in said
    assert "Traceback" not in said
    assert line.json("ls", "--store", str(line.root)) == {"releases": []}

    tree = line.json("sync", "flights", "--store", str(line.root), "--tree")["releases"][0]["tree"]
    assert (Path(tree) / "large").read_bytes() == large


def test_status_and_verify_find_what_the_disk_lost_and_sync_brings_it_back(
    line: Line, tmp_path: Path
) -> None:
    line.publish(tmp_path / "src", a=b"1", large=b"x" * (PACKED_BYTES + 1))
    store = ["--store", str(line.root)]
    line("sync", "flights", *store)
    victim = next(path for path in (line.root / "blobs").rglob("*") if path.is_file())
    victim.chmod(0o644)
    with victim.open("r+b") as file:
        file.write(b"y")

    assert line.json("verify", *store, exits=BlobsyncExit.PROBLEM)["releases"][0]["damaged"] == ["large"]
    assert line.json("status", *store, exits=BlobsyncExit.PROBLEM)["releases"][0]["missing"] == 1
    assert "1" in line("status", *store, exits=BlobsyncExit.PROBLEM)
    line("sync", "flights", *store)
    assert line("verify", *store).endswith("all is well\n")


def test_verify_of_the_bucket_names_what_is_wrong_and_publish_repairs_it(
    line: Line, bucket: S3ObjectStore, tmp_path: Path
) -> None:
    src = tmp_path / "src"
    digest = line.publish(src, a=b"1", large=b"x" * (PACKED_BYTES + 1))
    pack = keys.pack(fetch_layout(bucket, "flights", digest).packs[0].name)
    assert line.json("verify")["releases"][0]["flaws"] == []

    bucket.delete(pack)
    data = bytearray(b"x" * (PACKED_BYTES + 1))
    data[7] = 0
    bucket.write(large_key(bucket, digest), bytes(data))
    quick = line.json("verify", "flights", exits=BlobsyncExit.PROBLEM)["releases"][0]
    assert [(flaw["key"], flaw["fault"]) for flaw in quick["flaws"]] == [(pack, "missing")]
    # A store in the environment does not hide a bucket that is on the command line.
    deep = ["verify", "--bucket", line.bucket, "--deep"]
    text = line(*deep, exits=BlobsyncExit.PROBLEM, BLOBSYNC_STORE=str(tmp_path / "none"))
    assert f"missing: {pack}" in text
    assert f"damaged: {large_key(bucket, digest)}" in text
    assert "publish --repair" in text

    line("cat", "flights", "large", exits=BlobsyncExit.PROBLEM)
    line("publish", "flights", str(src), "--repair")
    assert line.json(*deep)["releases"][0]["flaws"] == []
    line("verify", f"flights@{DIGEST}", exits=BlobsyncExit.NOT_FOUND)
    line("verify", "--deep", "--store", str(tmp_path), exits=BlobsyncExit.USAGE)


def test_gc_of_the_bucket_deletes_nothing_of_what_is_kept_or_new(line: Line, tmp_path: Path) -> None:
    first = line.publish(tmp_path / "src", a=b"1")
    second = line.publish(tmp_path / "src", a=b"2")

    dry = line.json("gc", "--keep", f"flights@{second}", "--keep-newest", "1")
    assert dry["dry_run"] is True
    real = line.json("gc", "--keep", f"flights@{second}", "--keep-newest", "1", "--delete")
    assert (real["dry_run"], real["deleted"], real["failed"]) == (False, {}, [])
    assert "removed 0 objects" in line("gc", "--keep-nothing", "--delete")
    assert {one["digest"] for one in line.json("ls", "flights@")["releases"]} == {first, second}
    line("gc", "--keep", "other", exits=BlobsyncExit.NOT_FOUND)
    line("gc", "--keep-nothing", "--max-share", "2", exits=BlobsyncExit.USAGE)
    line("gc", "--keep-nothing", "--keep-days", "0.5", exits=BlobsyncExit.USAGE)


def test_gc_of_the_store_marks_then_removes_only_when_told(line: Line, tmp_path: Path) -> None:
    store = ["--store", str(line.root)]
    first = line.publish(tmp_path / "src", a=b"1")
    second = line.publish(tmp_path / "src", a=b"2")
    line("sync", f"flights@{first}", f"flights@{second}", *store)
    local = ["gc", "--local", *store, "--keep", f"flights@{second}"]

    assert line.json(*local)["dry_run"] is True
    assert line.json(*local, "--delete")["marked"] != []
    assert line.json("verify", *store)["releases"][0]["damaged"] == []
    line(*local[:-1], f"flights@{DIGEST[:5]}", exits=BlobsyncExit.NOT_FOUND)


def test_probe_reports_in_words_and_as_data(line: Line) -> None:
    report = line.json("probe")
    assert report["usable"] is True
    assert report["left_behind"] == []
    assert {"capability", "holds", "seen"} <= set(report["findings"][0])
    assert line.bucket in line("probe")


def test_command_imports_only_what_it_needs(line: Line, tmp_path: Path) -> None:
    line.publish(tmp_path / "src", a=b"1")
    store = ["--store", str(line.root)]
    heavy = {"boto3", "rich", "structlog"}
    for command, allowed in (
        (["sync", "flights", *store], {"boto3"}),
        (["--help"], set()),
        (["status", *store], set()),
        (["verify", *store], set()),
        (["ls", "flights", *store], set()),
    ):
        done = subprocess.run(
            [sys.executable, "-c", IMPORTED, *command],
            env=line.env,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
        imported = set(done.stdout.splitlines()[-1].split()) & heavy
        assert imported <= allowed, (command, imported)
