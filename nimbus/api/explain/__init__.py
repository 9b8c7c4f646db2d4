"""Explains why a run, a task or a pipeline does not move, as text for people. Facts in, sentences out."""
