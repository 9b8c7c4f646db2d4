"""Releases: definitions for the engine, files for the embedded worker and the API; operators' own checks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path, PurePosixPath

import structlog

from blobsync import (
    BlobMissingError,
    BlobNotFoundError,
    BlobSyncError,
    LocalStore,
    Manifest,
    ObjectStore,
    ReleaseAbsentError,
    ReleaseRef,
    ReplicaBoard,
    Syncer,
    fetch_manifest,
)
from blobsync.bucket.releases import published
from nimbus.adapters.s3_records import or_unavailable
from nimbus.config.problems import InvalidDocumentError
from nimbus.definition import parse_definition
from nimbus.definition.apart import check_apart
from nimbus.definition.build import variables_of
from nimbus.definition.calendar_file import with_calendars
from nimbus.domain.cluster.access import SecretRules
from nimbus.domain.errors import NimbusError, RefusedError
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.pipeline import DEFINITION_FILE, PipelineSpec, TaskKind
from nimbus.domain.pipelines.release_files import Holders, ReleaseFile, ReleasePublication
from nimbus.ports import DefinitionNotHereError
from nimbus.templates.names import needs_interval

_log = structlog.get_logger(__name__)


PREPARE_TIMEOUT = timedelta(seconds=60)
"""Limit of the time to fetch a release from storage."""


MAX_TASKS_KEPT = 50_000
"""Limit of tasks in definitions that are kept in memory; about 1 KiB each."""
MAX_TEXT = 64 << 10
"""Limit of a file's text that is shown, in characters."""


