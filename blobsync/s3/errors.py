"""Turns failures of S3 into errors of this package. Without boto3, whose errors `client` translates."""

from __future__ import annotations

import socket

from blobsync.errors import (
    BlobNotFoundError,
    BlobSyncError,
    BucketAccessDeniedError,
    BucketMissingError,
    BucketRefusedError,
    BucketUnavailableError,
)
from blobsync.s3.config import S3Config

_MISSING_KEY = {"NoSuchKey", "NotFound", "404"}
_MISSING_BUCKET = {"NoSuchBucket"}
_DENIED = {
    "AccessDenied",
    "AccountProblem",
    "AllAccessDisabled",
    "AuthorizationHeaderMalformed",
    "Forbidden",
    "InvalidAccessKeyId",
    "InvalidSecurity",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "401",
    "403",
}
_NOT_NOW = {"ExpiredToken", "RequestTimeTooSkewed"}
"""Refused because of the time: the host's clock may not be set yet, or the session's token be renewed."""
_MAY_HEAL = {
    "BadDigest",  # damaged on the way
    "IncompleteBody",
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
}
REDIRECTS = frozenset({301, 302, 303, 307, 308})
"""Statuses of an answer that names another address."""
_TRY_AGAIN = {408, 429}  # request timeout, too many requests
_PROXY_AUTHENTICATION = 407
_SERVER_FAULT, _NOT_IMPLEMENTED = 500, 501


def unreachable(exc: Exception, config: S3Config, key: str | None) -> BucketUnavailableError:
    """The error for no answer, or one that is not HTTP.

    `key` is whole, prefix included; None: the request was about the bucket.
    """
    advice = "check that it runs and can be reached from here"
    if _is_unresolved(exc):
        advice = (
            "its host name, or that of the proxy, does not resolve here; correct it, or the DNS of this host"
        )
    return BucketUnavailableError(
        f"s3://{config.bucket}/{key or ''}: no answer from {config.endpoint_url or 'AWS'} "
        f"({type(exc).__name__}: {exc}); {advice}"
    )


def _is_unresolved(exc: BaseException | None) -> bool:
    while exc is not None and not isinstance(exc, socket.gaierror):
        exc = exc.__cause__ or exc.__context__
    return exc is not None


def not_s3(why: str, config: S3Config, key: str | None) -> BucketUnavailableError:
    """The error for an answer that does not come from S3. For the other arguments see `unreachable`."""
    return BucketUnavailableError(
        f"s3://{config.bucket}/{key or ''}: {config.endpoint_url or 'AWS'} did not answer as S3 does: {why}. "
        f"If that stays so, look for a gateway or a proxy on the way"
    )


def redirected(location: str, config: S3Config, key: str | None) -> BucketUnavailableError:
    """The error for a redirect, which may be a passing one, of a gateway. Not followed: signed for one host.

    The query of `location` may be a signature, and is not shown. `key`: see `unreachable`.
    """
    to = location.partition("?")[0][:200] or "an address that it does not name"
    return BucketUnavailableError(
        f"s3://{config.bucket}/{key or ''}: {config.endpoint_url or 'AWS'} redirects to {to}: set "
        f"endpoint_url to the server itself"
    )


def not_now(why: str, config: S3Config, key: str | None) -> BucketUnavailableError:
    """The error for credentials that may be good later. For the other arguments see `unreachable`."""
    return BucketUnavailableError(
        f"s3://{config.bucket}/{key or ''}: no valid credentials for {config.where} at this time ({why}); "
        f"check this machine's clock, and renew a session's token"
    )


def without_credentials(why: str, config: S3Config, key: str | None) -> BucketAccessDeniedError:
    """The error for missing credentials."""
    return _denied(config, f"s3://{config.bucket}/{key or ''}", f"no credentials: {why}")


def answered(status: int, code: str, message: str, config: S3Config, key: str | None) -> BlobSyncError:
    """Turn an answer that is an error into an error of this package.

    `code` of S3, such as `NoSuchKey`, may be empty. `key`: see `unreachable`.
    """
    what = f"s3://{config.bucket}/{key or ''}"
    if code in _MISSING_BUCKET or (key is None and code in _MISSING_KEY):
        return BucketMissingError(
            f"{config.where} does not exist; make it, or correct the bucket's name (this library makes it "
            f"only with ensure_bucket)"
        )
    if code in _MISSING_KEY:
        return BlobNotFoundError(what)
    if code in _NOT_NOW:
        return not_now(f"{code}: {message}", config, key)
    if status == _PROXY_AUTHENTICATION or (not code and status in {401, 403}):
        return BucketAccessDeniedError(
            f"{what}: {config.endpoint_url or 'AWS'} answered {status} without an error of S3, as a proxy or "
            f"gateway does. Check what is on the way (http_proxy, https_proxy, no_proxy) and may refuse this "
            f"host or want a password, and the endpoint's URL; then the access key id and its secret"
        )
    # Some servers answer 400 to an anonymous or expired request, so the code is compared first.
    if code in _DENIED or status in {401, 403}:
        return _denied(config, what, f"{code}: {message}")
    faulty = status >= _SERVER_FAULT and status != _NOT_IMPLEMENTED
    if code in _MAY_HEAL or status in _TRY_AGAIN or faulty:
        return BucketUnavailableError(f"{what}: {config.where} cannot serve now ({status} {code}: {message})")
    return BucketRefusedError(f"{what}: {config.where} refused with {status} {code}: {message}")


def _denied(config: S3Config, what: str, why: str) -> BucketAccessDeniedError:
    return BucketAccessDeniedError(
        f"{what}: {config.where} refused access key id {config.access_key_id or '(from the boto3 chain)'} "
        f"({why}). Check the access key id, its secret, the region {config.region!r}, this machine's clock, "
        f"and that the key may list, read and write the bucket (without the right to list, AWS says this of "
        f"objects that do not exist)"
    )
