"""Checks of single texts in a configuration: hosts, addresses, paths in ZooKeeper, ids, keys of Spark."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from nimbus.config.problems import SuggestingError
from nimbus.config.values import described, folder_path
from nimbus.domain.ids import NAME_PATTERN
from nimbus.domain.wording import closest

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)(:(?P<port>\d{1,5}))?")
_PLACE = re.compile(r"(/[A-Za-z0-9._-]+)+")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_S3_URI = re.compile(r"s3://(?P<bucket>[^/]+)(?:/(?P<prefix>.*))?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\$?")
_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


def fitting(pattern: str | re.Pattern[str], message: str) -> Callable[[object], str]:
    """A check that a text fits a pattern. In `message`, which says what is expected, `{}` is the value."""

    def check(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise SuggestingError(message.format(described(value)))
        return value

    return check


function_place = fitting(_FACTORY, "must be package.module:function, not {}")
name_pattern = fitting(
    r"[a-z0-9_*-]{1,63}", "{} is not a pipeline's name, or a pattern of names such as mart_*"
)
member_id = fitting(_ID, "must be 1 to 127 letters, digits, '.', '_', '-' (it is part of paths), not {}")
module_name = fitting(_MODULE, "{} is not the name of a Python module, such as pandas or pyarrow.dataset")
variable_name = fitting(_VARIABLE, "{} is not a name of an environment variable")


def zookeeper_hosts(value: object) -> str:
    """`host:port,host:port/chroot`, or a list of hosts; empty without ZooKeeper."""
    if value == "":
        return ""
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
    if not isinstance(text, str) or not text.strip():
        raise SuggestingError(
            f"must be ZooKeeper's hosts, for example zk1.example.com:2181, not {described(value)}"
        )
    servers, slash, chroot = text.replace(" ", "").partition("/")
    for server in servers.split(","):
        match = _HOST.fullmatch(server)
        if match is None or not 0 < int(match["port"] or 2181) <= 65535:
            raise SuggestingError(f"{server!r} is not host:port; separate hosts with commas")
    if slash and not _PLACE.fullmatch(f"/{chroot}"):
        raise SuggestingError(f"{'/' + chroot!r} is no path in ZooKeeper; write it once, after all hosts")
    return servers + slash + chroot


def elector(value: object) -> str:
    """`zookeeper`, `single`, or `package.module:factory`."""
    if value in ("zookeeper", "single"):
        return str(value)
    if not isinstance(value, str) or not _FACTORY.fullmatch(value):
        raise SuggestingError(
            f"must be zookeeper, single, or package.module:factory, not {described(value)}",
            closest(str(value), ("zookeeper", "single")),
        )
    return value


def zookeeper_path(value: object) -> str:
    """An absolute path in ZooKeeper, not its root."""
    if not isinstance(value, str) or not _PLACE.fullmatch(value) or {".", ".."} & set(value.split("/")):
        raise SuggestingError(
            f"must be an absolute path without a slash at its end, such as /nimbus, not {described(value)}"
        )
    if value.split("/")[1] == "zookeeper":
        raise SuggestingError(f"{value!r} is ZooKeeper's own; take another name")
    return value


def _split(value: object, form: str) -> tuple[str, SplitResult]:
    """Check that a value is an `http(s)` URL; `form` says which. Returns it, and its parts."""
    if not isinstance(value, str):
        raise SuggestingError(f"must be {form}, not {described(value)}")
    try:
        parts = urlsplit(value)
        fits = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, a bracket that is not closed
        fits = False
    if not fits:
        guess = f"http://{value}" if "://" not in value and _HOST.fullmatch(value) else None
        shown = "it" if "@" in value else repr(value)  # the text before an @ may be a password
        raise SuggestingError(f"{shown} is not {form}", guess)
    return value, parts


def url(value: object) -> str:
    """`http(s)://host[:port]`, without credentials, path or query."""
    text, parts = _split(value, "http(s)://host[:port]")
    if parts.username is not None or parts.password is not None:
        raise SuggestingError("must not hold credentials; they have keys of their own")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise SuggestingError(f"{text!r} must end after the host and port")
    return text.rstrip("/")


def link(value: object) -> str:
    """`http(s)://host[:port]/path`, without credentials, for people to open."""
    text, parts = _split(value, "http(s)://host[:port]/path")
    if "@" in parts.netloc or any(char.isspace() for char in text):
        raise SuggestingError("must hold neither credentials nor spaces")
    return text


def safe_url(value: object) -> str:
    """`https://host[:port][/path]`, or `http` to this host; without credentials, query or fragment."""
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
        host = "" if parts is None else parts.hostname or ""
        fits = parts is not None and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        parts, host, fits = None, "", False
    if parts is None or not fits or not host or parts.query or parts.fragment:
        raise SuggestingError("must be https://host[:port][/path], without credentials or query")
    if parts.scheme != "https" and (parts.scheme != "http" or not is_loopback(host)):
        raise SuggestingError("must begin with https://; http:// is for addresses of this host alone")
    return str(value)


def endpoint(value: object) -> str:
    """`http(s)://host[:port]/path`, without credentials, query or fragment."""
    text, parts = _split(value, "http(s)://host[:port]/path")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise SuggestingError("must hold neither credentials nor a query; headers_file is the place for keys")
    if not parts.path.strip("/"):
        raise SuggestingError("lacks the path, such as /v1/traces or /api/v1/lineage")
    return text


def connect_url(value: object) -> str:
    """`sc://host[:port]`; the token is a separate key, and Nimbus sets user and session."""
    match = _HOST.fullmatch(value.removeprefix("sc://")) if isinstance(value, str) else None
    if not isinstance(value, str) or match is None or not value.startswith("sc://"):
        guess = f"sc://{value}" if isinstance(value, str) and _HOST.fullmatch(value) else None
        # The value is not shown, because it may contain a token.
        raise SuggestingError("must be sc://host[:port] and no more; the token is a key of its own", guess)
    if match[1] in ("127.0.0.1", "[::1]"):
        port = match["port"]
        raise SuggestingError(
            "a server of this host is reached without TLS by the name localhost alone",
            f"sc://localhost:{port}" if port else "sc://localhost",
        )
    return value


def is_loopback(host: str) -> bool:
    """True if only this machine can connect to this host."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def listening(value: object) -> str:
    """`host:port` of this machine; an IPv6 address in brackets."""
    match = _HOST.fullmatch(value) if isinstance(value, str) else None
    if not isinstance(value, str) or match is None or not 0 < int(match["port"] or 0) <= 65535:
        raise SuggestingError(f"must be host:port, such as 127.0.0.1:8471, not {described(value)}")
    return value


