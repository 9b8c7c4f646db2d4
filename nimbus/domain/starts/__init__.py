"""Whether a run or a task may start."""
