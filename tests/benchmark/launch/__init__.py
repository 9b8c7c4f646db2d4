"""The cost of an attempt on its worker's host: processor and wall time of runner and driver."""
