"""How a notebook or a terminal shows runs.

`board` follows a run and has the widget that shows it (with ``dashboard.js``, and ``chart.js`` for
charts); `feed` is what its open pages get: `rows` (the state, by task and host) and `journal`
(logs, and figures that programs showed). `static` is for saved notebooks, `terminal` for terminals,
and `runs` shows recorded runs in a table or side by side (with ``runs.js``). `sweep` shows the
trials of a sweep, live and saved (with ``sweep.js``), and a scaling study; `exports` writes runs
for other tools.
"""
