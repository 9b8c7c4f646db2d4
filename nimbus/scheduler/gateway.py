"""The service of this scheduler for drivers in Spark clusters: `nimbus.api.routes.attempts.AttemptGateway`.

It also works on a scheduler that does not lead: the slots of an attempt are create-once, so these writes need
no epoch. Runs on the API's threads.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

from blobsync import BlobSyncError, InvalidKeyError
from nimbus.api.routes.attempts import (
    AttemptReport,
    ClusterAttempt,
    DataRequest,
    HeartbeatAnswer,
    SecretsRequest,
    SignedUrl,
)
from nimbus.attempt.model import Ordered, Story
from nimbus.checkpoint import checked
from nimbus.domain.attempts.cost import cost_of
from nimbus.domain.attempts.orders import output_of
from nimbus.domain.attempts.slots import Claim, ClusterDriver, End, Holder, Slots, application_id
from nimbus.domain.cluster.access import SecretRules
from nimbus.domain.ids import HostId, WorkerId
from nimbus.domain.pipelines.pipeline import FailureClass
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import (
    AttemptBoard,
    AttemptWithdrawnError,
    Clock,
    KeptLog,
    LogArchive,
    StoreUnavailableError,
)
from nimbus.result import ResultError, decode
from nimbus.worker.application.bundle import build_bundle
from nimbus.worker.application.startup import (
    data_token_for,
    release_archive,
    secrets_token_for,
    token_for,
)
from nimbus.worker.attempt.verdict import Ending, judge
from nimbus.worker.data.manifest import is_manifest, parts_of
from nimbus.worker.preparation import ReleaseProvider
from nimbus.worker.secrets import SecretDeniedError

_RELEASE_WAIT = timedelta(seconds=10)
"""Longest wait for a release. Drivers try again, also at other schedulers."""
_LOG_BYTES = 64 << 20
"""The default of `Limits.log_bytes`."""


class ClusterGateway:
    """See `nimbus.api.routes.attempts.AttemptGateway`. Any thread."""

    def __init__(
        self,
        *,
        board: AttemptBoard,
        logs: LogArchive,
        releases: ReleaseProvider,
        clock: Clock,
        schedulers: Callable[[], Sequence[str]],
        data: DataGateway | None = None,
        secrets: Callable[[Mapping[str, str]], Mapping[str, str]] = dict,
        rules: SecretRules = SecretRules(),  # noqa: B008 - immutable
    ) -> None:
        """`data`: None if outputs are in a folder. `secrets` gives values by variable; raises SecretError."""
        self._board, self._logs, self._releases, self._clock = board, logs, releases, clock
        self.schedulers = schedulers
        self._data, self._secrets, self._rules = data, secrets, rules
        self._key: bytes | None = None

    def admits(self, attempt: ClusterAttempt, token: str) -> bool:
        right = token_for(self._tokens_key(), str(attempt.id), attempt.pipeline, attempt.release)
        return hmac.compare_digest(right.encode(), token.encode())

    def admits_to_data(self, attempt: ClusterAttempt, token: str, request: DataRequest) -> bool:
        key, said = self._tokens_key(), request.model_dump(include={"uri", "output", "inputs"})
        return hmac.compare_digest(data_token_for(key, str(attempt.id), **said).encode(), token.encode())

    def _tokens_key(self) -> bytes:
        if self._key is None:
            self._key = self._board.attempt_key()
        return self._key

    def bootstrap(self) -> bytes:
        return build_bundle()

    def release(self, attempt: ClusterAttempt) -> Iterator[bytes]:
        """Fails at once if the release does not come in time."""
        pieces = self._pieces(attempt)
        try:
            next(pieces)  # from here on the release is pinned, until the generator is closed
        except BlobSyncError as exc:
            raise StoreUnavailableError(f"release {attempt.release[:12]} is not here: {exc}") from exc
        return pieces

    def _pieces(self, attempt: ClusterAttempt) -> Iterator[bytes]:
        with self._releases.pinned(attempt.pipeline, attempt.release, _RELEASE_WAIT) as root:
            yield b""
            yield from release_archive(root)

    def claim(
        self, attempt: ClusterAttempt, *, nonce: str, driver: str, target: str, worker: str, host: str
    ) -> bool:
        claim = Claim(
            attempt=str(attempt.id),
            worker=WorkerId(worker),
            host=HostId(host),
            holder=Holder.APPLICATION,
            claimed_at=self._clock.now(),
            nonce=nonce,
            driver=ClusterDriver(target=target, id=driver),
        )
        try:
            return self._board.claim(claim).nonce == nonce
        except AttemptWithdrawnError:
            return False

    def heartbeat(
        self, attempt: ClusterAttempt, nonce: str, progress: Mapping[str, Any], checkpoint: str | None
    ) -> HeartbeatAnswer:
        slots = self._board.read(attempt.id)
        if slots.end is None and slots.claim is None:
            return HeartbeatAnswer(claimed=False)
        if not _is_open(nonce, slots):
            return HeartbeatAnswer(outdated=True)
        try:
            if (kept := _checkpoint(checkpoint)) is not None:
                self._board.keep_checkpoint(attempt.id, nonce, kept)
        except AttemptWithdrawnError:
            return HeartbeatAnswer(outdated=True)
        self._board.report(attempt.id, progress)
        return HeartbeatAnswer(stop=slots.stop_requested)

    def log(
        self, attempt: ClusterAttempt, nonce: str, offset: int, data: bytes, kept: KeptLog = KeptLog.LOG
    ) -> bool:
        slots = self._board.read(attempt.id)
        if slots.end is None and slots.claim is None:  # as in `heartbeat`; a refusal would end the log
            raise StoreUnavailableError(f"the claim of {attempt.id} is not here (yet)")
        if offset + len(data) > _LOG_BYTES or not _is_open(nonce, slots):
            return False
        self._logs.append(attempt.id, offset, data, kept)
        return True

    def sign(self, attempt: ClusterAttempt, request: DataRequest) -> SignedUrl | None:
        if self._data is None:
            raise StoreUnavailableError("`worker.data` is no bucket here")
        slots = self._board.read(attempt.id)
        if slots.end is None and slots.claim is None:  # as in `heartbeat`; a refusal would fail the attempt
            raise AttemptWithdrawnError(str(attempt.id))
        if not _is_open(request.nonce, slots):
            return None
        return self._data.sign(request)

    def secrets(self, attempt: ClusterAttempt, request: SecretsRequest) -> Mapping[str, str] | None:
        right = secrets_token_for(self._tokens_key(), str(attempt.id), attempt.pipeline, request.names)
        if not hmac.compare_digest(right.encode(), request.token.encode()):
            return None
        if (denied := self._rules.denied(attempt.pipeline, request.names.values())) is not None:
            raise SecretDeniedError(denied)
        slots = self._board.read(attempt.id)
        if slots.end is None and slots.claim is None:  # as in `heartbeat`; a refusal would fail the attempt
            raise AttemptWithdrawnError(str(attempt.id))
        return self._secrets(request.names) if _is_open(request.nonce, slots) else None

    def end(self, attempt: ClusterAttempt, report: AttemptReport) -> str:
        output = output_of(attempt.pipeline, attempt.id)
        verdict = _verdict(report, output, in_bucket=self._data is not None)
        succeeded = verdict.outcome is Outcome.SUCCEEDED
        end = End(
            attempt=str(attempt.id),
            outcome=verdict.outcome,
            written_by="driver",
            ended_at=self._clock.now(),
            started_at=report.started_at,
            exit_code=verdict.exit_code,
            failure=verdict.failure,
            reason=verdict.reason,
            output=(report.output or output) if succeeded else None,
            nonce=report.nonce,
            application=application_id(report.application),
            cost=cost_of(report.cost),
            result=verdict.result,
            checkpoint=None if succeeded else _checkpoint(report.checkpoint),
        )
        try:
            return self._board.end(end).outcome.value
        except AttemptWithdrawnError:
            return "withdrawn"


def _checkpoint(text: str | None) -> str | None:
    """The checkpoint in its stored form; None: it is not valid."""
    return None if text is None else checked(text.encode(errors="replace"))


def _is_own(reference: str, output: str) -> bool:
    return is_manifest(reference) and parts_of(reference)[0].rpartition("-")[0] == output


def _is_open(nonce: str, slots: Slots) -> bool:
    """True when this driver has claimed the attempt, and it has not ended."""
    return slots.end is None and slots.claim is not None and slots.claim.nonce == nonce


def _verdict(report: AttemptReport, output: str, *, in_bucket: bool) -> Ending:
    """How a task has ended. `output`: prefix of references of the attempt's own outputs."""
    try:
        ordered = Ordered(report.ordered)
    except ValueError:
        ordered = Ordered.NOT
    verdict = judge(
        Story(report.status, ordered, report.came_to_its_end, refused=report.refused or ""),
        is_program=report.is_program,
        timeout=None if report.timeout_s is None else timedelta(seconds=report.timeout_s),
        log_tail=report.log_tail,
    )
    if verdict.outcome is not Outcome.SUCCEEDED:
        return verdict
    if fault := _fault(report, output, in_bucket=in_bucket):
        return Ending(Outcome.FAILED, fault[:500], 0)
    try:
        return replace(verdict, result=None if report.result is None else decode(report.result.encode()))
    except (ResultError, UnicodeEncodeError) as exc:
        return Ending(Outcome.FAILED, str(exc)[:500], 0, FailureClass.ERROR)


