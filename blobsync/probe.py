"""Finds out what an S3 server really supports, by trying: some servers accept options that they then ignore.

For `python -m blobsync probe`. It works below a key prefix of its own and removes the objects that it made.
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

from blobsync.errors import BlobSyncError
from blobsync.s3.client import S3Clients, translated, translating_errors
from blobsync.s3.config import LEAST_PART_BYTES, S3Config

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


class Capability(StrEnum):
    """What a store may be able to do."""

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


_ASKED = {
    Capability.RANGES: "a range of an object can be read",
    Capability.SUFFIX_RANGES: "the last bytes of an object can be read",
    Capability.PUT_IF_ABSENT: "a write with If-None-Match: * is refused where an object is",
    Capability.PUT_IF_MATCH: "a write with If-Match is refused when the ETag is another",
    Capability.PUT_IF_MATCH_MISSING: "a write with If-Match is refused where no object is",
    Capability.MD5_VERIFIED: "an upload with a wrong Content-MD5 is refused",
    Capability.LIST_ORDER: "listings are in byte order of the keys",
    Capability.LIST_PAGING: "a listing of several pages, and one from a key on, is complete",
    Capability.READ_AFTER_OVERWRITE: "a read after an overwrite gives the new bytes",
    Capability.DELETE_MANY: "many objects are deleted with one request",
    Capability.RESUMABLE_UPLOADS: "parts of an unfinished upload can be listed, with their MD5",
}
_WITHOUT = {
    Capability.RANGES: "Each range costs the whole object: large files come slowly, and are not resumed.",
    Capability.SUFFIX_RANGES: "Nothing: this library does not ask for them.",
    Capability.PUT_IF_ABSENT: "Nothing: keys are named by content, so that two writers write the same.",
    Capability.PUT_IF_MATCH: "Nothing: no object is replaced by compare-and-set. Do not build upon it.",
    Capability.PUT_IF_MATCH_MISSING: "Nothing: no object is replaced by compare-and-set.",
    Capability.MD5_VERIFIED: "Damage on the way up is found only by whoever reads: verify after publishing.",
    Capability.LIST_ORDER: "Listings cannot be trusted to be complete from a key on; do not collect garbage.",
    Capability.LIST_PAGING: "Objects are overlooked beyond the first page; do not collect garbage here.",
    Capability.READ_AFTER_OVERWRITE: "What was replaced may be read for a while: a changed layout, a marker.",
    Capability.DELETE_MANY: "Objects are deleted one by one, which takes longer.",
    Capability.RESUMABLE_UPLOADS: "A large upload that breaks off begins anew.",
}
REQUIRED = frozenset({Capability.LIST_ORDER, Capability.LIST_PAGING, Capability.READ_AFTER_OVERWRITE})
"""Without these, garbage collection and replaced objects are not safe."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One capability, and whether the store has it.

    Attributes:
        capability: Which.
        holds: None: it could not be found out.
        seen: What the store did.
    """

    capability: Capability
    holds: bool | None
    seen: str

    @property
    def asked(self) -> str:
        """What was found out."""
        return _ASKED[self.capability]

    @property
    def without(self) -> str:
        """What it means for this library that the store does not have it."""
        return _WITHOUT[self.capability]


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """All findings about one bucket.

    Attributes:
        where: Endpoint and bucket.
        server: How the server calls itself; may be empty.
        findings: One for each capability, in a fixed order.
        left_behind: Keys of the probe that could not be removed.
    """

    where: str
    server: str
    findings: tuple[Finding, ...]
    left_behind: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether nothing is missing that this library relies on."""
        return all(self.has(capability) for capability in REQUIRED)

    def has(self, capability: Capability) -> bool:
        """Whether the store was seen to have it."""
        return any(found.capability is capability and found.holds is True for found in self.findings)

    def lines(self) -> Iterator[str]:
        """For people, with a word on what each lack means."""
        yield f"{self.where}{f' ({self.server})' if self.server else ''}"
        for found in self.findings:
            mark = {True: "yes", False: "NO", None: "?"}[found.holds]
            yield f"  {mark:<4}{found.asked} ({found.seen})"
            if not found.holds:
                yield f"      {found.without}"
        yield "This store can be used." if self.usable else "This store lacks what is relied on; see above."
        if self.left_behind:
            yield f"Left behind, to be removed by hand: {', '.join(self.left_behind)}"

    def as_data(self) -> dict[str, Any]:
        """For machines: plain types alone."""
        return {
            "where": self.where,
            "server": self.server,
            "usable": self.usable,
            "findings": [{**asdict(found), "capability": found.capability.value} for found in self.findings],
            "left_behind": list(self.left_behind),
        }


