"""`nimbus token`: tokens and their roles."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import connect, examples, remote, report_command, server_option
from nimbus.cli.output import Output, output_option
from nimbus.cli.words import clock

if TYPE_CHECKING:
    from nimbus.access.tokens import NewToken
    from nimbus.client.api import Api

_ROLES = ("none", "status", "logs", "viewer", "operator", "author", "admin")


@click.group(cls=LazyGroup)
def token() -> None:
    """Create, list and revoke tokens."""


@token.command(
    epilog=examples(
        "nimbus token create ada --role admin --file /etc/nimbus/tokens.json",
        "nimbus token create ci-sales --role author --team sales --expires 90d",
    )
)
@click.argument("name")
@click.option("--role", required=True, type=click.Choice(_ROLES), help="What the token permits.")
@click.option("--team", "teams", multiple=True, metavar="TEAM", help="Owner of pipelines; repeat for more.")
@click.option("--expires", metavar="DURATION", help="Such as 90d. Default: never.")
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Add it to this file (for api.tokens_file) without a server: for the first token.",
)
@server_option
@output_option
def create(
    name: str,
    role: str,
    teams: tuple[str, ...],
    expires: str | None,
    file: Path | None,
    server_urls: tuple[str, ...],
    output: str,
) -> int:
    """Create a token and print it once. Only its SHA-256 is sent or stored."""
    from nimbus.access.tokens import new_token

    out, made, until = Output(output), new_token(), _expiry(expires)
    if file is not None:
        _add_to(file, made, name, role, teams, until)
        said = {"token": made.text, "token_id": made.id}
        out.data(said) if out.as_json else out.line(made.text)
        return Exit.OK
    body = {
        "name": name,
        "role": role,
        "teams": list(teams),
        "sha256": made.sha256,
        "expires_at": None if until is None else until.isoformat(),
    }
    with connect(server_urls) as api:
        answer = api.command("PUT", f"/tokens/{made.id}", body)
    if not out.told({**answer, "token": made.text, "token_id": made.id}):
        out.line(made.text)
    return report_command(out, answer, quiet=True)


@token.command(name="list")
@remote
def list_(api: Api, out: Output) -> None:
    """List the tokens of the cluster, and those in the file of the scheduler that answers."""
    answer = api.get("/tokens")
    if out.told(answer):
        return
    rows = [
        (
            row["id"],
            row["name"],
            row["role"],
            ", ".join(row["teams"]),
            clock(row["created_at"]),
            row["created_by"],
            clock(row["expires_at"]) if row["expires_at"] else "never",
            "file" if row.get("in_file") else "cluster",
        )
        for row in answer["tokens"]
    ]
    out.table(("token", "name", "role", "teams", "made", "by", "expires", "in"), rows, empty="no tokens")


@token.command(epilog=examples("nimbus token revoke 5a6c2ea59110"))
@click.argument("token_id")
@remote
def revoke(api: Api, out: Output, token_id: str) -> int:
    """Make a token invalid, for requests and for waiting commands."""
    from nimbus.access.tokens import TOKEN_ID

    if re.fullmatch(TOKEN_ID, token_id) is None:
        said = f"{token_id!r} is no id of a token: `nimbus token list` shows them"
        raise click.BadParameter(said, param_hint="TOKEN_ID")
    return report_command(out, api.command("DELETE", f"/tokens/{token_id}"))


def _expiry(text: str | None) -> datetime | None:
    from nimbus.config.problems import SuggestingError
    from nimbus.config.values import parse_duration

    if text is None:
        return None
    try:
        lasts = parse_duration(text)
    except SuggestingError as exc:
        raise click.BadParameter(str(exc), param_hint="--expires") from exc
    if lasts <= timedelta(0):
        raise click.BadParameter("must be longer", param_hint="--expires")
    return datetime.now(UTC) + lasts


def _add_to(
    file: Path, made: NewToken, name: str, role: str, teams: tuple[str, ...], until: datetime | None
) -> None:
    """Add a token to a file, atomically."""
    from nimbus import records
    from nimbus.domain.access import AccessRole, Token

    found = Token(
        id=made.id,
        name=name,
        role=AccessRole(role),
        teams=teams,
        sha256=made.sha256,
        created_at=datetime.now(UTC),
        expires_at=until,
    )
    try:
        there = records.TOKENS.decode(file.read_bytes(), str(file)).tokens if file.exists() else ()
        body = records.TOKENS.encode(records.TokensBody(tokens=(*there, found)))
        part = file.with_suffix(f".{os.getpid()}.part")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "wb") as opened:
            opened.write(body)
        part.replace(file)
    except (OSError, records.UnreadableRecordError) as exc:
        raise CliError(f"{file}: {exc}", code="bad_tokens_file", exit_code=Exit.USAGE) from exc
