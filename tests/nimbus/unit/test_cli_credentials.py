"""The token of a command: it is sent, and an invalid one is not shown."""

from __future__ import annotations

import pytest

from nimbus.client.errors import SetupError
from nimbus.client.servers import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, credentials, keep_tokens

URL = "http://127.0.0.1:8470"


@pytest.fixture(autouse=True)
def no_tokens(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.delenv(TOKEN_FILE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize("given", ["nbs_a", "nbs_a\n", " nbs_a\r\n"])
def test_new_line_at_the_end_of_a_token_is_not_sent(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, given)

    assert credentials(URL) == {"Authorization": "Bearer nbs_a"}


@pytest.mark.parametrize("given", ["nbs_a\nb", "nbs_a b", "nbs_a\x00", "nbs_é"])
def test_token_that_cannot_be_sent_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)

    with pytest.raises(SetupError) as refused:
        credentials(URL, given)

    assert (refused.value.code, refused.value.exit_code) == ("bad_token", 2)
    assert "nbs_" not in str(refused.value)


@pytest.mark.parametrize("given", ["", "\n"])
def test_without_a_token_nothing_is_sent(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, given)

    assert credentials(URL) == {}


def test_user_without_a_home_folder_has_no_stored_token_and_is_told_when_it_stores_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (TOKEN_VARIABLE, "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # as for a user id that a container was given

    assert credentials(URL) == {}
    with pytest.raises(SetupError, match="set HOME or XDG_CONFIG_HOME"):
        keep_tokens({URL: "nbs_a"})
