"""What the tasks of the flights pipeline share. Modules that the report imports know nothing of Spark."""
