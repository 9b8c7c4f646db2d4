"""What an attempt is: the order to a worker, its two slots, what the leader decides about it."""
