"""Routes of the API by resource, with the models of their answers and bodies. Runs: `nimbus.api.runs`."""
