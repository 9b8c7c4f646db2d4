"""The certificate of the API, which is replaced without a restart."""

from __future__ import annotations

import base64
import re
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from nimbus.domain.errors import NimbusError

_log = structlog.stdlib.get_logger(__name__)

_PEM = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.+?)-----END", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17
"""DER tags."""


class CertificateError(NimbusError):
    """The files of the certificate cannot be used, so the API cannot be served."""

    code = "bad_certificate"
    exit_code = 2


class ReloadingTls:
    """A TLS context that uses another context for each handshake. `look` replaces that one.

    Loading a wrong pair into a context in use makes every handshake fail, so new files are first loaded into
    a new context. The files are PEM: the certificate with its chain, and the key without a password.

    Raises CertificateError: the pair cannot be used.
    """

    def __init__(self, certificate: Path, key: Path, registry: CollectorRegistry) -> None:
        self._certificate, self._key = certificate, key
        self._reloads = Counter(
            "nimbus_api_certificate_reloads_total",
            "Changed certificates of api.tls: loaded, refused. Only with api.tls.",
            ("outcome",),
            registry=registry,
        )
        for outcome in ("loaded", "refused"):
            self._reloads.labels(outcome)
        self._expiry = Gauge(
            "nimbus_api_certificate_expiry_timestamp_seconds",
            "When the certificate that is served expires, or the first one of its chain. Only with api.tls.",
            registry=registry,
        )
        self._seen: tuple[int, ...] = ()
        try:
            self._seen = self._stamp()
            self.context, self._current = self._loaded(), self._loaded()
            self._expires(_expiry_of(certificate))
        except (OSError, ValueError) as exc:  # ssl.SSLError is an OSError
            raise CertificateError(
                f"api.tls: {certificate} and {key} cannot be used ({exc}); both must be PEM, the key the "
                "certificate's own, without a password."
            ) from exc
        self.context.sni_callback = self._choose

    def verify_for(self, host: str) -> None:
        """Check that clients which trust the certificate accept it under the name or address `host`.

        Raises CertificateError: it is expired, not valid yet, or for another name.
        """
        try:
            verify(self._current, self._certificate, host)
        except ssl.SSLError as exc:
            raise CertificateError(f"api.tls: {self._certificate} is of no use: {in_words(exc)}") from exc

    def _expires(self, at: datetime) -> None:
        self._expiry.set(at.timestamp())
        self._expires_at: datetime | None = at

    def look(self) -> None:
        """Replace the certificate if its files have changed, unless the new one is not valid now.

        If the one in use has expired, log that once. The daemon goes on: only the API is out of reach, and a
        new pair is used within seconds.
        """
        if self._expires_at is not None and self._expires_at < datetime.now(UTC):
            at, self._expires_at = self._expires_at.isoformat(), None
            _log.error("certificate_expired", certificate=str(self._certificate), expired_at=at)
        try:
            seen = self._stamp()
            if seen == self._seen:
                return
            loaded, expiry = self._loaded(), _expiry_of(self._certificate)
            verify(loaded, self._certificate)
        except (OSError, ValueError) as exc:
            self._reloads.labels("refused").inc()
            _log.error("certificate_refused", certificate=str(self._certificate), error=in_words(exc))
            return
        self._seen, self._current = seen, loaded
        self._expires(expiry)
        self._reloads.labels("loaded").inc()
        _log.info("certificate_loaded", certificate=str(self._certificate), expires_at=expiry.isoformat())

    def _choose(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _of: ssl.SSLContext
    ) -> None:
        """Called in each handshake, also without SNI."""
        connection.context = self._current

    def _stamp(self) -> tuple[int, ...]:
        files = (self._certificate.stat(), self._key.stat())
        return tuple(number for file in files for number in (file.st_mtime_ns, file.st_ino, file.st_size))

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Without this, OpenSSL asks for a password on the terminal.
        context.load_cert_chain(self._certificate, self._key, password=lambda: "")
        return context


def verify(server: ssl.SSLContext, certificate: Path, host: str | None = None) -> None:
    """Do a handshake in memory, as a client that trusts the certificate. `host`: its name; None: any.

    Raises ssl.SSLError: the certificate is expired, not valid yet, or for another name.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = host is not None
    client.load_verify_locations(certificate)
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # its authority may be absent
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = client.wrap_bio(to_client, to_server, server_hostname=host)
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (theirs, ours, theirs):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()


def in_words(error: BaseException) -> str:
    """The reason of a failed verification, without OpenSSL's codes."""
    return error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error)


def _expiry_of(file: Path) -> datetime:
    """The earliest expiry of the certificates in a PEM file: `ssl` reports none. OSError, ValueError."""
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
