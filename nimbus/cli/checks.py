"""The doctor's checks. Each reports a verdict, and advice if something is wrong. None raises."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nimbus.cli.daemon_checks import daemon_of, secrets_of
from nimbus.cli.findings import Finding, Level
from nimbus.cli.service_checks import alert_targets_of, identity_provider_of, telemetry_of
from nimbus.cli.store_checks import store_of, zookeeper_of
from nimbus.cli.target_checks import targets
from nimbus.cli.words import size

if TYPE_CHECKING:
    from blobsync import S3ObjectStore
    from nimbus.config import Settings
    from nimbus.config.sections import Storage

_DEADLINE_S = 3.0
_NO_JAVA = "none without Java"
_DISK_LOW, _DISK_TOO_LOW = 5 << 30, 1 << 30
_SKEW_WARN_S, _SKEW_FAIL_S = 5.0, 300.0
"""S3 refuses signatures that are more than 15 minutes off; schedules are wrong earlier."""


def machine(*, needs_java: bool) -> Iterator[Finding]:
    """Check this machine; needs no configuration."""
    yield _python()
    yield java(needed=needs_java)


def cluster(settings: Settings) -> Iterator[Finding]:
    """Check what a configuration names."""
    from nimbus.bootstrap.targets import spark_targets

    yield disk(settings.scheduler.state_dir)
    yield executor(settings)
    yield kept_jvms(settings)
    yield from environments(settings)
    yield from targets(spark_targets(settings, os.environ))
    yield from alert_targets_of(settings, os.environ)
    yield from identity_provider_of(settings)
    yield from telemetry_of(settings)
    yield from secrets_of(settings, os.environ)
    yield from zookeeper_of(settings)
    yield from store_of(settings)
    yield s3(settings)
    yield from outputs(settings)
    yield clock(settings.storage)
    yield from daemon_of(settings)
    yield port(settings.scheduler.host, settings.scheduler.port, tls=settings.api.tls is not None)


def _python() -> Finding:
    # The installation refuses older versions, so this line informs and never fails.
    return Finding("python", Level.OK, f"{'.'.join(map(str, sys.version_info[:3]))}, {sys.executable}")


def java(*, needed: bool) -> Finding:
    """Is there a Java that Spark can use? It may be missing where other workers run the Spark tasks."""
    from nimbus.java import JavaMissingError, find_java

    try:
        found = find_java()
    except JavaMissingError as exc:
        first, _, rest = str(exc).partition("\n")
        if needed:
            return Finding("java", Level.FAIL, first, rest.strip())
        advice = f"nothing to do if other workers run the Spark tasks. {rest.strip()}"
        return Finding("java", Level.WARN, first, advice)
    detail = f"{found.version} from {found.origin}, {found.java_home}"
    if found.warnings:
        return Finding("java", Level.WARN, detail, "passed over: " + "; ".join(found.warnings))
    return Finding("java", Level.OK, detail)


def _java_home() -> Path | None:
    from nimbus.java import JavaMissingError, find_java

    try:
        return find_java().java_home
    except JavaMissingError:
        return None


def executor(settings: Settings) -> Finding:
    """Which executor processes of the worker run?"""
    from nimbus.worker.pool.folder import NONE_RUNS, ExecutorFolder

    name, work_dir = "executor", settings.worker.work_dir
    try:
        running = [folder.lock for folder in ExecutorFolder.all_in(work_dir) if folder.lock.is_held()]
        holders = [lock.last_holder() for lock in running]
    except OSError as exc:
        return Finding(name, Level.WARN, f"{work_dir}: {exc.strerror}", "ask as the worker's user")
    pids = [f"pid {holder.pid}" for holder in holders if holder is not None]
    return Finding(name, Level.OK, ", ".join(pids) or NONE_RUNS)


def kept_jvms(settings: Settings) -> Finding:
    """Would a worker keep the JVM of a Spark task?"""
    from nimbus.worker.host.free_room import available_memory
    from nimbus.worker.jvm.launcher import GIVE_BACK_BYTES
    from nimbus.worker.jvm.plan import JvmPlan

    name, worker = "kept JVMs", settings.worker
    if worker.idle_jvms == 0:
        return Finding(name, Level.OK, "off (worker.idle_jvms)")
    plan = JvmPlan(release="", environment={}, master=worker.master, worker_conf=worker.spark_conf)
    if why := plan.why_not():
        return Finding(name, Level.OK, f"none: {why}")
    if _java_home() is None:
        return Finding(name, Level.OK, _NO_JAVA)
    needed = plan.memory_bytes + GIVE_BACK_BYTES
    if (free := available_memory()) < needed:
        why = f"{free / 2**30:.1f} GiB of memory are available, {needed / 2**30:.1f} GiB would be needed"
        return Finding(name, Level.WARN, f"none: {why}", "Spark tasks start cold; nothing else is wrong")
    return Finding(name, Level.OK, f"up to {worker.idle_jvms} idle ones")


def environments(settings: Settings) -> Iterator[Finding]:
    """Can tasks run in each environment of the configuration?"""
    from nimbus.bootstrap.worker import find_environments

    for name, found in find_environments(settings.worker.environments).items():
        if isinstance(found, str):
            advice = f"mend worker.environments.{name}; tasks that name it wait for another worker"
            yield Finding(f"environment {name}", Level.FAIL, found, advice)
        else:
            yield Finding(f"environment {name}", Level.OK, found.versions)


def disk(folder: Path) -> Finding:
    """Is there free space, and can this user write?"""
    name = f"disk {folder}"
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not os.access(there, os.W_OK):
        return Finding(name, Level.FAIL, f"{there} cannot be written", "let this user write there")
    free = shutil.disk_usage(there).free
    detail = f"{size(free)} free"
    if free < _DISK_TOO_LOW:
        return Finding(name, Level.FAIL, detail, "free some: releases and task outputs need room")
    if free < _DISK_LOW:
        return Finding(name, Level.WARN, detail, "releases and task outputs may need more")
    return Finding(name, Level.OK, detail)


def s3(settings: Settings) -> Finding:
    """Does the bucket exist, and are the credentials right?"""
    from nimbus.cli.storage import object_store

    where = f"s3 {settings.storage.bucket} at {settings.storage.endpoint_url or 'AWS'}"
    return _bucket(where, object_store(settings.storage), "storage", "storage.bucket")


def outputs(settings: Settings) -> Iterator[Finding]:
    """Check the bucket of outputs, if outputs are in a bucket."""
    from nimbus.bootstrap.foundation import data_connection
    from nimbus.worker.attempt.connections import open_data

    found = data_connection(settings)
    if found is not None:
        where = f"s3 {found['bucket']} at {found['endpoint_url'] or 'AWS'}, for outputs"
        yield _bucket(where, open_data(found), "data", "worker.data")


def _bucket(where: str, store: S3ObjectStore, section: str, name: str) -> Finding:
    from blobsync import BlobSyncError, BucketMissingError, StoreAccessDeniedError

    said: BlobSyncError
    try:
        store.check()
    except StoreAccessDeniedError as exc:
        said, advice = exc, f"correct {section}.access_key_id and secret_access_key"
    except BucketMissingError as exc:
        said, advice = exc, f"create the bucket, or correct {name}"
    except BlobSyncError as exc:
        said, advice = exc, f"start the S3 server, or correct {section}.endpoint_url"
    else:
        return Finding(where, Level.OK, "answers; credentials are right")
    return Finding(where, Level.FAIL, str(said), advice)


def clock(storage: Storage) -> Finding:
    """Does this machine's clock agree with that of the S3 server?"""
    import httpx

    url = storage.endpoint_url or f"https://s3.{storage.region}.amazonaws.com"
    try:
        # Not verified: no secret is sent, and `s3` has checked the certificate as the daemon does.
        said = httpx.get(url, timeout=_DEADLINE_S, verify=False).headers.get("date")  # noqa: S501
        theirs = parsedate_to_datetime(said) if said else None
    except (httpx.HTTPError, ValueError) as exc:
        return Finding("clock", Level.WARN, f"nothing to compare with ({exc})", "see the s3 check")
    if theirs is None:
        return Finding("clock", Level.WARN, f"{url} does not say its time", "look whether NTP runs here")
    skew = (datetime.now(UTC) - theirs).total_seconds()
    return judge_skew(skew)


