"""What is kept in columns says the same as the objects would."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from blobsync.names import PathSurvey, collision, first_path_fault
from blobsync.release.artifacts import Chosen, repeated, rows_of
from blobsync.release.manifest import Artifact, Manifest, Role

SEGMENTS = st.sampled_from(
    ["a", "A", "b", "B", "\u00e4", "\u00c4", "a.b", "ss", "\u00df", "x\u200by", "..", ""]
)
PATHS = st.lists(st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join), max_size=12).map(sorted)
CONTENTS = st.lists(st.integers(0, 5), max_size=30)


def release(contents: Sequence[int]) -> tuple[Artifact, ...]:
    return tuple(
        Artifact(f"f{index:03d}", content, f"{content:064x}", Role.CODE, bool(index % 2))
        for index, content in enumerate(contents)
    )


@given(paths=PATHS, at_a_time=st.integers(1, 5))
def test_survey_finds_fine_only_what_the_full_checks_do(paths: list[str], at_a_time: int) -> None:
    survey = PathSurvey()
    for start in range(0, len(paths), at_a_time):
        survey.take(paths[start : start + at_a_time])

    if survey.is_fine:
        assert first_path_fault(paths) is None
        assert collision(paths) is None


def test_survey_has_no_doubt_about_an_ordinary_release() -> None:
    survey = PathSurvey()
    survey.take(["README.md", "lib/Deep/a.py", "lib/Deep/b.py", "lib/c.py", "tests/\u00e4.txt"])

    assert survey.is_fine


@given(contents=CONTENTS)
def test_artifacts_are_those_that_were_given_and_so_are_their_columns(contents: list[int]) -> None:
    given_ = release(contents)

    made = Manifest("p", given_)
    read = Manifest.parse(made.canonical)

    for manifest in (made, read):
        assert manifest.artifacts == given_
        assert [manifest.artifacts[index] for index in range(len(given_))] == list(given_)
        assert tuple(manifest.artifacts[1:3]) == given_[1:3]
        assert manifest.size_bytes == sum(set(contents))
        assert list(rows_of(manifest.artifacts)) == list(rows_of(given_))
        assert dict(manifest.blobs) == {item.sha256: item.blob for item in given_}
        assert manifest.blobs is manifest.blobs


@given(contents=CONTENTS, chosen=st.sets(st.integers(0, 5)))
def test_some_of_the_artifacts_are_a_view_of_them(contents: list[int], chosen: set[int]) -> None:
    given_ = release(contents)
    files = Manifest("p", given_).files
    indices = array("I", [index for index, content in enumerate(contents) if content in chosen])

    some = files.only(indices)

    assert some == tuple(given_[index] for index in indices)
    assert list(rows_of(some)) == list(rows_of([given_[index] for index in indices]))
    assert len(indices) == len(given_) or some == Chosen(files, indices)


@given(numbers=st.lists(st.integers(0, 9), max_size=20))
def test_repeated_digests_are_those_that_were_there_before(numbers: list[int]) -> None:
    digests = b"".join(number.to_bytes(32, "big") for number in numbers)

    assert repeated(digests) == {index for index, number in enumerate(numbers) if number in numbers[:index]}
