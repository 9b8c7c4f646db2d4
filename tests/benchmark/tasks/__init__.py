"""What a task costs: from the end of one to its successor's code, tasks in a second, processor time."""
