"""`python -m leader`: for operators, and to try an election out."""
