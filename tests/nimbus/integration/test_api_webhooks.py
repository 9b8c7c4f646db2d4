"""A signed request of another system starts a run, once."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import httpx
import pytest

from nimbus.domain.commands import PublishDataset, StartRun
from nimbus.domain.data.publications import Accepted, Partitioning
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.pipelines.catalog import PipelineState
from nimbus.domain.pipelines.pipeline import ParameterSpec
from nimbus.domain.pipelines.webhooks import Signed, Webhook, run_of, signature_of
from tests.nimbus.definitions import active

BODY = json.dumps({"region": "eu", "order": {"count": 3}}).encode()
SECRET = "a secret of tests"


@pytest.fixture
def hooked(world: Any) -> Any:
    """The world with a pipeline that has a webhook, and the API's services with its secret."""
    spec = replace(
        world.spec,
        name=PipelineName("orders"),
        parameters={
            "region": ParameterSpec(type="string", required=True, choices=("eu", "us")),
            "count": ParameterSpec(type="integer", default=1),
        },
        webhook=Webhook(
            secret="orders-hook",
            parameters={"region": "{{ body.region }}", "count": "{{ body.order.count }}"},
        ),
    )
    world.cluster.put(active(spec))
    world.hook_secrets["orders-hook"] = SECRET
    return world


def headers(
    world: Any,
    body: bytes = BODY,
    *,
    delivery: str = "d-1",
    secret: str = SECRET,
    late_s: int = 0,
    target: str = "orders",
) -> dict[str, str]:
    timestamp = str(int(world.clock.now().timestamp()) - late_s)
    signed = Signed(timestamp, delivery, "")
    return {
        "X-Nimbus-Timestamp": timestamp,
        "X-Nimbus-Delivery": delivery,
        "X-Nimbus-Signature": signature_of(secret, target, signed, body),
    }


def post(
    api: httpx.Client, sent: dict[str, str], body: bytes = BODY, pipeline: str = "orders"
) -> httpx.Response:
    url = api.base_url.copy_with(raw_path=f"/hooks/{pipeline}".encode())
    return api.post(url, content=body, headers=sent)


def test_signed_request_starts_a_run_with_parameters_from_its_body(hooked: Any, api: httpx.Client) -> None:
    hooked.deciding = False

    answer = post(api, headers(hooked))

    assert answer.status_code == 202
    (queued,) = hooked.reader.commands()
    run = run_of(PipelineName("orders"), "d-1")
    assert queued.command == StartRun(
        pipeline=PipelineName("orders"), run_id=run, parameters={"region": "eu", "count": 3}
    )
    assert queued.submitted_by == "webhook"
    assert answer.json()["run_id"] == run


def test_one_delivery_starts_one_run_however_often_it_is_sent(hooked: Any, api: httpx.Client) -> None:
    hooked.deciding = False
    first, again, other = (post(api, headers(hooked, delivery=name)) for name in ("d-1", "d-1", "d-2"))

    assert first.json()["run_id"] == again.json()["run_id"] != other.json()["run_id"]


@pytest.mark.parametrize(
    "changed",
    [
        {"X-Nimbus-Signature": "sha256=" + "0" * 64},
        {"X-Nimbus-Signature": "none"},
        {"X-Nimbus-Delivery": "another"},
        {"X-Nimbus-Delivery": "no such/name"},
        {"X-Nimbus-Timestamp": "1"},
        {"X-Nimbus-Timestamp": "now"},
    ],
)
def test_request_that_is_not_signed_as_it_is_sent_is_refused(
    hooked: Any, api: httpx.Client, changed: dict[str, str]
) -> None:
    answer = post(api, headers(hooked) | changed)

    assert (answer.status_code, answer.json()["code"]) == (401, "bad_signature")
    assert hooked.reader.commands() == ()


def test_condition_is_refused_for_a_run_has_no_revision(hooked: Any, api: httpx.Client) -> None:
    answer = post(api, {**headers(hooked), "If-Match": '"1-2"'})

    assert (answer.status_code, answer.json()["code"]) == (409, "no_revision")
    assert hooked.reader.commands() == ()


def test_request_without_any_signature_is_refused(hooked: Any, api: httpx.Client) -> None:
    assert post(api, {}).status_code == 401


def test_request_with_another_body_or_secret_is_refused(hooked: Any, api: httpx.Client) -> None:
    assert post(api, headers(hooked), BODY + b" ").status_code == 401
    assert post(api, headers(hooked, secret="another")).status_code == 401


@pytest.mark.parametrize("late_s", [301, -301])
def test_request_outside_of_the_replay_window_is_refused(hooked: Any, api: httpx.Client, late_s: int) -> None:
    answer = post(api, headers(hooked, late_s=late_s))

    assert (answer.status_code, answer.json()["code"]) == (401, "bad_signature")
    assert "timestamp" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"not json", 409, "bad_body"),
        (b"[" * 100_000, 409, "bad_body"),
        (b"{}", 409, "invalid_parameters"),
        (b'{"region": "mars"}', 409, "invalid_parameters"),
        (b'{"region": 3}', 409, "invalid_parameters"),
        (b"[]", 409, "invalid_parameters"),
        (b'{"region": "eu", "x": "' + b"x" * 300_000 + b'"}', 413, "body_too_large"),
    ],
)
def test_body_that_gives_no_good_parameters_is_refused(
    hooked: Any, api: httpx.Client, body: bytes, status: int, code: str
) -> None:
    answer = post(api, headers(hooked, body), body)

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert hooked.reader.commands() == ()


