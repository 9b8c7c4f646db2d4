"""TLS to ZooKeeper."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from leader.errors import ElectionConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """Whom we trust and who we are. The files are read once here, so that a fault shows at once.

    Args:
        ca_file: Certificates of the authorities to trust, PEM, and of no others. The system's if not given.
        cert_file: Our own certificate, PEM, for servers that ask for one.
        key_file: Its key, PEM. Not needed when it is in `cert_file`.
        key_password: Password of the key, if it has one.
        verify_hostname: The certificate must be for the name by which `hosts` calls the server.
        verify_certificate: Off: whoever answers is trusted. Nothing else is checked then; only for tries.
    """

    ca_file: str | Path | None = None
    cert_file: str | Path | None = None
    key_file: str | Path | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_hostname: bool = True
    verify_certificate: bool = True

    def __post_init__(self) -> None:
        if self.cert_file is None and self.key_file is not None:
            raise ElectionConfigError(f"key_file ({self.key_file}) needs cert_file; give both or neither")
        self.context()

    def context(self) -> ssl.SSLContext:
        """What `ssl` needs, from the files as they are now.

        Raises:
            ElectionConfigError: A file is missing, unreadable, or not what it should be.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.verify_hostname and self.verify_certificate
        context.verify_mode = ssl.CERT_REQUIRED if self.verify_certificate else ssl.CERT_NONE
        self._load_authorities(context)
        self._load_own(context)
        return context

    def _load_authorities(self, context: ssl.SSLContext) -> None:
        if self.ca_file is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
            return
        try:
            context.load_verify_locations(self.ca_file)
        except OSError as exc:
            raise ElectionConfigError(
                f"ca_file {self.ca_file} cannot be used ({exc}); give a readable PEM file of certificates"
            ) from exc

    def _load_own(self, context: ssl.SSLContext) -> None:
        if self.cert_file is None:
            return
        try:
            # A password in any case: without one OpenSSL would ask for it at the terminal.
            context.load_cert_chain(self.cert_file, self.key_file, password=self.key_password or "")
        except OSError as exc:
            raise ElectionConfigError(
                f"cert_file {self.cert_file} and key_file {self.key_file} cannot be used ({exc}); give "
                f"readable PEM files that belong together, and key_password if the key has one"
            ) from exc
