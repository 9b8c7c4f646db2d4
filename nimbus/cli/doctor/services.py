"""Checks of other services: Spark targets, alert targets, collectors, the identity provider."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from nimbus.cli.doctor import DEADLINE_S, CheckResult, Level, fail, listens, ok, warn

if TYPE_CHECKING:
    from nimbus.config import Settings
    from nimbus.config.services import AlertTargetSection
    from nimbus.worker.targets import SparkTarget

_RIGHTS = {
    "pods": ("create", "get", "list", "watch", "delete"),
    "services": ("create", "patch"),
    "configmaps": ("create", "get", "patch"),
    "networkpolicies": ("create", "patch"),
}
"""The rights that a submission, a worker that follows it, and a driver on the worker's host need."""
_GROUPS = {"networkpolicies": "networking.k8s.io"}
"""API groups of resources; all others are in the core group."""


class _Answer(NamedTuple):
    """A response of an HTTP server."""

    status: int
    said: Mapping[str, Any]


def targets(known: Mapping[str, SparkTarget]) -> Iterator[CheckResult]:
    """Check each configured target."""
    for name, target in known.items():
        yield _target(f"target {name}", target)


def _target(check: str, target: SparkTarget) -> CheckResult:
    from nimbus.worker.targets import TargetError, TargetKind

    checks: dict[TargetKind, Callable[[str, SparkTarget], CheckResult]] = {
        TargetKind.LOCAL: lambda check, target: ok(check, f"{target.master} on the worker's host"),
        TargetKind.CONNECT: _connect,
        TargetKind.STANDALONE: _standalone,
        TargetKind.YARN: _yarn,
        TargetKind.KUBERNETES: _kubernetes,
    }
    try:
        return checks[target.kind](check, target)
    except TargetError as exc:
        return fail(check, str(exc), "correct token_file or token_variable")


def _connect(check: str, target: SparkTarget) -> CheckResult:
    from nimbus.worker.connect.session import ConnectSessionError, MissingPackagesError, version_of

    try:
        version = version_of(target.plan())
    except (MissingPackagesError, ConnectSessionError) as exc:
        return fail(check, str(exc), "start that server, or correct url and token of the target")
    return _judged_version(check, f"{target.url} answers", version)


def _standalone(check: str, target: SparkTarget) -> CheckResult:
    """Check every master and every REST server; one of several may be down."""
    masters = target.master.removeprefix("spark://").split(",")
    away = [master for master in masters if not _is_open(master)]
    if len(away) == len(masters):
        return fail(check, f"no master answers: {', '.join(away)}", "start one, or correct master")
    if not target.rest:
        return _some_away(
            check, away, f"{len(masters) - len(away)} of {len(masters)} masters answer; no rest"
        )
    token = target.token()
    answers = {url: _get(f"{url}/v1/submissions/readyz", token) for url in target.rest}
    away += [url for url, answer in answers.items() if answer is None]
    refused = [url for url, answer in answers.items() if answer is not None and answer.status in (401, 403)]
    if refused:
        return fail(check, f"{', '.join(refused)} refuse us", "correct token_file or token_variable")
    leading = [url for url, answer in answers.items() if answer is not None and answer.status == 200]
    if not leading:
        said = "; ".join(f"{url}: {_reason(answer)}" for url, answer in answers.items())
        advice = "wait for a master to lead, or set spark.master.rest.enabled on the masters"
        return fail(check, f"no REST server takes drivers: {said}", advice)
    answer = answers[leading[0]]
    version = "" if answer is None else str(answer.said.get("serverSparkVersion", ""))
    judged = _judged_version(check, f"{leading[0]} leads", version)
    return judged if judged.verdict is not Level.OK else _some_away(check, away, judged.detail)


def _yarn(check: str, target: SparkTarget) -> CheckResult:
    folder = Path(target.env["HADOOP_CONF_DIR"])
    missing = [name for name in ("core-site.xml", "yarn-site.xml") if not (folder / name).is_file()]
    if missing:
        return fail(check, f"{folder} has no {', '.join(missing)}", "correct hadoop_conf_dir")
    if not target.rest:
        return ok(check, f"{folder}; no rest, so the ResourceManager is not asked")
    answers = {url: _get(f"{url}/ws/v1/cluster/info") for url in target.rest}
    infos = {
        url: answer.said.get("clusterInfo", {})
        for url, answer in answers.items()
        if answer is not None and answer.status == 200
    }
    active = [url for url, info in infos.items() if info.get("haState", "ACTIVE") == "ACTIVE"]
    if not active:
        said = "; ".join(f"{url}: {_reason(answer)}" for url, answer in answers.items())
        advice = "start it, or correct rest; with Kerberos it must let this user read /ws/v1/cluster"
        return fail(check, f"no ResourceManager is active: {said}", advice)
    away = [url for url, answer in answers.items() if answer is None]
    known = f"{active[0]} is active, Hadoop {infos[active[0]].get('hadoopVersion', '?')}"
    judged = _queue(check, active[0], target)
    if judged.verdict is Level.FAIL:
        return fail(check, f"{known}; {judged.detail}", judged.advice)
    return _some_away(check, away, f"{known}; {judged.detail}")


