"""What scripts, magics and the command line use: clusters, runs, and connections to supervisors."""
