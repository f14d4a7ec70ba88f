"""What is known of runs, in words: the only place that turns it into sentences."""
