"""The doctor's check of the identity provider: does it answer, and is it the configured one?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nimbus.cli.findings import Finding, Verdict

if TYPE_CHECKING:
    from nimbus.config import Settings


def identity_provider_of(settings: Settings) -> Iterator[Finding]:
    """Fetch the provider's description and keys, as a scheduler does."""
    from prometheus_client import CollectorRegistry

    from nimbus.bootstrap.oidc import build_jwts, build_provider
    from nimbus.config import InvalidConfigurationError
    from nimbus.ports import IdentityProviderError

    check = "identity provider"
    try:
        provider = build_provider(settings, build_jwts(settings), CollectorRegistry())
        if provider is None:
            return
        keys = asyncio.run(provider.look())
    except InvalidConfigurationError as exc:
        yield Finding(check, Verdict.FAIL, "the extra oidc is not installed", exc.problems[0].message)
    except IdentityProviderError as exc:
        advice = "correct oidc.issuer, or let this host reach it: tokens of Nimbus work without it"
        yield Finding(check, Verdict.FAIL, f"{settings.oidc.issuer}: {exc}", advice)
    else:
        yield Finding(check, Verdict.OK, f"{settings.oidc.issuer} publishes keys for signatures: {keys}")
