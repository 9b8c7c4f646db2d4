"""`nimbus token`, `login` and `access`: tokens and their roles, and roles on single things and teams."""

from __future__ import annotations

import os
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.lazy import LazyGroup
from nimbus.cli.options import connect, duration, examples, remote, report_command, server_option
from nimbus.cli.output import Columns, Output, clock, output_option
from nimbus.client.servers import keep_tokens, kept_tokens

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
@click.option("--expires", callback=duration, metavar="DURATION", help="Such as 90d. Default: never.")
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
    expires: timedelta | None,
    file: Path | None,
    server_urls: tuple[str, ...],
    output: str,
) -> int:
    """Create a token and print it once. Only its SHA-256 is sent or stored."""
    from nimbus.access.tokens import new_token

    if expires is not None and expires <= timedelta(0):
        raise click.BadParameter("must be longer", param_hint="--expires")
    out, made = Output(output), new_token()
    until = None if expires is None else datetime.now(UTC) + expires
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
    if not out.printed_json({**answer, "token": made.text, "token_id": made.id}):
        out.line(made.text)
    return report_command(out, answer, quiet=True)


@token.command(name="list")
@remote
def list_(api: Api, out: Output) -> None:
    """List the tokens of the cluster, and those in the file of the scheduler that answers."""
    columns: Columns = {
        "token": "id",
        "name": "name",
        "role": "role",
        "teams": lambda row: ", ".join(row["teams"]),
        "made": lambda row: clock(row["created_at"]),
        "by": "created_by",
        "expires": lambda row: clock(row["expires_at"]) or "never",
        "in": lambda row: "file" if row.get("in_file") else "cluster",
    }
    out.listed(api.get("/tokens"), "tokens", columns)


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


def _add_to(
    file: Path, made: NewToken, name: str, role: str, teams: tuple[str, ...], until: datetime | None
) -> None:
    from nimbus import records
    from nimbus.domain.cluster.access import AccessRole, Token

    token = Token(
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
        body = records.TOKENS.encode(records.TokensBody(tokens=(*there, token)))
        part = file.with_suffix(f".{os.getpid()}.part")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "wb") as opened:
            opened.write(body)
        part.replace(file)
    except (OSError, records.UnreadableRecordError) as exc:
        raise CliError(f"{file}: {exc}", code="bad_tokens_file", exit_code=Exit.USAGE) from exc


@click.command(
    epilog=examples(
        "nimbus login --server https://nimbus.example.com:8470",
        "nimbus login < token.txt",
        "nimbus login --forget",
    )
)
@click.option("--forget", is_flag=True, help="Remove the stored token.")
@server_option
@output_option
def login(forget: bool, server_urls: tuple[str, ...], output: str) -> None:
    """Store a token for a scheduler in a file; NIMBUS_TOKEN overrides it. Prompts for the token.

    The token is tested before it is stored. Only you can read the file, ~/.config/nimbus/credentials.json.

    A token of your identity provider (a JWT) works, too, until it expires.
    If a tool renews your token in a file, set NIMBUS_TOKEN_FILE instead: it is read for each request.
    """
    from nimbus.access.oidc import is_jwt
    from nimbus.access.tokens import id_in
    from nimbus.client.api import Api
    from nimbus.client.servers import servers

    out, urls = Output(output), servers(server_urls)
    kept = kept_tokens()
    if forget:
        place = keep_tokens({url: token for url, token in kept.items() if url not in urls})
        for url in urls:
            out.line(f"{'removed the' if url in kept else 'there was no'} token for {url} in {place}")
        return
    token = (click.prompt("token", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if id_in(token) is None and not is_jwt(token):
        raise CliError(
            "that is no token: it begins with nbs_, as `nimbus token create` printed it, or is a JWT.",
            code="bad_token",
            exit_code=Exit.USAGE,
        )
    with Api(urls, token=token) as api:
        who = api.get("/whoami")
    place = keep_tokens({**kept, **dict.fromkeys(urls, token)})
    if out.printed_json(who):
        return
    out.line(f"you are {who['name']} ({who['role']}) for {', '.join(urls)}; the token is in {place}")


_GRANTED = click.Choice(("status", "logs", "viewer", "operator", "author"))
_reason = click.option("--reason", required=True, help="Kept with the grant and with the command.")


@click.group(cls=LazyGroup)
def access() -> None:
    """Give principals and teams roles on things, beside the role of their token.

    WHO is the name of a token or a person, or a team. ON is pipeline:NAME, dataset:NAME, variable:NAME,
    team:OWNER (everything that it owns), or a prefix of names such as 'finance_*'.
    """


@access.command(
    epilog=examples(
        "nimbus access grant finance author team:finance --reason 'ticket 12'",
        "nimbus access grant ada logs pipeline:orders --reason 'on call'",
    )
)
@click.argument("who")
@click.argument("role", type=_GRANTED)
@click.argument("on")
@_reason
@remote
def grant(api: Api, out: Output, who: str, role: str, on: str, reason: str) -> int:
    """Give WHO a ROLE on something; a former role on it is replaced."""
    body = {"who": who, "role": role, "on": on, "reason": reason}
    return report_command(out, api.command("POST", "/grants", body))


@access.command(name="revoke", epilog=examples("nimbus access revoke ada pipeline:orders --reason 'left'"))
@click.argument("who")
@click.argument("on")
@_reason
@remote
def revoke_grant(api: Api, out: Output, who: str, on: str, reason: str) -> int:
    """Take the grant of WHO on something away, also for commands that wait."""
    return report_command(
        out, api.command("POST", "/grants/revoke", {"who": who, "on": on, "reason": reason})
    )


@access.command(epilog=examples("nimbus access show finance"))
@click.argument("who", required=False)
@remote
def show(api: Api, out: Output, who: str | None) -> None:
    """List grants: who gave them, when and why. All but admins see their own."""
    names = ("who", "role", "on", "by", "at", "reason")
    columns: Columns = {name: name for name in names} | {"at": lambda row: clock(row["at"])}
    out.listed(api.get("/grants", who=who), "grants", columns)


@access.command(epilog=examples("nimbus access can ada operator pipeline:orders"))
@click.argument("who")
@click.argument("role", type=_GRANTED)
@click.argument("on")
@remote
def can(api: Api, out: Output, who: str, role: str, on: str) -> int:
    """Tell whether WHO has a ROLE on something, and by which rule. Exit code 7: it has not."""
    answer = api.get("/grants/may", who=who, role=role, on=on)
    if not out.printed_json(answer):
        out.line(f"{'yes' if answer['allowed'] else 'no'}: {answer['why']}")
    return Exit.OK if answer["allowed"] else Exit.DENIED