def _queue(check: str, url: str, target: SparkTarget) -> CheckResult:
    """Check that the queue exists and that we may submit to it, if YARN reports that."""
    from nimbus.worker.application.yarn import hadoop_user, queues

    queue, user = target.conf.get("spark.yarn.queue", "default"), hadoop_user(target.env)
    answer = _get(f"{url}/ws/v1/cluster/scheduler")
    root = {} if answer is None else answer.said.get("scheduler", {}).get("schedulerInfo", {})
    names = {str(row.get(key)) for row in queues(root) for key in ("queueName", "queuePath")}
    if root.get("type") == "capacityScheduler" and queue not in names:
        return fail(check, f"it has no queue {queue}", "correct spark.yarn.queue in conf")
    query = urlencode({"user": user})
    answer = _get(f"{url}/ws/v1/cluster/queues/{quote(queue, safe='')}/access?{query}")
    said = {} if answer is None else answer.said
    allowed = said.get("allowed", said.get("rmQueueAclInfo", {}).get("allowed"))
    if allowed is None:  # only administrators of the queue may ask
        return ok(check, f"it does not tell whether {user} may submit to queue {queue}")
    if str(allowed).lower() != "true":
        advice = f"give {user} the right SUBMIT_APPLICATIONS, or correct spark.yarn.queue in conf"
        return fail(check, f"{user} may not submit to queue {queue}", advice)
    return ok(check, f"{user} may submit to queue {queue}")


def _kubernetes(check: str, target: SparkTarget) -> CheckResult:
    server = target.master.removeprefix("k8s://")
    server = server if "://" in server else f"https://{server}"
    token = target.token()
    try:
        verify = ssl.create_default_context(cafile=target.ca_file)
    except OSError as exc:
        return fail(check, f"{target.ca_file} cannot be read: {exc}", "correct ca_file")
    answer = _get(f"{server}/version", token, verify)
    if answer is None:
        return fail(check, f"{server} does not answer", "start it, or correct master and ca_file")
    if answer.status in (401, 403):
        return fail(check, f"{server} refuses us: {answer.status}", "correct token_file")
    known = f"{server} answers, Kubernetes {answer.said.get('gitVersion', '?')}"
    if token is None:
        return ok(check, f"{known}; no token_file, so rights are not asked")
    namespace = target.conf["spark.kubernetes.namespace"]
    denied = [
        f"{verb} {kind}"
        for kind, verbs in _RIGHTS.items()
        for verb in verbs
        if not _may(server, namespace, verb, kind, token, verify)
    ]
    if denied:
        advice = f"give the token's account a role in namespace {namespace} that may do this"
        return fail(check, f"{known}; may not {', '.join(denied)} in {namespace}", advice)
    file = target.conf.get("spark.kubernetes.authenticate.submission.oauthTokenFile")
    if file is not None and Path(file).read_bytes().endswith((b"\n", b"\r")):
        advice = "write it without one: printf %s TOKEN"
        return fail(check, f"{known}; token_file ends with a newline, which Spark refuses", advice)
    return ok(check, f"{known}; may do with {', '.join(_RIGHTS)} in {namespace} what is needed")


def _may(server: str, namespace: str, verb: str, kind: str, token: str, verify: ssl.SSLContext) -> bool:
    attributes = {"namespace": namespace, "verb": verb, "resource": kind, "group": _GROUPS.get(kind, "")}
    review = {"spec": {"resourceAttributes": attributes}}
    form = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    place = f"{server}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = _ask("POST", place, token, verify, {**form, **review})
    return answer is not None and bool(answer.said.get("status", {}).get("allowed"))


def _some_away(check: str, away: list[str], detail: str) -> CheckResult:
    if away:
        return warn(check, f"{detail}; {', '.join(away)} do not answer", "start them again")
    return ok(check, detail)


def _judged_version(check: str, detail: str, theirs: str) -> CheckResult:
    from importlib.metadata import version

    ours = version("pyspark")
    if theirs.split(".")[:2] != ours.split(".")[:2]:
        advice = "install the version of PySpark that the cluster has"
        return warn(check, f"{detail}, Spark {theirs or '?'}; ours is {ours}", advice)
    return ok(check, f"{detail}, Spark {theirs}")


def _reason(answer: _Answer | None) -> str:
    if answer is None:
        return "does not answer"
    return str(answer.said.get("message") or f"status {answer.status}")


