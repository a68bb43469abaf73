"""This machine's numerics against reference numbers."""
