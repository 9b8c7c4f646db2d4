"""The process that runs the code of a task, and what starts it."""
