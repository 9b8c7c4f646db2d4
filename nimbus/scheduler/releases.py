"""Releases on this disk, for the engine (their definitions) and for the embedded worker (their files)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path, PurePosixPath

from blobsync import BlobSyncError, ReleaseRef, Syncer
from nimbus.config.problems import InvalidDocumentError
from nimbus.definition import parse_definition
from nimbus.definition.apart import check_apart
from nimbus.definition.build import variables_of
from nimbus.definition.calendar_file import with_calendars
from nimbus.domain.access import SecretRules
from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.errors import NimbusError, RefusedError
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipeline import DEFINITION_FILE, PipelineSpec, TaskKind
from nimbus.ports import DefinitionNotHereError
from nimbus.scheduler.validators import Validators
from nimbus.templates.names import needs_interval

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
            found = self._definitions.get(release)
            if found is not None:
                self._definitions.move_to_end(release)
                return found
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
