"""Builds what finds out who uses the API."""

from __future__ import annotations

from nimbus.access.gate import Gate
from nimbus.config import Settings
from nimbus.ports import AccessStore
from nimbus.scheduler.access_follower import AccessFollower, TokensFile


def build_gate(settings: Settings) -> Gate:
    """Says who sends a request. Knows no token yet."""
    api = settings.api
    return Gate(required=api.auth == "required", per_s=api.requests_per_second)


def build_access_follower(settings: Settings, store: AccessStore, gate: Gate) -> AccessFollower:
    """Tells the gate which tokens there are."""
    path = settings.api.tokens_file
    return AccessFollower(store, gate, None if path is None else TokensFile(path))
