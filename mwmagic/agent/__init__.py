"""The agent: one small process per machine that starts and watches the workers.

It needs nothing but Python and runs as ``python -I -S agent/__main__.py``; both ends of its pipe
share `wire`. `agent` carries out commands, `workers` starts workers and reports
exits, a `process` is one of them with its line and its log, and `family` ends what must not live
on. `fork_server` forks warm workers. `machine` knows this machine and its files, and asks other
programs, such as for the versions of packages; `ports` holds ports and tries those of other
machines, and `system` has the event loop and calls the kernel; `loader` starts the agent on another
machine.
"""
