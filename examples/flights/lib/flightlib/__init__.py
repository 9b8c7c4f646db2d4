"""Code that the tasks of the flights pipeline share. Modules that the report imports do not use Spark."""
