"""`python -m leader`: for operators, and for trying an election out."""
