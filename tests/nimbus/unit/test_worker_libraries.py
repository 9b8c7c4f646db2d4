"""Which wheels and jars of a release a task uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from nimbus.worker.libraries import BadWheelError, find_jars, find_wheels

ENDING = "-py3-none-any.whl"


def _touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_jars_of_a_task_are_in_the_order_of_its_patterns(tmp_path: Path) -> None:
    _touch(tmp_path, "jars/b.jar", "jars/a.jar", "jars/deep/c.jar", "jars/.hidden.jar", "jars/a.txt")

    assert find_jars(tmp_path, ["jars/deep/*.jar", "jars/*.jar"]) == (
        "jars/deep/c.jar",
        "jars/a.jar",
        "jars/b.jar",
    )
    assert find_jars(tmp_path, ["**/*.jar"]) == ("jars/a.jar", "jars/b.jar", "jars/deep/c.jar")
    assert find_jars(tmp_path, []) == ()


def test_first_pattern_with_a_wheel_of_a_package_wins(tmp_path: Path) -> None:
    new, old, other = f"new/Lib-2.0{ENDING}", f"all/lib-1.0{ENDING}", f"all/other-1.0{ENDING}"
    _touch(tmp_path, new, old, other, f"unnamed/third-1.0{ENDING}")

    assert find_wheels(tmp_path, ["new/*.whl", "all/*.whl"]) == (new, other)
    assert find_wheels(tmp_path, ["all/*.whl"]) == (old, other)
    assert find_wheels(tmp_path, []) == ()


@pytest.mark.parametrize("second", [f"Some_Package-2.0{ENDING}", f"some.package-1.0-1{ENDING}"])
def test_pattern_of_two_wheels_of_one_package_is_refused(tmp_path: Path, second: str) -> None:
    _touch(tmp_path, f"lib/some_package-1.0{ENDING}", second)

    with pytest.raises(BadWheelError, match=r"of the same package as (?i:some.package)"):
        find_wheels(tmp_path, ["**/*.whl"])
