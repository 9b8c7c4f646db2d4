"""What an attempt costs on its worker's host: processor and wall time of runner and driver."""
