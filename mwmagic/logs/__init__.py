"""Worker logs: their visible text, and in it noise, errors and progress."""
