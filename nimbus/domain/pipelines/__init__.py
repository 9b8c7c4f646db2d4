"""What a pipeline is: its definition, its schedule and intervals, its place in the catalog."""
