"""Times of pages and lists at the sizes that are promised; see docs/benchmarks.md."""
