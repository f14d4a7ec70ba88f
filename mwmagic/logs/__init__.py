"""Worker logs: what a terminal would show, what is noise, what is progress."""
