"""Runs in the API: how they are found and shown, their routes, and the commands about them."""
