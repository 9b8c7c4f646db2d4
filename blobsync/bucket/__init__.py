"""What a bucket holds, whoever keeps it: the port, the keys, the records, and verification."""
