"""What a supervisor and its workers agree on: variables, an exit code, how lines begin.

User code may read the variables `TASK`, `ATTEMPT` and `RUN`; the others are for the
bootstrap.
"""

from __future__ import annotations

from mwmagic.agent import wire

TASK = "MWMAGIC_TASK"
"""The task's name, such as ``worker:1``."""

ATTEMPT = "MWMAGIC_ATTEMPT"
"""The number of the attempt, from 1."""

RUN = "MWMAGIC_RUN"
"""The directory of the run's record."""

SOURCE = "MWMAGIC_SOURCE"
"""The copy of the code that runs."""

SCRIPT = "MWMAGIC_SCRIPT"
"""The path of the user's file, under which the copy runs; the bootstrap sets it for children."""

FAILURE_REPORT = "MWMAGIC_FAILURE_REPORT"
"""The file for an uncaught exception, as JSON."""

STACKS = "MWMAGIC_STACKS"
"""The file to which `STACKS_SIGNAL` writes the stack of every thread."""

STACKS_SIGNAL = 50
"""A real-time signal, which user code leaves alone; it may want SIGUSR1 for itself."""

KEEP = "MWMAGIC_KEEP"
"""Set where the process stays when its program is over, and takes live cells."""

ANSWERED = "MWMAGIC_ANSWERED"
"""Set where what the program asks, by `input` or a debugger, can be answered."""

KERAS = "MWMAGIC_KERAS"
"""One of `KERAS_MODES`."""

KERAS_MODES = ("auto", "plain", "legacy")
"""Repair Keras 3, which is the default; leave it alone; use tf-keras."""

HEARTBEAT = "MWMAGIC_HEARTBEAT"
"""Seconds after which TensorFlow gives up a silent peer; 0 leaves the default."""

DEVICES = "MWMAGIC_DEVICES"
"""The number of virtual CPU devices of the process; 0 leaves it to the framework."""

LINE = wire.LINE
"""The descriptor of the worker's private line, which its children do not inherit."""

SCRATCH = wire.SCRATCH
"""A folder for temporary files, which the agent removes after the worker."""

PARAMETER = "MWMAGIC_PARAM_"
"""How the variables begin that hold what `mwmagic.worker.params` shows, each as JSON."""

SESSION = "JPY_SESSION_NAME"
"""The notebook's file, in the environment of a kernel that Jupyter's server started."""

ANNOUNCED = "mwmagic: "
"""How the lines begin that mwmagic itself prints among those of the user's code."""

RESUME_CODE = 42
"""The exit code of TensorFlow's ``PreemptionCheckpointHandler``: state saved, restart me."""

TERMINATED_CODE = 143
"""The exit code of an interpreter of live cells that SIGTERM ended, as shells count signals."""

OVER = '{"over": true, '
"""How the packet begins with which a worker reports that its program is over."""

OVER_BYTES = 2**15
"""The longest such packet."""

FINISH_SECONDS = 30.0
"""How long a program that failed has for its threads and exit handlers: they may be saving."""
