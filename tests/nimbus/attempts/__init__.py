"""Random histories of one attempt's core, with laws, and faults that the laws must find."""