class LocalReleases:
    """Fetches, verifies and opens releases. It blocks, so it is used on threads that may wait."""

    def __init__(
        self, syncer: Syncer, validators: Validators | None = None, secret_rules: SecretRules | None = None
    ) -> None:
        self._syncer = syncer
        self._validators = validators or Validators()
        self._secret_rules = secret_rules or SecretRules()
        self._validating = threading.Lock()
        self._lock = threading.Lock()
        self._definitions: OrderedDict[ReleaseOf, PipelineSpec] = OrderedDict()
        """The definitions that were used last. A release never changes, so neither do they."""

    def pinned(
        self, pipeline: PipelineName, digest: ReleaseDigest, timeout: timedelta
    ) -> AbstractContextManager[Path]:
        """See `nimbus.worker.preparation.ReleaseProvider`. Raises what `blobsync.Syncer.ensure` raises."""
        return self._syncer.pinned(ReleaseRef(pipeline, digest), timeout)

    def is_here(self, pipeline: PipelineName, digest: ReleaseDigest) -> bool:
        """True when a release is complete on this disk. Raises `blobsync.LocalStoreError`."""
        return self._syncer.is_here(ReleaseRef(pipeline, digest))

    def prepare(self, release: ReleaseOf) -> PipelineSpec:
        """Fetch a release, and check its definition. See `nimbus.engine.effects.ReleasePreparer`."""
        try:
            spec = self._read(release, check_apart)
        except BlobSyncError as exc:
            raise RefusedError(exc.code, f"release {release.digest[:12]} cannot be used: {exc}") from exc
        self._secret_rules.check(spec)
        with self._validating:  # they are an operator's code, which may not expect threads
            self._validators.check(spec)
        self._keep(release, spec)
        return spec

    def definition(self, release: ReleaseOf) -> PipelineSpec:
        """Read the definition of a release on this disk. See `nimbus.ports.Definitions`."""
        with self._lock:
            definition = self._definitions.get(release)
            if definition is not None:
                self._definitions.move_to_end(release)
                return definition
        try:
            if not self.is_here(release.pipeline, release.digest):
                raise DefinitionNotHereError(release)
            spec = self._read(release, partial(parse_definition, is_published=True))
        except BlobSyncError as exc:
            raise DefinitionNotHereError(release) from exc
        self._keep(release, spec)
        return spec

    def text(self, release: ReleaseOf, name: str) -> str | None:
        """The text of a release's file, cut to MAX_TEXT characters; None: it is not available here."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            return None
        with suppress(BlobSyncError, OSError, UnicodeDecodeError):
            if self.is_here(release.pipeline, release.digest):
                with self.pinned(release.pipeline, release.digest, PREPARE_TIMEOUT) as folder:
                    return (folder / path).read_text(encoding="utf-8")[:MAX_TEXT]
        return None

    def _read(self, release: ReleaseOf, read: Callable[[bytes, str], PipelineSpec]) -> PipelineSpec:
        """The definition of a release. The release is fetched if it is not on this disk."""
        with self.pinned(release.pipeline, release.digest, PREPARE_TIMEOUT) as folder:
            try:
                text = (folder / DEFINITION_FILE).read_bytes()
            except FileNotFoundError as exc:
                raise RefusedError(
                    "no_definition",
                    f"release {release.digest[:12]} has no {DEFINITION_FILE}: publish the pipeline's folder.",
                ) from exc
            spec = _parsed(release, text, read)
            try:
                spec = with_calendars(spec, folder, release.pipeline)
            except InvalidDocumentError as exc:
                raise RefusedError(exc.code, str(exc)) from exc
            return _with_files(spec, folder)

    def _keep(self, release: ReleaseOf, spec: PipelineSpec) -> None:
        with self._lock:
            self._definitions[release] = spec
            tasks = sum(len(kept.tasks) for kept in self._definitions.values())
            while tasks > MAX_TASKS_KEPT and len(self._definitions) > 1:
                tasks -= len(self._definitions.popitem(last=False)[1].tasks)


def _with_files(spec: PipelineSpec, folder: Path) -> PipelineSpec:
    """Add the names that SQL files use. A file that cannot be read is skipped: its task fails later."""
    needing, texts = [], []
    for name in sorted({task.script for task in spec.tasks if task.kind is TaskKind.SQL}):
        with suppress(OSError, UnicodeDecodeError):
            texts.append((folder / name).read_text(encoding="utf-8"))
            needing += [name] if needs_interval(texts[-1]) else []
    variables = tuple(sorted({*spec.variables, *variables_of(texts)}))
    return replace(spec, interval_files=tuple(needing), variables=variables)


def _parsed(release: ReleaseOf, text: bytes, read: Callable[[bytes, str], PipelineSpec]) -> PipelineSpec:
    try:
        spec = read(text, f"{release.pipeline}/{DEFINITION_FILE}")
    except NimbusError as exc:
        raise RefusedError(exc.code, str(exc)) from exc
    if spec.name != release.pipeline:
        raise RefusedError(
            "name_mismatch",
            f"release {release.digest[:12]} is of pipeline {spec.name!r}, not {release.pipeline!r}.",
        )
    return spec


class StoredReleases:
    """See `nimbus.api.services.Releases`. Any thread."""

    def __init__(self, store: ObjectStore, local: LocalStore) -> None:
        self._store, self._local = store, local
        self._board = ReplicaBoard(store)

    def published(self, pipeline: PipelineName) -> Sequence[ReleasePublication]:
        with or_unavailable(f"releases of {pipeline} cannot be listed"):
            return [
                ReleasePublication(ReleaseDigest(publication.digest), publication.at)
                for publication in published(self._store, pipeline)
            ]

    def is_here(self, release: ReleaseOf) -> bool:
        """Also False if the disk cannot be read."""
        try:
            return self._local.is_here(_ref(release))
        except BlobSyncError:
            return False

    def files(self, release: ReleaseOf) -> Sequence[ReleaseFile] | None:
        with or_unavailable(f"release {release.digest[:12]} of {release.pipeline} cannot be read"):
            try:
                files = self._kept(release) or fetch_manifest(self._store, release.pipeline, release.digest)
            except BlobNotFoundError:
                return None
        return [
            ReleaseFile(item.path, item.size_bytes, item.sha256, item.role.value, item.executable)
            for item in files.artifacts
        ]

    def content(self, release: ReleaseOf, path: str) -> bytes | None:
        with or_unavailable(f"{path[:200]} of {_ref(release)} cannot be read"):
            try:
                return b"".join(self._local.read(_ref(release), path))
            except (BlobMissingError, ReleaseAbsentError):
                return None

    def holders(self, digest: ReleaseDigest) -> Holders:
        with or_unavailable("the holders of a release are not known"):
            names = self._board.read(digest)
        return Holders(holding=names.holders, lacking=names.lacking, silent=names.silent)

    def _kept(self, release: ReleaseOf) -> Manifest | None:
        kept = self._local.kept(_ref(release))
        return None if kept is None else kept.manifest


def _ref(release: ReleaseOf) -> ReleaseRef:
    return ReleaseRef(release.pipeline, release.digest)


Validator = Callable[[PipelineSpec], object]


class ValidatorNotFoundError(NimbusError):
    """A function named in `scheduler.validators` does not exist. Raised before the scheduler starts."""

    code = "validator_not_found"
    exit_code = 2


class Validators:
    """Operators' own checks of definitions, in the order of the configuration.

    A validator is `function(spec: PipelineSpec) -> None`, and refuses by raising ValueError, whose text the
    publisher sees. It runs on one of the leader's `nimbus-prepare` threads, one call at a time.
    """

    def __init__(self, places: Iterable[str] = ()) -> None:
        """Load them from `package.module:function`.

        Raises ValidatorNotFoundError: one does not exist, or is not a function.
        """
        self._known = {place: _loaded(place) for place in places}

    def check(self, spec: PipelineSpec) -> None:
        """Call each validator with a definition.

        Raises RefusedError: a validator refuses it, or fails; with the text of the first one.
        """
        for place, validator in self._known.items():
            try:
                validator(spec)
            except ValueError as exc:
                raise RefusedError("refused_by_validator", f"{place} refuses {spec.name}: {exc}") from exc
            except Exception as exc:  # it is an operator's code, which must not end the leader
                _log.exception("validator_failed", validator=place, pipeline=spec.name)
                message = f"{place} failed on {spec.name}, so it is not taken in: {exc!r}"
                raise RefusedError("validator_failed", message) from exc


def _loaded(place: str) -> Validator:
    module, _, name = place.partition(":")
    try:
        value: object = attrgetter(name)(import_module(module))
    except Exception as exc:  # an import runs an operator's code
        message = f"scheduler.validators: {place} cannot be loaded ({type(exc).__name__}: {exc})"
        raise ValidatorNotFoundError(f"{message}; check the spelling, and PYTHONPATH") from exc
    if not callable(value):
        raise ValidatorNotFoundError(f"scheduler.validators: {place} is no function")
    return value
