"""What is particular to each framework."""
