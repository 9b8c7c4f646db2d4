"""Checks of the stores: ZooKeeper or the database of a single scheduler, and S3, with their clocks."""

from __future__ import annotations

import socket
import sqlite3
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nimbus.cli.doctor import DEADLINE_S, CheckResult, Level, fail, ok, warn
from nimbus.domain.wording import format_size

if TYPE_CHECKING:
    from blobsync import S3ObjectStore
    from nimbus.config import Settings
    from nimbus.config.sections import StorageSection

_LONGEST_ANSWER_BYTES = 65_536


def zookeeper_of(settings: Settings) -> Iterator[CheckResult]:
    """Do the servers answer, over TLS if it is configured, and do the credential and the clocks fit?"""
    if settings.store_folder is not None:
        return
    findings = list(_servers_of(settings))
    yield from findings
    if all(finding.verdict is not Level.FAIL for finding in findings):
        yield from _cluster_of(settings)


def _cluster_of(settings: Settings) -> Iterator[CheckResult]:
    """May the credential write below the root, is the schema known, and do the clocks agree?"""
    from leader import LeaderError
    from nimbus.adapters.store.calls import calls_on
    from nimbus.adapters.store.cluster import TreeClusterReader
    from nimbus.adapters.store.moving import last_epoch
    from nimbus.adapters.store.tree import ClusterTree
    from nimbus.cli.options import store_session
    from nimbus.domain.cluster.schema import SchemaUnknownError, check_known
    from nimbus.domain.errors import NimbusError

    root = settings.cluster.root
    name = f"zookeeper root {root}"
    try:
        with store_session(settings) as session:
            written_at = ClusterTree(session, root).prove_access()
            schema = last_epoch(session, root).schema
            now = datetime.now(UTC)
            reader = TreeClusterReader(calls_on(session), root)
            others = {f"scheduler {info.id}": info.clock_ahead_s for info in reader.schedulers()}
            others |= {f"worker {info.id}": info.clock_ahead_s for info in reader.workers()}
    except (LeaderError, NimbusError) as exc:
        yield fail(name, str(exc), "correct zookeeper.username and password, or hosts")
        return
    yield ok(name, "can be written")
    try:
        check_known(schema, root)
        yield ok("schema", f"this release knows that of the cluster, {schema}")
    except SchemaUnknownError as exc:
        yield fail("schema", str(exc), "see docs/upgrade.md")
    if written_at is not None:
        yield _clocks((now - written_at).total_seconds(), {"ZooKeeper": 0.0, **others})


def _clocks(ahead_s: float, others: Mapping[str, float | None]) -> CheckResult:
    """Judge how far our clock is ahead of ZooKeeper's, compared with how far others are."""
    from nimbus.domain.pipelines.catalog import CLOCK_DIFFERENCE

    differences = {name: ahead_s - theirs_s for name, theirs_s in others.items() if theirs_s is not None}
    off = [
        f"{abs(differ_s):.1f} s {'ahead of' if differ_s > 0 else 'behind'} {name}"
        for name, differ_s in differences.items()
        if abs(differ_s) > CLOCK_DIFFERENCE.total_seconds()
    ]
    if off:
        advice = "let NTP set the clocks: schedules or recorded times would be off"
        return warn("clocks", "; ".join(off), advice)
    return ok("clocks", f"that of this host agrees with {', '.join(differences)}")


def _servers_of(settings: Settings) -> Iterator[CheckResult]:
    if not settings.zookeeper.tls:
        yield from zookeeper(settings.zookeeper.hosts)
        return
    from leader import ElectionConfigError
    from nimbus.bootstrap.resources import zookeeper_config

    try:
        tls = zookeeper_config(settings).tls
    except ElectionConfigError as exc:
        yield fail("zookeeper tls", str(exc), "correct the keys zookeeper.tls_...")
    else:
        yield from zookeeper(settings.zookeeper.hosts, None if tls is None else tls.context())


def zookeeper(hosts: str, tls: ssl.SSLContext | None = None) -> Iterator[CheckResult]:
    """Does each server answer? One of several that is down is a warning."""
    servers = [part.strip() for part in hosts.split("/", 1)[0].split(",") if part.strip()]
    findings = [_zookeeper_server(server, tls) for server in servers]
    alive = sum(finding.verdict is Level.OK for finding in findings)
    for finding in findings:
        if finding.verdict is Level.FAIL and alive > len(servers) // 2:
            yield warn(finding.check, finding.detail, finding.advice)
        else:
            yield finding


def _zookeeper_server(server: str, tls: ssl.SSLContext | None) -> CheckResult:
    name = f"zookeeper {server}"
    host, _, number = server.rpartition(":")
    try:
        with socket.create_connection((host or server, int(number or 2181)), DEADLINE_S) as connection:
            connection.settimeout(DEADLINE_S)
            name_there = (host or server).strip("[]")
            secured = tls.wrap_socket(connection, server_hostname=name_there) if tls else connection
            with secured:
                secured.sendall(b"srvr")
                said = _whole_answer(secured).decode(errors="replace")
    except ssl.SSLError as exc:
        return fail(name, f"TLS: {exc}", "correct zookeeper.tls..., or the port")
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or str(exc)
        return fail(name, why, "start ZooKeeper, or correct zookeeper.hosts")
    # A server may be configured to refuse this command; its refusal shows that it works, too.
    if "Mode:" in said or "not in the whitelist" in said:
        mode = said.partition("Mode: ")[2].partition("\n")[0]
        return ok(name, f"answers{f', {mode}' if mode else ''}")
    if "not currently serving" in said:
        return fail(name, "has no quorum", "start the other ZooKeeper servers")
    return fail(name, "does not answer as ZooKeeper does", "correct zookeeper.hosts")


