"""The task of the benchmark: `task.py FILE LINES SECONDS`. Appends to FILE when its code starts and ends."""

import time

started_ns = time.time_ns()

import json  # noqa: E402 - the first thing that is done is to look at the clock
import os  # noqa: E402
import sys  # noqa: E402

file, lines, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
with open(os.environ["NIMBUS_CONTEXT"]) as document:  # noqa: PTH123 - pathlib is not cheap
    context = json.load(document)
own = f"{os.getpid()} {context['run_id']} {context['task']} {context['attempt']}\n"
marks = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(marks, f"start {started_ns} {own}".encode())
for number in range(lines):
    print(f"line {number} of {context['task']}")  # noqa: T201
if seconds:
    time.sleep(seconds)
os.write(marks, f"end {time.time_ns()} {own}".encode())
