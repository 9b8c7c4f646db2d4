"""`nimbus cluster acl`: the access lists of a cluster's nodes in ZooKeeper."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.options import config_option, examples
from nimbus.cli.output import Output, logs_on_stderr, output_option

if TYPE_CHECKING:
    from leader import AclDifference
    from nimbus.adapters.store.calls import StoreSession

CLOSE_LIMIT = timedelta(seconds=5)


@click.command(
    epilog=examples(
        "nimbus cluster acl --config /etc/nimbus.yaml",
        "nimbus cluster acl --fix --config /etc/nimbus.yaml",
        "nimbus cluster acl --fix --also-as former.txt --config /etc/nimbus.yaml",
    )
)
@click.option("--fix", is_flag=True, help="Give these nodes the access list that they should have.")
@click.option(
    "--also-as",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="File with USER:PASSWORD of a user who can administer the nodes now, such as a former password.",
)
@config_option
@output_option
def acl(config: Path | None, output: str, fix: bool, also_as: Path | None) -> int:
    """List the cluster's nodes in ZooKeeper whose access list is not that of zookeeper.username and password.

    Exit code 1 if there are any. With --fix they are corrected, and the exit code is 0. It is safe to repeat,
    also while daemons run; daemons with another password then lose access. Without a username, or with the
    database of a single scheduler, there is nothing to compare, and the command does nothing.
    """
    from nimbus.bootstrap.access_lists import access_lists, why_none
    from nimbus.bootstrap.foundation import open_session
    from nimbus.cli.storage import settings_of

    settings, out = settings_of(config), Output(output)
    if why := why_none(settings):
        if out.as_json:
            _show(out, [], fixed=False)
        out.note(f"nothing to compare: {why}")
        return Exit.OK
    with logs_on_stderr():
        session = open_session(settings)
        try:
            if also_as is not None:
                _add_credential(session, also_as)
            enforcement = access_lists(session, settings)
            assert enforcement is not None  # noqa: S101 - `why_none` said so
            differences = enforcement.fix() if fix else enforcement.check()
        finally:
            session.close(CLOSE_LIMIT)
    _show(out, differences, fixed=fix)
    if fix or not differences:
        return Exit.OK
    out.note("to give them these access lists: --fix")
    return Exit.RUN_FAILED


def _add_credential(session: StoreSession, file: Path) -> None:
    from leader import ZooKeeperSession

    credential = file.read_text().strip()
    if ":" not in credential:
        raise CliError(f"{file} has no USER:PASSWORD", code="bad_credential", exit_code=Exit.USAGE)
    assert isinstance(session, ZooKeeperSession)  # noqa: S101 - the single scheduler's was refused before
    session.call(session.client.add_auth_async, "digest", credential)


def _show(out: Output, differences: list[AclDifference], *, fixed: bool) -> None:
    if out.as_json:
        nodes = [
            {
                "path": one.path,
                "found": [str(entry) for entry in one.found],
                "wanted": [str(entry) for entry in one.wanted],
            }
            for one in differences
        ]
        out.data({"nodes": nodes, "fixed": fixed})
        return
    rows = [(one.path, ", ".join(map(str, one.found)) or "nothing") for one in differences]
    columns = ("node", "was open to" if fixed else "is open to")
    out.table(columns, rows, empty="every node has the access list that it should have")