def _whole_answer(connection: socket.socket) -> bytes:
    """Read until the server closes the connection: the answer may arrive in pieces."""
    said = b""
    while len(said) < _LONGEST_ANSWER_BYTES and (part := connection.recv(4096)):
        said += part
    return said


_OVER_A_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre"})


def store_of(settings: Settings) -> Iterator[CheckResult]:
    """Is the database of a single scheduler intact, and on a local disk?"""
    from nimbus.bootstrap.resources import store_file

    file = store_file(settings)
    if file is None:
        return
    name = f"store {file}"
    if (kind := _file_system(file)) in _OVER_A_NETWORK:
        advice = "put scheduler.state_dir on a local disk: locks and shared memory do not hold over a network"
        yield fail(name, f"lies on {kind}", advice)
    else:
        yield _checked(name, file)


def _checked(name: str, file: Path) -> CheckResult:
    try:
        if not file.exists():
            return ok(name, "none yet: it is made at the first start")
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
            (said,) = database.execute("PRAGMA quick_check(1)").fetchone()
    except OSError as exc:
        return warn(name, str(exc.strerror), "ask as the scheduler's user")
    except sqlite3.Error as exc:
        said = str(exc)
    if said != "ok":
        advice = "stop the scheduler and restore the whole folder from a backup, or begin with an empty one"
        return fail(name, str(said), advice)
    return ok(name, f"whole, {format_size(file.stat().st_size)}")


def _file_system(file: Path) -> str:
    import psutil

    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    return next((mounts[place] for place in file.absolute().parents if place in mounts), "")


_SKEW_WARN_S, _SKEW_FAIL_S = 5.0, 300.0
"""S3 refuses signatures that are more than 15 minutes off; schedules are wrong earlier."""


def s3(settings: Settings) -> CheckResult:
    """Does the bucket exist, and are the credentials right?"""
    from nimbus.cli.options import object_store

    where = f"s3 {settings.storage.bucket} at {settings.storage.endpoint_url or 'AWS'}"
    return _bucket(where, object_store(settings.storage), "storage", "storage.bucket")


def outputs(settings: Settings) -> Iterator[CheckResult]:
    """Check the bucket of outputs, if outputs are in a bucket."""
    from nimbus.bootstrap.resources import data_connection
    from nimbus.worker.attempt.connections import open_data

    connection = data_connection(settings)
    if connection is not None:
        where = f"s3 {connection['bucket']} at {connection['endpoint_url'] or 'AWS'}, for outputs"
        yield _bucket(where, open_data(connection), "data", "worker.data")


def _bucket(where: str, store: S3ObjectStore, section: str, name: str) -> CheckResult:
    from blobsync import BlobSyncError, BucketAccessDeniedError, BucketMissingError

    said: BlobSyncError
    try:
        store.check()
    except BucketAccessDeniedError as exc:
        said, advice = exc, f"correct {section}.access_key_id and secret_access_key"
    except BucketMissingError as exc:
        said, advice = exc, f"create the bucket, or correct {name}"
    except BlobSyncError as exc:
        said, advice = exc, f"start the S3 server, or correct {section}.endpoint_url"
    else:
        return ok(where, "answers; credentials are right")
    return fail(where, str(said), advice)


def clock(storage: StorageSection) -> CheckResult:
    """Does this machine's clock agree with that of the S3 server?"""
    import httpx

    url = storage.endpoint_url or f"https://s3.{storage.region}.amazonaws.com"
    try:
        # Not verified: no secret is sent, and `s3` has checked the certificate as the daemon does.
        said = httpx.get(url, timeout=DEADLINE_S, verify=False).headers.get("date")  # noqa: S501
        theirs = parsedate_to_datetime(said) if said else None
    except (httpx.HTTPError, ValueError) as exc:
        return warn("clock", f"nothing to compare with ({exc})", "see the s3 check")
    if theirs is None:
        return warn("clock", f"{url} does not say its time", "look whether NTP runs here")
    return judge_skew((datetime.now(UTC) - theirs).total_seconds())


def judge_skew(skew_s: float) -> CheckResult:
    """Judge how far our clock is ahead of another (negative: behind). `Date` headers have whole seconds."""
    detail = f"{abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the S3 server"
    if abs(skew_s) >= _SKEW_FAIL_S:
        return fail("clock", detail, "let NTP set both clocks: S3 will refuse signatures")
    if abs(skew_s) >= _SKEW_WARN_S:
        return warn("clock", detail, "let NTP set both clocks: schedules would be off")
    return ok("clock", detail)
