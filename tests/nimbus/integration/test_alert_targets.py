"""Targets of alerts against real servers, and the threads that send to them."""

from __future__ import annotations

import hashlib
import hmac
import json
import queue
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nimbus.adapters.alerts import Mailbox, WebhookTarget
from nimbus.bootstrap.alerts import alert_targets, alert_tests
from nimbus.bootstrap.late_parts import LateParts
from nimbus.cli.doctor import Level
from nimbus.cli.doctor.services import alert_targets_of
from nimbus.config import Settings, load_settings
from nimbus.domain.cluster.alerts import Alert, AlertEvent, AlertMessage, AlertState, message
from nimbus.domain.ids import PipelineName, RunId
from nimbus.engine.events import AlertTried, Event
from nimbus.engine.sending import AlertSender
from nimbus.ports import AlertNotSentError
from tests.leader.elector_bench import Bench
from tests.nimbus.alert_receivers import mail_server, webhook_server

WITHIN_S = 60.0
ALERT = Alert(
    id="failed.p-1.oncall",
    event=AlertEvent.FAILED,
    target="oncall",
    pipeline=PipelineName("p"),
    run=RunId("p-1"),
    about="run p-1 failed: a",
    raised_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
    state=AlertState.SENDING,
    epoch=3,
    tries=2,
    may_repeat=True,
)
WORDS = message(ALERT, cluster="nimbus", public_url="http://s1:8470")


def test_webhook_gets_a_signed_message_with_the_id_of_the_alert() -> None:
    with webhook_server() as server:
        WebhookTarget(server.url, lambda: "key").send(WORDS)

    ((headers, body),) = server.got
    at, _, mac = headers["Nimbus-Signature"].removeprefix("t=").partition(",v1=")
    assert hmac.new(b"key", f"{at}.".encode() + body, hashlib.sha256).hexdigest() == mac
    assert headers["Idempotency-Key"] == ALERT.id
    said = json.loads(body)
    assert (said["event"], said["run"], said["may_repeat"]) == ("failed", "p-1", True)
    assert said["link"] == "http://s1:8470/ui/runs/p-1"
    assert "nimbus run explain p-1; nimbus run logs p-1 TASK\n" in said["text"]


@pytest.mark.parametrize("status", [302, 404, 500])
def test_webhook_that_does_not_accept_is_an_error_without_its_path(status: int) -> None:
    with webhook_server() as server:
        server.status = status
        with pytest.raises(AlertNotSentError, match=f"^127.0.0.1 answered {status}$"):
            WebhookTarget(server.url, lambda: None).send(WORDS)
    assert "Nimbus-Signature" not in server.got[0][0]


def test_webhook_that_is_not_there_is_an_error_without_its_path() -> None:
    with webhook_server() as server:
        url = server.url
    with pytest.raises(AlertNotSentError, match=r"^127\.0\.0\.1 cannot be reached: .*Connection refused$"):
        WebhookTarget(url, lambda: None).send(WORDS)


def mailbox(port: int) -> Mailbox:
    return Mailbox(
        host="127.0.0.1",
        port=port,
        tls="none",
        sender="nimbus@example.com",
        recipients=("a@example.com", "b@example.com"),
        username=None,
        password=lambda: None,
    )


def test_mail_names_what_happened_and_has_the_id_of_the_alert() -> None:
    with mail_server() as server:
        mailbox(server.port).send(WORDS)

    (mail,) = server.got
    assert mail["To"] == "a@example.com, b@example.com"
    assert mail["Subject"] == "[nimbus] p: failed (may repeat)"
    assert mail["Message-ID"] == "<failed.p-1.oncall@nimbus>"
    assert "run p-1 failed: a" in str(mail.get_payload())


def test_mail_that_is_refused_is_an_error() -> None:
    with mail_server() as server:
        server.refuses = True
        with pytest.raises(AlertNotSentError, match="no such user"):
            mailbox(server.port).send(WORDS)
    with pytest.raises(AlertNotSentError, match="refused"):
        mailbox(server.port).send(WORDS)


def test_mail_that_was_accepted_is_no_error_whatever_the_server_says_to_quit() -> None:
    """An error would send the mail again."""
    with mail_server() as server:
        server.farewell = b"421 shutting down"
        mailbox(server.port).send(WORDS)

    assert len(server.got) == 1


