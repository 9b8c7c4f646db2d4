"""`nimbus cluster`: schedulers, workers, leadership; the state as a whole."""
