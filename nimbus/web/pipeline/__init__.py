"""The pages of pipelines: list, grid, durations, what comes next, and the form of a start."""
