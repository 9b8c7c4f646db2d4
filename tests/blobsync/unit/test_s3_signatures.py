"""Signed requests to S3: our signatures equal those of botocore."""

from __future__ import annotations

import datetime as dt
from typing import Any
from unittest import mock

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from blobsync.s3.endpoint import Proxy
from blobsync.s3.messages import ByteRange, GetSigner, encoded

NOW = dt.datetime(2026, 11, 21, 9, 8, 7, tzinfo=dt.UTC)
HOST = "127.0.0.1:9000"


def headers_of(request: bytes) -> dict[str, str]:
    _, *lines = request.decode().removesuffix("\r\n\r\n").split("\r\n")
    return {name: value for name, _, value in (line.partition(": ") for line in lines)}


def botocore_headers(url: str, wanted: str | None, who: Credentials, region: str) -> dict[str, str]:
    asked = AWSRequest(method="GET", url=url, headers={"Range": wanted} if wanted else {})
    asked.context["signing"] = {"disableDoubleEncoding": True}
    patched: Any = mock.patch("botocore.auth.get_current_datetime", return_value=NOW.replace(tzinfo=None))
    with patched:
        S3SigV4Auth(who, "s3", region).add_auth(asked)
    return {name.lower(): value for name, value in asked.headers.items()}


@pytest.mark.parametrize("wanted", [None, "bytes=0-16777215", "bytes=5-"])
@pytest.mark.parametrize("token", [None, "a/session+token=="])
@settings(deadline=None)
@given(key=st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40))
def test_signature_is_that_of_botocore(key: str, wanted: str | None, token: str | None) -> None:
    who = Credentials("AKID", "secret/of+mine", token)
    path = f"/bucket/{encoded(key)}"

    ours = headers_of(GetSigner(HOST, "eu-west-7").request(path, wanted, who, NOW.timestamp()))
    theirs = botocore_headers(f"http://{HOST}{path}", wanted, who, "eu-west-7")

    assert ours["authorization"] == theirs["authorization"]
    assert ours.get("x-amz-security-token") == token


def test_key_of_the_day_is_derived_anew_when_the_day_or_the_secret_changes() -> None:
    signer = GetSigner(HOST, "r")

    def ask(secret: str, days: int) -> str:
        at = (NOW + dt.timedelta(days=days)).timestamp()
        return headers_of(signer.request("/b/k", None, Credentials("A", secret), at))["authorization"]

    first = ask("one", 0)

    assert len({first, ask("two", 0), ask("one", 1)}) == 3
    assert ask("one", 0) == first


def test_request_never_holds_the_secret_and_neither_does_the_signer() -> None:
    signer = GetSigner(HOST, "r")

    request = signer.request("/b/k", None, Credentials("A", "the-secret"), NOW.timestamp())

    assert b"the-secret" not in request
    assert "the-secret" not in repr(vars(signer))


def test_request_to_a_proxy_names_the_server_and_is_signed_as_without_one() -> None:
    who, at = Credentials("A", "s"), NOW.timestamp()
    header = "Proxy-Authorization: Basic dTpw\r\n"

    plain = GetSigner(HOST, "r").request("/b/k", None, who, at, "x=1")
    proxied = GetSigner(HOST, "r", header).request("/b/k", None, who, at, "x=1")

    assert proxied.startswith(f"GET http://{HOST}/b/k?x=1 HTTP/1.1\r\n".encode())
    assert headers_of(proxied) == headers_of(plain) | {"Proxy-Authorization": "Basic dTpw"}
    assert "dTpw" not in repr(Proxy("10.0.0.2", 3128, header))


@pytest.mark.parametrize(
    ("start", "size_bytes", "header"),
    [(0, None, None), (0, 1, "bytes=0-0"), (5, None, "bytes=5-"), (5, 10, "bytes=5-14")],
)
def test_range_is_asked_for_only_when_a_part_is_wanted(
    start: int, size_bytes: int | None, header: str | None
) -> None:
    assert ByteRange("k", start, size_bytes).header == header