def _is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=DEADLINE_S):
            return True
    except (OSError, OverflowError):  # the port is too high
        return False


def _get(url: str, token: str | None = None, verify: ssl.SSLContext | None = None) -> _Answer | None:
    return _ask("GET", url, token, verify, None)


def _ask(
    method: str, url: str, token: str | None, verify: ssl.SSLContext | None, body: Mapping[str, Any] | None
) -> _Answer | None:
    """Send one request. None: no answer."""
    import httpx

    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        answer = httpx.request(
            method,
            url,
            headers=headers,
            json=body,
            timeout=DEADLINE_S,
            verify=True if verify is None else verify,
        )
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    try:
        said = answer.json()
    except ValueError:
        said = {}
    return _Answer(answer.status_code, said if isinstance(said, dict) else {})


_PORTS = {"http": 80, "https": 443}


def alert_targets_of(settings: Settings, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Is each target's secret readable, and does it accept connections? No message is sent."""
    from nimbus.bootstrap.alerts import missing_extras, secret_of
    from nimbus.ports import AlertNotSentError

    missing = {problem.key: problem for problem in missing_extras(settings)}
    for name, target in settings.alerts.targets.items():
        check, problem = f"alert target {name}", missing.get(f"alerts.targets.{name}")
        if problem is not None:
            yield fail(check, "the extra apprise is not installed", problem.message)
            continue
        try:
            secret = secret_of(name, target, environ)
        except AlertNotSentError as exc:
            yield fail(check, str(exc), "correct secret_file or secret_variable")
            continue
        if target.kind == "apprise":
            yield _known(check, secret or "")
        else:
            advice = "correct it, or let this host reach it: alerts wait until then"
            yield listens(check, *_place(target), advice, _test(check))


def _known(check: str, url: str) -> CheckResult:
    """Does Apprise know the URL? Only a message would show that the service exists."""
    from nimbus.adapters.alerts import service_of
    from nimbus.ports import AlertNotSentError

    try:
        service_of(url)
    except AlertNotSentError as exc:
        return fail(check, str(exc), "correct the URL")
    return ok(check, f"Apprise knows its URL; {_test(check)}")


def _test(check: str) -> str:
    return f"`nimbus alert test {check.rpartition(' ')[2]}` sends a message"


def _place(target: AlertTargetSection) -> tuple[str, int]:
    if target.smtp is not None:
        host, _, port = target.smtp.rpartition(":")
        return host.strip("[]"), int(port)
    parts = urlsplit("" if target.url is None else target.url.get_secret_value())
    return parts.hostname or "", parts.port or _PORTS[parts.scheme]


def telemetry_of(settings: Settings) -> Iterator[CheckResult]:
    """Is the library of each collector installed, and is a server there? No data is sent."""
    from nimbus.adapters.telemetry.sink import read_headers
    from nimbus.bootstrap.telemetry import missing_extras
    from nimbus.ports import TelemetryNotSentError

    missing = {problem.key: problem.message for problem in missing_extras(settings)}
    traces, lineage = settings.telemetry.traces, settings.telemetry.lineage
    for kind, section, url in (
        ("traces", traces, None if traces is None else traces.endpoint),
        ("lineage", lineage, None if lineage is None else lineage.url),
    ):
        check = f"telemetry.{kind}"
        if section is None:
            continue
        if check in missing:
            yield fail(check, "its library is not installed", missing[check])
            continue
        try:
            read_headers(section.headers_file)
        except TelemetryNotSentError as exc:
            yield fail(check, str(exc), "correct headers_file")
            continue
        if url is not None:
            parts = urlsplit(url)
            advice = f"correct it, or let this host reach it: {kind} waits, and is dropped after some time"
            yield listens(check, parts.hostname or "", parts.port or _PORTS[parts.scheme], advice)


def identity_provider_of(settings: Settings) -> Iterator[CheckResult]:
    """Fetch the provider's description and keys, as a scheduler does."""
    from prometheus_client import CollectorRegistry

    from nimbus.bootstrap.access import build_jwts, build_provider
    from nimbus.config import InvalidConfigurationError
    from nimbus.ports import IdentityProviderError

    check = "identity provider"
    try:
        provider = build_provider(settings, build_jwts(settings), CollectorRegistry())
        if provider is None:
            return
        keys = asyncio.run(provider.fetch())
    except InvalidConfigurationError as exc:
        yield fail(check, "the extra oidc is not installed", exc.problems[0].message)
    except IdentityProviderError as exc:
        advice = "correct oidc.issuer, or let this host reach it: tokens of Nimbus work without it"
        yield fail(check, f"{settings.oidc.issuer}: {exc}", advice)
    else:
        yield ok(check, f"{settings.oidc.issuer} publishes keys for signatures: {keys}")
