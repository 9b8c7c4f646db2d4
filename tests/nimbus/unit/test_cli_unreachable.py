"""Messages of the command line when no scheduler answers."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from nimbus.cli.exits import Exit
from nimbus.cli.main import cli
from nimbus.client.errors import UnreachableError


@pytest.mark.parametrize(
    ("server", "why", "advice"),
    [
        ("http://s1:8470", "[Errno 111] Connection refused", "is --server (or NIMBUS_SERVER) right?"),
        ("https://s1:8470", "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", "in SSL_CERT_FILE."),
        ("https://s1", "[SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired", "this host's clock."),
        ("https://s1", "[SSL: CERTIFICATE_VERIFY_FAILED] certificate is not yet valid", "(`api.tls`)."),
        ("https://s1", "[SSL: CERTIFICATE_VERIFY_FAILED] Hostname mismatch, certificate", "with this one."),
        ("http://s1:8470", "Server disconnected without sending a response.", "its URL begins with https."),
    ],
)
def test_advice_fits_the_reason(server: str, why: str, advice: str) -> None:
    assert str(UnreachableError({server: why})).endswith(advice)


@pytest.mark.parametrize("words", [["rerun"], ["pause", "--pipelines"]], ids=str)
def test_selection_without_names_and_filter_is_refused_before_a_request(words: list[str]) -> None:
    """Not taken as all runs."""
    done = CliRunner().invoke(
        cli, ["select", *words, "--reason", "x", "--yes", "--server", "http://127.0.0.1:1"]
    )

    assert done.exit_code == Exit.USAGE
    assert "give names, or a filter" in done.output
