"""How a notebook or a terminal shows runs.

`board` follows a run and `widget` shows it (with ``dashboard.js``, and ``chart.js`` for charts);
`feed` is what the open `pages` get: `rows` (the state, by task and host), `journal` (logs) and
`figures` (that programs showed). `static` is for saved notebooks, `terminal` for terminals. `table`
shows recorded runs and `comparison` some side by side (both with ``runs.js``); `browser` holds
these files, and puts a script beside HTML that needs none.
"""
