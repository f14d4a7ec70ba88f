"""What scripts, magics and the command line use: clusters, runs, the line to a supervisor."""
