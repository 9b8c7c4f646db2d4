"""`nimbus pipeline releases` and `nimbus pipeline diff`: which releases there are, and how two differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.options import examples, remote
from nimbus.cli.output import Columns, Output
from nimbus.cli.words import clock, short, size

if TYPE_CHECKING:
    from nimbus.client.api import Api

_DIGEST = 64
"""Length of a full digest in characters."""


@click.command()
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@remote
def releases(api: Api, out: Output, name: str, limit: int) -> None:
    """List releases of a pipeline, last published first."""
    answer = api.listed(("pipelines", name, "releases"), "releases", limit)
    columns: Columns = {
        "release": "digest",
        "it is": _is,
        "published": lambda one: clock(one["published_at"]),
    }
    out.listed(answer, "releases", columns, empty="nothing")
    if not (out.as_json or answer["complete"]):
        out.note("storage did not answer: only releases of the catalog are listed.")


@click.command(
    epilog=examples(
        "nimbus pipeline diff flights",
        "nimbus pipeline diff flights 8f2a41 --against c03b77 --file load.py",
    )
)
@click.argument("name")
@click.argument("release", required=False)
@click.option("--against", metavar="RELEASE", help="The older release. Default: the active one.")
@click.option("--file", metavar="PATH", help="Print how the text of this file changed.")
@remote
def diff(api: Api, out: Output, name: str, release: str | None, against: str | None, file: str | None) -> int:
    """Show how RELEASE of a pipeline (default: the newest) differs from the active one, or from another.

    Files are compared by their digests. Keys of the definition and texts are compared if the scheduler that
    answers has both releases on its disk. A digest or a prefix of it names a release.
    """
    record = api.get(("pipelines", name))
    after = _digest(api, name, release or record["published"])
    before = _digest(api, name, against or record["release"] or record["published"])
    answer = api.get(("pipelines", name, "releases", after, "diff"), against=before, file=file)
    if out.told(answer):
        return Exit.OK
    out.note(f"from {short(before)} to {short(after)}")
    if file is not None:
        return _tell_text(out, answer["text"])
    _tell(out, answer)
    return Exit.OK


def _tell(out: Output, answer: dict[str, Any]) -> None:
    from nimbus.definition.difference import in_words

    files = [
        (one["change"], one["path"], _file(one["before"]), _file(one["after"])) for one in answer["files"]
    ]
    out.table(("file is", "path", "before", "after"), files, empty="no file differs")
    if (more := answer["files_changed"] - len(files)) > 0:
        out.note(f"and {more} more files")
    if answer["definition"] is None:
        out.note(f"the definitions are not compared: {answer['definition_why_none']}")
        return
    keys = [
        (one["change"], one["key"], in_words(one["before"]), in_words(one["after"]))
        for one in answer["definition"]
    ]
    out.line("")
    out.table(("key is", "key", "before", "after"), keys, empty="no key of the definition differs")


def _tell_text(out: Output, text: dict[str, Any]) -> int:
    if text["diff"] is None:
        out.note(text["why_none"])
        return Exit.REFUSED
    for line in text["diff"]:
        out.line(line)
    return Exit.OK


def _digest(api: Api, name: str, text: str) -> str:
    """Find the full digest of a release by a prefix."""
    if len(text) == _DIGEST:
        return text
    known: list[str] = [
        one["digest"] for one in api.listed(("pipelines", name, "releases"), "releases", 10_000)["releases"]
    ]
    found = [digest for digest in known if digest.startswith(text)]
    if len(found) != 1:
        what = f"{len(found)} releases" if found else "no release"
        raise CliError(
            f"{what} of {name} begin with {text}", code="unknown_release", exit_code=Exit.NOT_FOUND
        )
    return found[0]


def _is(one: dict[str, Any]) -> str:
    said = {"active": one["active"], "the newest": one["newest"], "used by a backfill": one["pinned"]}
    return ", ".join(word for word, holds in said.items() if holds)


def _file(of: dict[str, Any] | None) -> str:
    return "" if of is None else f"{size(of['size_bytes'])} {short(of['sha256'])}"
