"""What a run is: how it is created, lives and ends, and what remains of it."""
