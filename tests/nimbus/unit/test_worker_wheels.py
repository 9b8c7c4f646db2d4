"""Wheels from outside: safe ones are unpacked, others are refused."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path

import pytest
from packaging.tags import compatible_tags, cpython_tags

from nimbus.worker import libraries
from nimbus.worker.libraries import BadWheelError, unpack_wheel, why_not_here

GOOD = "lib-1.0-py3-none-any.whl"


def _wheel(place: Path, members: dict[str, str], name: str = GOOD, *, mode: int = 0) -> Path:
    place.mkdir(exist_ok=True)
    wheel = place / name
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("lib-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        for member, content in members.items():
            info = zipfile.ZipInfo(member)
            info.external_attr = mode << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return wheel


def test_wheel_is_unpacked_once_into_a_folder_named_by_its_digest(tmp_path: Path) -> None:
    wheel = _wheel(tmp_path / "in", {"lib/__init__.py": "WORD = 1\n", "lib-1.0.data/purelib/other.py": ""})

    first = unpack_wheel(wheel, tmp_path / "out")
    (first / "lib" / "mark").touch()
    second = unpack_wheel(wheel, tmp_path / "out")

    assert first == second
    assert (len(first.name), first.parent) == (64, tmp_path / "out")
    assert (first / "lib" / "__init__.py").read_text() == "WORD = 1\n"
    assert (first / "other.py").exists()
    assert (first / "lib" / "mark").exists()


def _modes(place: Path) -> dict[Path, int]:
    return {path: stat.S_IMODE(path.stat().st_mode) for path in (place, *place.rglob("*"))}


@pytest.mark.parametrize(
    "name", ["../out.py", "/etc/out.py", "lib/../../out.py", "..\\out.py", "lib/..", "..", "a\\..\\b.py"]
)
def test_member_that_would_leave_the_folder_is_refused_and_nothing_stays(tmp_path: Path, name: str) -> None:
    wheel = _wheel(tmp_path / "in", {"lib/good.py": "", name: "x"})

    with pytest.raises(BadWheelError, match="leave its folder"):
        unpack_wheel(wheel, tmp_path / "out")

    assert list((tmp_path / "out").iterdir()) == []
    assert not (tmp_path / "out.py").exists()


@pytest.mark.parametrize("mode", [stat.S_IFLNK | 0o777, stat.S_IFIFO | 0o600, stat.S_IFCHR | 0o600])
def test_member_that_is_no_file_is_refused(tmp_path: Path, mode: int) -> None:
    wheel = _wheel(tmp_path / "in", {"lib/link": "/etc/passwd"}, mode=mode)

    with pytest.raises(BadWheelError, match="no file"):
        unpack_wheel(wheel, tmp_path / "out")


def test_wheel_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "MAX_TOTAL_BYTES", 1_000_000)
    wheel = _wheel(tmp_path / "in", {"lib/zeros.bin": "0" * 5_000_000})
    assert wheel.stat().st_size < 50_000

    with pytest.raises(BadWheelError, match="more than 1000000 bytes"):
        unpack_wheel(wheel, tmp_path / "out")

    assert list((tmp_path / "out").iterdir()) == []


def test_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    wheel = _wheel(tmp_path / "in", {"lib/one.py": "first"})
    with zipfile.ZipFile(wheel, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("lib/one.py", "second")

    with pytest.raises(BadWheelError, match="twice"):
        unpack_wheel(wheel, tmp_path / "out")


def test_file_that_is_no_wheel_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / GOOD
    broken.write_bytes(b"PK\x03\x04 and then nothing")
    plain = tmp_path / "in"
    plain.mkdir()
    with zipfile.ZipFile(plain / GOOD, "w") as archive:
        archive.writestr("lib.py", "")

    with pytest.raises(BadWheelError, match="damaged"):
        unpack_wheel(broken, tmp_path / "out")
    with pytest.raises(BadWheelError, match="dist-info/WHEEL"):
        unpack_wheel(plain / GOOD, tmp_path / "out")


def test_wheel_of_another_platform_is_refused_with_both_platforms_named(tmp_path: Path) -> None:
    wheel = _wheel(tmp_path / "in", {"lib.so": ""}, "lib-1.0-cp311-cp311-win_amd64.whl")

    with pytest.raises(BadWheelError, match=r"win_amd64, and this is linux"):
        unpack_wheel(wheel, tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("a-1-py3-none-any.whl", True),
        ("a-1-py2.py3-none-any.whl", True),
        ("a-1-1b-py3-none-any.whl", True),
        ("a-1-py2-none-any.whl", False),
        ("a-1-py313-none-any.whl", False),
        ("a-1-py38-none-any.whl", True),
        ("a-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("a-1-cp310-cp310-manylinux_2_17_x86_64.whl", False),
        ("a-1-cp38-abi3-manylinux_2_17_x86_64.whl", True),
        ("a-1-cp311-cp311-manylinux_2_17_aarch64.whl", False),
        ("a-1-cp311-cp311-macosx_11_0_x86_64.whl", False),
        ("a-1-cp311-cp311-linux_x86_64.whl", True),
        ("a.whl", False),
        ("a-1-py3-none-any.zip", False),
    ],
)
def test_wheel_name_tells_whether_it_can_be_imported_here(name: str, fits: bool) -> None:
    platforms = ["manylinux_2_17_x86_64", "manylinux2014_x86_64", "linux_x86_64"]
    own = {*cpython_tags((3, 11), ["cp311"], platforms), *compatible_tags((3, 11), "cp311", platforms)}

    assert (why_not_here(name, own) is None) == fits


def test_wheel_for_a_newer_c_library_than_this_host_has_is_refused() -> None:
    assert "manylinux_9_99" in (why_not_here("a-1-py3-none-manylinux_9_99_x86_64.whl") or "")


def test_refusal_of_a_wheel_is_not_much_longer_than_its_name() -> None:
    tags = [".".join("abcdefghijklmnopqrstuvwxyz0123456789")] * 2
    name = f"a-1-{'.'.join(f'py{number}' for number in range(40, 60))}-{'-'.join(tags)}.whl"

    assert tags[0] in (refusal := why_not_here(name) or "")
    assert len(refusal) < len(name) + 100


def test_wheel_whose_version_is_none_is_refused_with_what_is_wrong() -> None:
    assert "invalid version" in (why_not_here("a-latest-py3-none-any.whl") or "")
