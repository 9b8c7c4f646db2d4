"""The pages of a task: its attempts, outputs and log."""
