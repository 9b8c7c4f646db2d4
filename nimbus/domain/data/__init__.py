"""What runs leave and read: datasets, their versions, outputs."""
