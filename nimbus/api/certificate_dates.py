"""Expiry dates of certificates, read from files: `ssl` does not report them for our own certificate."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from pathlib import Path

_PEM = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.+?)-----END", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17
"""DER tags."""


def expires_at(file: Path) -> datetime:
    """The earliest expiry of the certificates in a PEM file.

    Raises:
        OSError: it cannot be read.
        ValueError: the file contains no certificate.
    """
    return min(_not_after(base64.b64decode(text)) for text in _PEM.findall(file.read_bytes()))


def _not_after(der: bytes) -> datetime:
    """`notAfter` of a certificate. Source: RFC 5280, section 4.1."""
    _, at, _ = _value(der, 0)  # Certificate
    _, at, _ = _value(der, at)  # its TBSCertificate
    tag, _, after = _value(der, at)
    if tag == _VERSION:
        at = after
    for _ in ("serialNumber", "signature", "issuer"):
        *_, at = _value(der, at)
    _, at, _ = _value(der, at)  # Validity
    *_, at = _value(der, at)  # behind notBefore
    tag, at, end = _value(der, at)
    text = der[at:end].decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year: 1950 to 2049
        text = ("19" if text >= "5" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _value(der: bytes, at: int) -> tuple[int, int, int]:
    """The tag at an offset, and the begin and end of its value."""
    tag, size, begin = der[at], der[at + 1], at + 2
    if size & 0x80:  # the low bits are the number of bytes of the size
        begin += size & 0x7F
        size = int.from_bytes(der[at + 2 : begin])
    return tag, begin, begin + size
