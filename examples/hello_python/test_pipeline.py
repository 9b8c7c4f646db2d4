"""A test of the pipeline that needs no cluster: `python -m pytest` in this folder."""

import json

from pipeline import hello


def test_greeting_is_measured() -> None:
    run = hello.test({"name": "you"})

    assert run.state == "succeeded"
    assert json.loads((run.output("measure") / "result.json").read_text())["characters"] == len("Hello, you!")
