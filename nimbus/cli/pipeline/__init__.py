"""`nimbus pipeline`: the catalog of pipelines, and what is published."""
