"""The pages of runs: list, graph and Gantt."""
