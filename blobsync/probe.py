"""Tests what an S3 server really supports: some servers accept options that they then ignore.

For `python -m blobsync probe`. It works below its own key prefix and removes the objects that it made.
It never tries tags, ACLs or retention: some servers overwrite the object with such a request.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from blobsync.s3.client import S3Clients, translated, translating_errors
from blobsync.s3.config import LEAST_PART_BYTES, S3Config

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


class Capability(StrEnum):
    """What a server may support."""

    RANGES = "ranges"
    SUFFIX_RANGES = "suffix_ranges"
    PUT_IF_ABSENT = "put_if_absent"
    PUT_IF_MATCH = "put_if_match"
    PUT_IF_MATCH_MISSING = "put_if_match_missing"
    MD5_VERIFIED = "md5_verified"
    LIST_ORDER = "list_order"
    LIST_PAGING = "list_paging"
    READ_AFTER_OVERWRITE = "read_after_overwrite"
    DELETE_MANY = "delete_many"
    RESUMABLE_UPLOADS = "resumable_uploads"
    ENCRYPTION = "encryption"


_NO_COMPARE_AND_SET = "No effect on this library. Your own programs must not use compare-and-set here."
_MEANINGS = {
    Capability.RANGES: (
        "reads a range of an object",
        "Each range costs the whole object: large files are slow, and a broken download begins again.",
    ),
    Capability.SUFFIX_RANGES: (
        "reads the last bytes of an object",
        "No effect: this library does not use it.",
    ),
    Capability.PUT_IF_ABSENT: (
        "refuses a write with If-None-Match: * if the object exists",
        "No effect: content names the objects, so two writers of one key write the same bytes.",
    ),
    Capability.PUT_IF_MATCH: ("refuses a write with If-Match if the ETag differs", _NO_COMPARE_AND_SET),
    Capability.PUT_IF_MATCH_MISSING: (
        "refuses a write with If-Match if there is no object",
        _NO_COMPARE_AND_SET,
    ),
    Capability.MD5_VERIFIED: (
        "refuses an upload with a wrong Content-MD5",
        "Only readers find bytes that were damaged during an upload: run `verify --deep` after a publish.",
    ),
    Capability.LIST_ORDER: (
        "lists keys in byte order",
        "A listing that begins at a key may lack objects: do not collect garbage.",
    ),
    Capability.LIST_PAGING: (
        "lists all objects, also in several pages or from a key on",
        "Listings lack objects: do not collect garbage.",
    ),
    Capability.READ_AFTER_OVERWRITE: (
        "returns the new bytes after an overwrite",
        "A replaced object, such as a layout or a lease, may be read in its old form for a while.",
    ),
    Capability.DELETE_MANY: (
        "deletes many objects with one request",
        "Objects are deleted one by one, which is slower.",
    ),
    Capability.RESUMABLE_UPLOADS: (
        "lists the parts of an unfinished upload, with their MD5",
        "A large upload that breaks off begins again.",
    ),
    Capability.ENCRYPTION: (
        "encrypts objects as asked for",
        "Objects are not encrypted as configured: correct `encryption` and its key, or the server.",
    ),
}
"""For each capability: what a server with it does, and the effect on this library without it."""
REQUIRED = frozenset({Capability.LIST_ORDER, Capability.LIST_PAGING, Capability.READ_AFTER_OVERWRITE})
"""Without these, garbage collection is not safe, nor is it safe to replace an object."""


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """The result of one test. `holds` is None if it gave no result."""

    capability: Capability
    holds: bool | None
    seen: str


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """All findings about one bucket.

    Attributes:
        server: The server's name for itself, from the header Server; may be empty.
        findings: One for each capability, in a fixed order; about encryption only if it is asked for.
        left_behind: Keys that the probe wrote and could not delete.
    """

    where: str
    server: str
    findings: tuple[ProbeFinding, ...]
    left_behind: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """True if the server has all capabilities that this library needs, and encrypts if asked to."""
        tested = {finding.capability for finding in self.findings}
        return all(self.has(capability) for capability in REQUIRED | tested & {Capability.ENCRYPTION})

    def has(self, capability: Capability) -> bool:
        """True if the test showed that the server has it."""
        return any(finding.capability is capability and finding.holds is True for finding in self.findings)

    def lines(self) -> Iterator[str]:
        """For people. Says what each missing capability means."""
        yield f"{self.where}{f' ({self.server})' if self.server else ''}"
        for finding in self.findings:
            mark = {True: "yes", False: "NO", None: "?"}[finding.holds]
            does, without = _MEANINGS[finding.capability]
            yield f"  {mark:<4}{does} ({finding.seen})"
            if not finding.holds:
                yield f"      {without}"
        yield (
            "This server can be used." if self.usable else "This server lacks what blobsync needs; see above."
        )
        if self.left_behind:
            yield f"Not deleted, remove by hand: {', '.join(self.left_behind)}"

    def as_data(self) -> dict[str, Any]:
        """As dictionaries, lists, strings and numbers, for JSON."""
        findings = [{**asdict(finding), "capability": finding.capability.value} for finding in self.findings]
        left_behind = list(self.left_behind)
        return {**asdict(self), "usable": self.usable, "findings": findings, "left_behind": left_behind}


_BODY = b"0123456789"
_OVERWRITES = 20
_LISTED = ("A", "B", "a", "a-b", "a.b", "ab", "b", "é")  # in byte order
_PAGE = 3
_NOT_MET = {404, 409, 412}
"""Statuses of an answer that says: the condition does not hold."""

_Answer = tuple[bool | None, str]


def probe(config: S3Config) -> ProbeReport:
    """Test each capability in a bucket that exists.

    Takes about a hundred requests and an upload of 5 MiB: one or two seconds on a fast network.
    """
    clients = S3Clients(config)
    try:
        return _Probe(clients.client, config).run()
    finally:
        clients.close()


class _Probe:
    """One probe, below one prefix."""

    def __init__(self, client: S3Client, config: S3Config) -> None:
        self._client, self._config = client, config
        self._at = f"{config.prefix}probe-{uuid.uuid4().hex}/"
        self._keys: set[str] = set()
        self._server = ""

    def run(self) -> ProbeReport:
        steps: dict[Capability, Callable[[], _Answer]] = {
            Capability.RANGES: lambda: self._range("bytes=3-5", b"345"),
            Capability.SUFFIX_RANGES: lambda: self._range("bytes=-3", b"789"),
            Capability.PUT_IF_ABSENT: lambda: self._refuses("base", IfNoneMatch="*"),
            Capability.PUT_IF_MATCH: lambda: self._refuses("base", IfMatch='"0123"'),
            Capability.PUT_IF_MATCH_MISSING: lambda: self._refuses("none", IfMatch='"0123"'),
            Capability.MD5_VERIFIED: self._verifies,
            Capability.LIST_ORDER: self._order,
            Capability.LIST_PAGING: self._paging,
            Capability.READ_AFTER_OVERWRITE: self._overwrites,
            Capability.DELETE_MANY: self._deletes,
            Capability.RESUMABLE_UPLOADS: self._uploads,
        }
        if self._config.encryption is not None:
            steps[Capability.ENCRYPTION] = self._encrypts
        try:
            with translating_errors(self._config, self._at):
                self._begin()
            findings = tuple(self._finding(capability, step) for capability, step in steps.items())
        finally:
            left = self._clean_up()
        return ProbeReport(self._config.where, self._server, findings, left)

    def _begin(self) -> None:
        answer = self._put("base")
        self._server = answer["ResponseMetadata"]["HTTPHeaders"].get("server", "")
        for name in _LISTED:
            self._put(f"l/{name}")

    def _finding(self, capability: Capability, step: Callable[[], _Answer]) -> ProbeFinding:
        """Test one capability. An error answer is a finding; without any answer, the probe ends."""
        try:
            return ProbeFinding(capability, *step())
        except ClientError as exc:
            error = translated(exc, self._config, self._at)
            if error.retryable:
                return ProbeFinding(capability, None, _words(exc))
            return ProbeFinding(capability, False, _words(exc))
        except BotoCoreError as exc:
            raise translated(exc, self._config, self._at) from exc

    def _put(self, name: str, body: bytes = _BODY, **more: Any) -> Any:
        key = self._at + name
        self._keys.add(key)
        return self._client.put_object(Bucket=self._config.bucket, Key=key, Body=body, **more)

    def _get(self, name: str, **more: Any) -> tuple[bytes, str | None]:
        answer = self._client.get_object(Bucket=self._config.bucket, Key=self._at + name, **more)
        with answer["Body"] as body:
            return body.read(), answer.get("ContentRange")

    def _range(self, wanted: str, right: bytes) -> _Answer:
        got, told = self._get("base", Range=wanted)
        if got == right and told is not None:
            return True, f"{wanted} gave {told}"
        return False, f"{wanted} gave {len(got)} bytes, Content-Range {told}"

    def _refuses(self, name: str, **condition: Any) -> _Answer:
        """True if the server refuses a write because its condition does not hold.

        A refusal because the server does not support conditions is raised.
        """
        try:
            self._put(name, **condition)
        except ClientError as exc:
            if exc.response["ResponseMetadata"]["HTTPStatusCode"] not in _NOT_MET:
                raise
            return True, _words(exc)
        return False, "accepted"

    def _verifies(self) -> _Answer:
        """True if the server accepts a right checksum and refuses a wrong one."""
        self._put("sum", _BODY, ContentMD5=_md5(_BODY))
        try:
            self._put("sum", _BODY, ContentMD5=_md5(b"other"))
        except ClientError as exc:
            return True, _words(exc)
        return False, "accepted"

    def _order(self) -> _Answer:
        keys = self._listed()
        names = [name for name in keys if name in _LISTED]
        if sorted(names) != sorted(_LISTED):
            return False, f"gave {names}"
        in_order = names == list(_LISTED)
        return in_order, f"{len(names)} keys, {'in' if in_order else 'out of'} order"

    def _paging(self) -> _Answer:
        paged = self._listed(PaginationConfig={"PageSize": _PAGE})
        after = self._listed(StartAfter=f"{self._at}l/{_LISTED[2]}")
        seen = f"{len(paged)} of {len(_LISTED)} in pages of {_PAGE}, {len(after)} of {len(_LISTED) - 3} after"
        return sorted(paged) == sorted(_LISTED) and sorted(after) == sorted(_LISTED[3:]), seen

    def _listed(self, **more: Any) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._config.bucket, Prefix=f"{self._at}l/", **more
        )
        return [
            item["Key"].removeprefix(f"{self._at}l/") for page in pages for item in page.get("Contents", [])
        ]

    def _overwrites(self) -> _Answer:
        stale = 0
        for number in range(_OVERWRITES):
            body = b"x" * number + str(number).encode()
            self._put("over", body)
            size = self._client.head_object(Bucket=self._config.bucket, Key=f"{self._at}over")[
                "ContentLength"
            ]
            stale += self._get("over")[0] != body or size != len(body)
        return stale == 0, f"{stale} of {_OVERWRITES} were stale"

    def _deletes(self) -> _Answer:
        for name in ("d1", "d2"):
            self._put(name)
        keys = [{"Key": f"{self._at}{name}"} for name in ("d1", "d2", "never")]
        answer = self._client.delete_objects(Bucket=self._config.bucket, Delete={"Objects": keys})  # type: ignore[typeddict-item]
        errors = answer.get("Errors", [])
        if errors:
            return False, str(errors[0].get("Code", "error"))
        listed = self._client.list_objects_v2(Bucket=self._config.bucket, Prefix=f"{self._at}d")
        left = len(listed.get("Contents", []))
        return left == 0, f"{left} of 2 left"

    def _uploads(self) -> _Answer:
        where: Any = {"Bucket": self._config.bucket, "Key": f"{self._at}upload"}
        body = bytes(LEAST_PART_BYTES)
        upload_id = self._client.create_multipart_upload(**where)["UploadId"]
        try:
            self._client.upload_part(**where, UploadId=upload_id, PartNumber=1, Body=body)
            listed = self._client.list_multipart_uploads(Bucket=where["Bucket"], Prefix=where["Key"])
            known = [upload["UploadId"] for upload in listed.get("Uploads", [])]
            parts = self._client.list_parts(**where, UploadId=upload_id).get("Parts", [])
        finally:
            self._client.abort_multipart_upload(**where, UploadId=upload_id)
        md5 = hashlib.md5(body, usedforsecurity=False).hexdigest()
        if upload_id not in known or len(parts) != 1:
            return False, "the upload or its part is not listed"
        if parts[0]["ETag"].strip('"') != md5:
            return False, "a part's ETag is not its MD5"
        return True, "listed"

    def _encrypts(self) -> _Answer:
        """True if the server says that it encrypted an object as asked for. It may name the key otherwise."""
        self._put("encrypted")
        head = self._client.head_object(Bucket=self._config.bucket, Key=f"{self._at}encrypted")
        said = head.get("ServerSideEncryption")
        return said == self._config.encryption, f"asked for {self._config.encryption}, the object has {said}"

    def _clean_up(self) -> tuple[str, ...]:
        left = []
        for key in sorted(self._keys):
            try:
                self._client.delete_object(Bucket=self._config.bucket, Key=key)
            except (BotoCoreError, ClientError) as exc:
                if translated(exc, self._config, key).code != "blob_not_found":
                    left.append(key)
        return tuple(left)


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _words(exc: ClientError) -> str:
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return f"{status} {exc.response.get('Error', {}).get('Code', '')}"