_BODY = b"0123456789"
_OVERWRITES = 20
_LISTED = ("A", "B", "a", "a-b", "a.b", "ab", "b", "é")  # in byte order
_PAGE = 3

_Answer = tuple[bool | None, str]


def probe(config: S3Config) -> ProbeReport:
    """Try out each capability against the bucket, which must be there.

    Takes some hundred requests and one part of 5 MiB; a second or two nearby.

    Raises:
        StoreUnavailableError, StoreAccessDeniedError, BucketMissingError: nothing could be found out.
    """
    clients = S3Clients(config)
    try:
        return _Probe(clients.client, config).run()
    finally:
        clients.client.close()


class _Probe:
    """One run, below one prefix."""

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

    def _finding(self, capability: Capability, step: Callable[[], _Answer]) -> Finding:
        """Try one. An answer that is an error is a finding; no answer is the end of the probe."""
        try:
            return Finding(capability, *step())
        except ClientError as exc:
            error = translated(exc, self._config, self._at)
            if error.retryable:
                return Finding(capability, None, _words(exc))
            return Finding(capability, False, _words(exc))
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
        """Whether a write is refused whose condition does not hold; not for want of support."""
        try:
            self._put(name, **condition)
        except ClientError as exc:
            if exc.response["ResponseMetadata"]["HTTPStatusCode"] not in _NOT_MET:
                raise
            return True, _words(exc)
        return False, "accepted"

    def _verifies(self) -> _Answer:
        """Whether the right checksum is taken and a wrong one is not."""
        self._put("sum", _BODY, ContentMD5=_md5(_BODY))
        try:
            self._put("sum", _BODY, ContentMD5=_md5(b"other"))
        except ClientError as exc:
            return True, _words(exc)
        return False, "accepted"

    def _order(self) -> _Answer:
        found = self._listed()
        names = [name for name in found if name in _LISTED]
        if sorted(names) != sorted(_LISTED):
            return False, f"gave {names}"
        return names == list(
            _LISTED
        ), f"{len(names)} keys, {'in' if names == list(_LISTED) else 'out of'} order"

    def _paging(self) -> _Answer:
        paged = self._listed(PaginationConfig={"PageSize": _PAGE})
        after = self._listed(StartAfter=f"{self._at}l/{_LISTED[2]}")
        right = sorted(paged) == sorted(_LISTED) and sorted(after) == sorted(_LISTED[3:])
        return (
            right,
            f"{len(paged)} of {len(_LISTED)} in pages of {_PAGE}, {len(after)} of {len(_LISTED) - 3} after",
        )

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

    def _clean_up(self) -> tuple[str, ...]:
        left = []
        for key in sorted(self._keys):
            try:
                self._client.delete_object(Bucket=self._config.bucket, Key=key)
            except (BotoCoreError, ClientError) as exc:
                error: BlobSyncError = translated(exc, self._config, key)
                if error.code != "blob_not_found":
                    left.append(key)
        return tuple(left)


_NOT_MET = {404, 409, 412}
"""Of a condition that does not hold."""


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _words(exc: ClientError) -> str:
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return f"{status} {exc.response.get('Error', {}).get('Code', '')}"