def host_name(value: object) -> str:
    """A name or address as in a `Host` header, without port."""
    match = _HOST.fullmatch(value) if isinstance(value, str) else None
    if match is None or match["port"] is not None:
        raise SuggestingError(
            f"must be a name or address without port, such as nimbus.example.com or [2001:db8::1], "
            f"not {described(value)}"
        )
    return match[0]


def plain_name(value: object) -> str:
    """Name of a pipeline, a task, or a target."""
    if not isinstance(value, str) or not NAME_PATTERN.fullmatch(value):
        guess = re.sub(r"[^a-z0-9_-]+", "_", str(value).lower()).strip("_")
        raise SuggestingError(
            f"{described(value)} is not a name: 1 to 63 of a-z, 0-9, _ and -, starting with a letter",
            guess if NAME_PATTERN.fullmatch(guess) else None,
        )
    return value


def bucket(value: object) -> str:
    """A bucket's name."""
    if not isinstance(value, str) or not _BUCKET.fullmatch(value):
        hint = "; folders belong into storage.prefix" if isinstance(value, str) and "/" in value else ""
        raise SuggestingError(f"must be a bucket's name, 3 to 63 characters, not {described(value)}{hint}")
    return value


def key_prefix(value: object) -> str:
    """The common prefix of keys in a bucket."""
    if not isinstance(value, str) or any(part in {".", ".."} for part in value.split("/")) or "//" in value:
        raise SuggestingError(f"must be a prefix of keys such as nimbus/prod, not {described(value)}")
    return value.strip("/")


def data_place(value: object) -> str:
    """An absolute folder, or `s3://bucket/prefix`."""
    if not isinstance(value, str) or not value.startswith("s3:"):
        return str(folder_path(value))
    match = _S3_URI.fullmatch(value)
    if match is None:
        raise SuggestingError(f"{value!r} is not s3://bucket or s3://bucket/prefix")
    return f"s3://{bucket(match['bucket'])}/{key_prefix(match['prefix'] or '')}".rstrip("/")


def spark_master(value: object) -> str:
    """A Spark master that a driver in client mode can use."""
    known = ("local", "spark://", "yarn", "k8s://")
    if not isinstance(value, str) or not value.startswith(known):
        raise SuggestingError(
            f"must be a Spark master such as local[2], spark://host:7077 or yarn, not {described(value)}"
        )
    return value


def spark_key(name: object) -> str:
    """A Spark property's name."""
    if not isinstance(name, str) or not name.startswith("spark.") or any(c.isspace() for c in name):
        guess = f"spark.{name}" if isinstance(name, str) and not name.startswith("spark") else None
        raise SuggestingError(f"{described(name)} is no Spark property: they begin with spark.", guess)
    return name


def secret_provider(value: object) -> str | None:
    """The worker's provider of secrets."""
    if value is None or value in ("file", "env", "command"):
        return value
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value):
        raise SuggestingError(
            f"must be file, env, command, or package.module:function, not {described(value)}"
        )
    return value


def user_name(value: object) -> str | None:
    """A Linux user's name, or its number."""
    if value is None:
        return None
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not _USER.fullmatch(text):
        raise SuggestingError(f"must be a Linux user's name or number, not {described(value)}")
    if text in {"root", "0"}:
        raise SuggestingError("tasks do not run as root on behalf of pipelines; name another user")
    return text


def scalar(value: object) -> str:
    """The value of a Spark property or a variable: numbers, true and false become text."""
    return scalar_text("it", value)


def scalar_text(name: str, value: object) -> str:
    """A scalar as text.

    Raises SuggestingError: a list, a mapping, nothing, or text that cannot be passed to a process.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str) and "\0" not in value:
        return value
    hint = "; put it in quotes" if value is None else ""
    raise SuggestingError(f"{name} must be text, a number, true or false, not {described(value)}{hint}")
