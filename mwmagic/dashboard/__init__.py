"""How a notebook or a terminal shows a run."""