def judge_skew(skew_s: float) -> Finding:
    """Judge how far our clock is ahead of another (negative: behind). `Date` headers have whole seconds."""
    detail = f"{abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the S3 server"
    if abs(skew_s) >= _SKEW_FAIL_S:
        return Finding("clock", Level.FAIL, detail, "let NTP set both clocks: S3 will refuse signatures")
    if abs(skew_s) >= _SKEW_WARN_S:
        return Finding("clock", Level.WARN, detail, "let NTP set both clocks: schedules would be off")
    return Finding("clock", Level.OK, detail)


def port(host: str, number: int, *, tls: bool = False) -> Finding:
    """Is the API's port free, or held by a scheduler?

    The certificate is not verified: no secret is sent, and it need not contain the bound address.
    """
    import httpx

    name = f"port {number}"
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
        except OSError as exc:
            why = exc.strerror or str(exc)
        else:
            return Finding(name, Level.OK, "free")
    try:
        url = httpx.URL(scheme="https" if tls else "http", host=host, port=number, path="/healthz")
        answer = httpx.get(url, timeout=_DEADLINE_S, verify=False).json()  # noqa: S501
        return Finding(name, Level.OK, f"scheduler {answer['id']} serves there")
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        advice = "stop what listens there, or set scheduler.port to another one"
        return Finding(name, Level.FAIL, f"{host}:{number}: {why}", advice)
