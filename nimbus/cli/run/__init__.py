"""`nimbus run` and `nimbus task`: start, watch and change runs."""