class Hanging:
    """A target that does not answer before the test allows it."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def send(self, message: AlertMessage) -> None:
        self.go_on.wait(WITHIN_S)


class Quick:
    def __init__(self) -> None:
        self.got: list[str] = []

    def send(self, message: AlertMessage) -> None:
        self.got.append(message.id)


def test_target_that_hangs_delays_no_other() -> None:
    told: queue.SimpleQueue[Event] = queue.SimpleQueue()
    hanging, quick = Hanging(), Quick()
    sender = AlertSender(
        {"dead": hanging, "oncall": quick},
        cluster="c",
        public_url="http://s",
        leads_in=lambda _: True,
        enqueue=told.put,
    )
    try:
        sender.start(replace(ALERT, target="dead"))
        sender.start(ALERT)
        assert told.get(timeout=WITHIN_S) == AlertTried(ALERT.claim, None)
        assert quick.got == [ALERT.id]
        sender.start(replace(ALERT, target="gone"))
        unknown = told.get(timeout=WITHIN_S)
        assert isinstance(unknown, AlertTried)
        assert unknown.failure is not None
        assert "has no target gone" in unknown.failure.error
    finally:
        hanging.go_on.set()
        told.get(timeout=WITHIN_S)
        sender.close()


def test_scheduler_that_does_not_know_whether_it_leads_sends_nothing_and_tries_again() -> None:
    quick, told = Quick(), queue.SimpleQueue[Any]()

    sender = AlertSender(
        {"oncall": quick}, cluster="c", public_url="", leads_in=lambda _: False, enqueue=told.put
    )
    sender.start(ALERT)
    news = told.get(timeout=WITHIN_S)
    sender.close()

    assert not quick.got
    assert (news.failure.error, news.failure.doubtful) == (
        "this scheduler did not know whether it leads",
        False,
    )


def test_scheduler_that_leads_again_does_not_send_what_it_claimed_in_an_earlier_epoch(
    eventually: Callable[..., None],
) -> None:
    """The leader in between has sent it, so this try would be an unmarked repetition."""
    quick, told, board, bench = Quick(), queue.SimpleQueue[Any](), LateParts(), Bench("memory", "/e", "")
    member = bench.member("s1")
    board.election = member.elector
    sender = AlertSender(
        {"oncall": quick}, cluster="c", public_url="", leads_in=board.leads_in, enqueue=told.put
    )
    try:
        member.elector.add_to_leader_lock_queue()
        eventually(lambda: len(member.terms) == 1, what="it leads")
        member.elector.abdicate("the test asks for it")
        eventually(lambda: len(member.terms) == 2 and member.elector.is_leader(), what="it leads again")
        earlier, current = (term.epoch for term in member.terms)
        sender.start(replace(ALERT, epoch=earlier))
        assert told.get(timeout=WITHIN_S).failure is not None
        assert not quick.got
        sender.start(replace(ALERT, epoch=current))
        assert told.get(timeout=WITHIN_S).failure is None
        assert quick.got == [ALERT.id]
    finally:
        sender.close()
        bench.end()


def settings(tmp_path: Path, alerts: str) -> Settings:
    file = tmp_path / "nimbus.yaml"
    file.write_text(
        "zookeeper: {hosts: '127.0.0.1:2181'}\nstorage: {bucket: artifacts}\n"
        f"scheduler: {{state_dir: {tmp_path}}}\nworker: {{data: {tmp_path}}}\nalerts:\n  targets:\n{alerts}"
    )
    return load_settings(file, {})


def test_configured_targets_are_tested_and_looked_at(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    with webhook_server() as hook, mail_server() as post:
        found = settings(
            tmp_path,
            f"    oncall: {{kind: webhook, url: '{hook.url}', secret_file: {key}}}\n"
            f"    post: {{kind: mail, smtp: '127.0.0.1:{post.port}', from: n@example.com, to: a@example.com,"
            " tls: none}\n"
            "    keyless: {kind: webhook, url: 'http://127.0.0.1:1/', secret_variable: NOT_SET}\n",
        )
        tests = alert_tests(found, alert_targets(found, {}))
        tests.send("oncall")
        tests.send("post")
        with pytest.raises(AlertNotSentError, match="NOT_SET is not set"):
            tests.send("keyless")
        looked = {finding.check: finding.verdict for finding in alert_targets_of(found, {})}

    assert tests.kinds == {"oncall": "webhook", "post": "mail", "keyless": "webhook"}
    assert "Nimbus-Signature" in hook.got[0][0]
    assert "test of the alert target post" in post.got[0]["Subject"]
    assert looked == {
        "alert target oncall": Level.OK,
        "alert target post": Level.OK,
        "alert target keyless": Level.FAIL,
    }


def test_webhook_that_gives_no_answer_may_have_accepted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def hang_up() -> None:
            connection, _ = server.accept()
            connection.recv(100)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(AlertNotSentError) as refused:
            WebhookTarget(f"http://127.0.0.1:{port}/", lambda: None).send(WORDS)
        thread.join(WITHIN_S)
    assert refused.value.doubtful
    with pytest.raises(AlertNotSentError) as refused:
        WebhookTarget(f"http://127.0.0.1:{port}/", lambda: None).send(WORDS)
    assert not refused.value.doubtful
