"""`nimbus login`: stores a token for a scheduler."""

from __future__ import annotations

import sys

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.options import examples, server_option
from nimbus.cli.output import Output, output_option
from nimbus.client.credentials import keep_tokens, kept_tokens


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
    if out.told(who):
        return
    out.line(f"you are {who['name']} ({who['role']}) for {', '.join(urls)}; the token is in {place}")
