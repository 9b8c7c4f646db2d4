"""The cost of a task: time from its end to its successor's code, tasks per second, processor time."""