def _fault(report: AttemptReport, output: str, *, in_bucket: bool) -> str:
    """Why the output of a success is not accepted; empty: it is accepted."""
    if report.not_flushed:
        return report.not_flushed
    if report.output is None:
        why = "its driver did not store its output in the bucket: `worker.data` must be equal everywhere"
        return why if in_bucket else ""
    return "" if _is_own(report.output, output) else f"{report.output!r} is no output of this attempt"


LIFETIME = timedelta(minutes=15)
"""The holder of a URL can write for this long after END: a zombie to keys that no manifest names, and the
driver that ended also to its own objects. Readers compare digests."""


class Presigner(Protocol):
    """A bucket whose URLs can be signed."""

    def presigned(self, method: str, key: str, lifetime: timedelta) -> str:
        """The signed URL of an object for one method. It is computed without a request."""
        ...

    @property
    def write_headers(self) -> dict[str, str]:
        """Headers that a request with a URL for `PUT` must have."""
        ...


class DataGateway:
    """Signs URLs in the bucket of outputs for drivers in clusters, which have no credentials.

    A URL is for one object and one method. An attempt can write below the prefix of its own output, and read
    there and in the outputs that its order names as inputs. `uri` is `s3://bucket/prefix`, the same on all
    workers and schedulers; keys of `store` are relative to it.
    """

    def __init__(self, uri: str, store: Presigner) -> None:
        self._uri, self._store = uri, store

    def sign(self, request: DataRequest) -> SignedUrl | None:
        """The signed URL of an object; None: the attempt has no access to it.

        Raises StoreUnavailableError: the object is in another bucket, or there are no credentials now.
        """
        if request.uri != self._uri:
            raise StoreUnavailableError(f"outputs are in {self._uri} here, not in {request.uri}")
        if not _may(request.method, request.key, request.output, request.inputs):
            return None
        try:
            url = self._store.presigned(request.method, request.key, LIFETIME)
        except InvalidKeyError:
            return None
        except BlobSyncError as exc:
            raise StoreUnavailableError(f"no address can be signed: {exc}") from exc
        return SignedUrl(url, self._store.write_headers if request.method == "PUT" else {})


def _may(method: str, key: str, output: str, inputs: Sequence[str]) -> bool:
    if key.startswith(f"{output}/"):
        return True
    return method != "PUT" and any(
        is_manifest(reference) and key.startswith(f"{parts_of(reference)[0]}/") for reference in inputs
    )
