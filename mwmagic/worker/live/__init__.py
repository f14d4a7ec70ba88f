"""Live cells in a worker: it runs them, looks names up, and exchanges values with a notebook."""