def test_pipeline_that_is_paused_is_not_started_by_its_webhook(hooked: Any, api: httpx.Client) -> None:
    record = hooked.reader.pipeline(PipelineName("orders"))
    hooked.cluster.put(replace(record, state=PipelineState.PAUSED))

    assert post(api, headers(hooked)).json()["code"] == "not_active"


@pytest.mark.own_application
def test_unknown_hook_is_answered_as_a_wrong_signature(hooked: Any, api: httpx.Client) -> None:
    for unknown, secret in product(("sums", "nosuch"), ("another", "")):
        sent = headers(hooked, secret=secret)

        answer, wrong = post(api, sent, pipeline=unknown), post(api, sent)

        assert (answer.status_code, answer.json()) == (wrong.status_code, wrong.json()), (unknown, secret)
        assert (wrong.status_code, wrong.json()["code"]) == (401, "bad_signature"), (unknown, secret)


@pytest.fixture
def without_secrets(hooked: Any) -> Any:
    """The same world, on a scheduler without a provider of secrets."""
    hooked.hook_secrets = None
    return hooked


@pytest.mark.own_application
def test_scheduler_without_secrets_does_not_tell_which_hooks_there_are(
    without_secrets: Any, api: httpx.Client
) -> None:
    sent = headers(without_secrets)

    answers = [post(api, sent, pipeline=name) for name in ("orders", "sums", "nosuch")]

    assert [answer.json()["code"] for answer in answers] == ["no_secrets"] * 3


@pytest.mark.own_application
def test_strangers_do_not_make_the_provider_of_secrets_run_for_each_request(
    hooked: Any, api: httpx.Client
) -> None:
    sent = headers(hooked) | {"X-Nimbus-Signature": "sha256=" + "0" * 64}

    assert {post(api, sent).status_code for _ in range(5)} == {401}

    assert hooked.hook_secrets.asked == ["orders-hook"]


@pytest.mark.own_application
def test_trouble_of_the_provider_of_secrets_is_not_told_to_strangers(hooked: Any, api: httpx.Client) -> None:
    del hooked.hook_secrets["orders-hook"]

    answers = [post(api, headers(hooked)) for _ in range(2)]

    assert {answer.status_code for answer in answers} == {503}
    assert answers[0].json()["code"] == "secret_unavailable"
    assert "/etc/secrets" not in answers[0].text
    assert len(hooked.hook_secrets.asked) == 1


def test_signed_request_publishes_a_dataset_from_outside_once(hooked: Any, api: httpx.Client) -> None:
    hooked.deciding = False
    landing = Accepted(dataset=DatasetName("landing"), partition=Partitioning.WHOLE)
    webhook = Webhook(secret="orders-hook")
    hooked.cluster.put(
        active(replace(hooked.spec, name=PipelineName("orders"), accepts=(landing,), webhook=webhook))
    )
    body, other = (json.dumps({"uri": uri}).encode() for uri in ("s3://in/1", "s3://in/2"))
    signed = partial(headers, hooked, target="orders/datasets/landing")
    publish, place = partial(post, api, pipeline="orders/datasets/landing"), signed(body)

    assert [publish(place, body).status_code for _ in range(2)] == [202, 202]
    (queued,) = hooked.reader.commands()
    assert queued.command == PublishDataset(dataset=landing.dataset, uri="s3://in/1")
    assert publish(signed(other), other).json()["code"] == "idempotency_key_reused"
    assert publish(place, other).status_code == 401
    assert publish(signed(b"{}", delivery="d-3"), b"{}").json()["code"] == "bad_body"
    others = headers(hooked, body, delivery="d-4", target="orders/datasets/others")
    assert post(api, others, body, "orders/datasets/others").json()["code"] == "not_from_outside"


@pytest.mark.parametrize("target", ["orders", "others", "orders/datasets/others", "others/datasets/landing"])
def test_delivery_to_one_target_is_refused_at_another_one_of_the_same_secret(
    hooked: Any, api: httpx.Client, target: str
) -> None:
    hooked.deciding = False
    accepts = tuple(
        Accepted(dataset=DatasetName(name), partition=Partitioning.WHOLE) for name in ("landing", "others")
    )
    for name in ("orders", "others"):
        webhook = Webhook(secret="orders-hook")
        spec = replace(hooked.spec, name=PipelineName(name), accepts=accepts, webhook=webhook)
        hooked.cluster.put(active(spec))
    body = json.dumps({"uri": "s3://in/1"}).encode()
    captured = headers(hooked, body, target="orders/datasets/landing")

    assert post(api, captured, body, target).json()["code"] == "bad_signature"
    assert post(api, captured, body, "orders/datasets/landing").status_code == 202
