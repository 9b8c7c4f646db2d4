"""What a probe found out about a store, as data and as lines for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


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
