"""The secrets of webhooks: number of queries to their provider."""

from __future__ import annotations

import pytest

from nimbus.api.routes.webhooks import KEPT_S, HookSecretError, HookSecrets
from nimbus.domain.errors import NimbusError


class Provider:
    """Counts queries."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.known = {"a": "1", "b": "2"}

    def __call__(self, name: str) -> str:
        self.asked.append(name)
        if name not in self.known:
            raise NimbusError("/bin/vault ended with 1")
        return self.known[name]


def test_secret_is_asked_for_again_when_it_was_kept_long_enough() -> None:
    provider, now_s = Provider(), [0.0]
    secrets = HookSecrets(provider, lambda: now_s[0])

    assert [secrets(name) for name in ("a", "b", "a")] == ["1", "2", "1"]
    provider.known["a"] = "3"
    now_s[0] = KEPT_S - 0.1
    assert secrets("a") == "1"
    now_s[0] = KEPT_S
    assert secrets("a") == "3"

    assert provider.asked == ["a", "b", "a"]


def test_provider_that_fails_is_left_alone_as_long_and_its_text_is_not_told() -> None:
    provider, now_s = Provider(), [0.0]
    secrets = HookSecrets(provider, lambda: now_s[0])
    for _ in range(3):
        with pytest.raises(HookSecretError) as raised:
            secrets("none")
        assert "vault" not in str(raised.value)
    assert provider.asked == ["none"]

    provider.known["none"] = "4"
    now_s[0] = KEPT_S
    assert secrets("none") == "4"
