"""The verified local store on one host's disk."""
