"""What mwmagic needs to know about a framework, and each one: TensorFlow, JAX and PyTorch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from mwmagic.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mwmagic.model.cluster import ClusterSpec, Task

__all__ = [
    "GLOO_CONNECTED",
    "GLOO_NOTICE",
    "Framework",
    "Jax",
    "Milestone",
    "TensorFlow",
    "Torch",
    "Xla",
    "tf_config",
]


class Milestone(NamedTuple):
    """A line of a framework's log that shows how far a task's start-up is.

    ``server``: the task listens for the others. ``joined``: it reached the coordination service.
    ``connected``: all tasks have met. ``missing``: it still waits for a number of tasks, which the
    pattern captures as ``count``. ``stragglers``: the next lines name some of them. ``straggler``:
    such a line; the pattern captures ``job`` and ``index``. ``arrived``: that task has joined.

    A `native` line comes from absl's C++ logging, and the pattern is matched at the start of its
    text; in any other line it is searched for.
    """

    kind: str
    pattern: str
    native: bool = True


GLOO_NOTICE = r"\[Gloo\] Rank \d+ is connected to \d+ peer ranks\. Expected [\w ]+: \d+$"
"""What Gloo prints while it connects; all frameworks here use it on CPUs."""

GLOO_CONNECTED = Milestone(
    "connected",
    r"\[Gloo\] Rank \d+ is connected to (\d+) peer ranks\. "
    r"Expected number of connected peer ranks is : \1(?!\d)",
    native=False,
)
"""What Gloo prints once it is connected to all other ranks."""


class Framework:
    """A framework; a subclass declares what differs from these defaults.

    Everything about logs is data: regular expressions as text, which the modules that read logs
    compile on first use. These modules often cannot know which framework printed a line (Keras on
    JAX imports TensorFlow), so they look for the output of any registered framework.
    """

    name: str
    """The name that ``--framework`` takes."""
    title: str
    """Its name in messages."""
    module: str
    """Its Python module."""
    companions: tuple[str, ...] = ()
    """Other modules of which all tasks need the same version."""
    requirements: ClassVar[Mapping[str, str]] = {}
    """The modules that user code may import, each with the pip package that provides it."""
    warm: tuple[str, ...] = ()
    """The modules that a warm process imports, if they are installed."""

    task_types: tuple[str, ...] = ("chief", "worker")
    """The task types that it supports."""
    ranks: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    """The variables for a process's rank and for the number of processes."""
    keras_backend: str | None = None
    """The value of KERAS_BACKEND; None leaves the choice to Keras."""
    holds_port: ClassVar[Mapping[str, str]] = {}
    """Variables that let its server bind a port that mwmagic holds."""
    slurm: ClassVar[Mapping[str, str]] = {}
    """Variables of a task, with the Slurm variables that provide their values."""

    defaults: ClassVar[Mapping[str, str]] = {}
    """Variables that every task gets unless the user sets them, with any framework, since Keras
    imports more than one.
    """
    device_variable: str | None = None
    """The variable for the number of virtual CPU devices."""
    virtual_devices: bool = True
    """Whether a task's CPU can be divided into several devices."""
    early: tuple[str, ...] = ()
    """Prefixes of variables that may be read during the import."""
    late: tuple[str, ...] = ()
    """Variables with such a prefix that are only read after the import, besides those of
    `environment`.
    """
    not_inherited: tuple[str, ...] = ()
    """Variables of the notebook's environment that would mislead a task."""
    imports_set: ClassVar[Mapping[str, str]] = {}
    """Variables that importing it sets in the importing process."""
    threads: ClassVar[Mapping[str, int]] = {}
    """Variables for a number of threads, each with the minimum that works."""
    log_level: tuple[str, str] | None = None
    """The variable, and its value, with which the log shows which tasks listen and which have
    joined; None if the log never does.
    """

    profiler_crashes: bool = False
    """Whether its profiler sometimes crashes the process that it profiles."""

    server: str | None = None
    """The file in ``mwmagic/worker`` that the tasks of a coordinator run; None if a cluster cannot
    be coordinated from outside.
    """
    export_kinds: tuple[str, ...] = ("script", "slurm")
    """The kinds of script as which its runs can be exported."""

    notices: tuple[str, ...] = (GLOO_NOTICE,)
    """The beginnings of lines that mean nothing to a user."""
    native_notices: ClassVar[Mapping[str, str]] = {}
    """Harmless warnings and errors of absl's C++ logging, by source file."""
    native_failures: tuple[str, ...] = ()
    """Text that makes a line worth reading even at absl's info level."""
    continuations: tuple[str, ...] = ()
    """The beginnings of further lines of a notice."""
    graph_dumps: tuple[str, ...] = ()
    batch_dumps: tuple[str, ...] = ()
    """The ends of lines that precede a protocol buffer or a batch's arrays."""
    batch_lines: tuple[str, ...] = ()
    """The beginnings of lines of such arrays."""
    milestones: tuple[Milestone, ...] = (GLOO_CONNECTED,)
    """The lines that show the phases of a start-up."""
    server_addresses: tuple[str, ...] = ()
    """The line with the address of a task's server, which is captured."""
    duplicates: tuple[str, ...] = ()
    """The line in the leader's log that names a task that joined twice; job and index are captured.
    """

    consequences: tuple[str, ...] = (
        r"Connection (?:reset|closed) by peer",
        r"Connection refused",
        r"Socket closed",
        r"Broken pipe",
    )
    """Text of errors raised because another task is gone; case does not matter."""
    silences: tuple[str, ...] = ()
    """Text of such errors if the other task fell silent: one that ends closes its connections."""
    mismatches: tuple[str, ...] = ()
    """Text of errors, often of the same ones, that shows that the tasks do not fit together, so
    that the failure is the task's own.
    """
    port_taken: tuple[str, ...] = ()
    """What the log says if the task's port is in use."""
    blames: tuple[str, ...] = ()
    """The part of an error that names the responsible task; job and index are captured."""
    blames_ranks: tuple[str, ...] = ()
    """The same for a list of ranks, which is captured."""
    blames_leader: tuple[str, ...] = ()
    """Text of errors raised because the leader cannot be reached."""
    frames: tuple[str, ...] = ()
    """Paths of files whose functions wait for other tasks."""
    save_frames: tuple[str, ...] = ()
    """Lines of a stack, as ``faulthandler`` writes them, that are part of a save."""

    def environment(self, spec: ClusterSpec, task: Task) -> dict[str, str]:
        """Return the variables with which `task` finds the other tasks of `spec`."""
        raise NotImplementedError

    def check(self, tasks: Iterable[Task]) -> None:
        """Refuse tasks whose type the framework does not support."""
        odd = [str(task) for task in tasks if task.type not in self.task_types]
        if odd:
            raise ClusterError(
                f"{self.title} clusters have workers only; remove {', '.join(odd)} or use "
                "--framework tensorflow"
            )

    def check_devices(self, count: int) -> None:
        """Refuse a number of virtual devices that tasks cannot have."""
        if count > 1 and not self.virtual_devices:
            raise ClusterError(
                f"{self.title} cannot divide a CPU into {count} devices; leave out "
                "--devices, or start more workers"
            )

    def settings(self, devices: int) -> dict[str, str]:
        """Return the variables that follow from the cluster's options, for every task."""
        return {self.device_variable: str(devices)} if self.device_variable and devices else {}

    def export_note(self, *, keras: str, devices: int) -> str:  # noqa: ARG002 - for subclasses
        """Return comments for an exported script about what only mwmagic can do."""
        return ""

    def logs_start(self, env: Mapping[str, str]) -> bool:
        """Return whether a task logs its start-up in this environment."""
        if self.log_level is None:
            return False
        name, level = self.log_level
        return env.get(name, level) == level

    def _peers(self, spec: ClusterSpec, task: Task) -> tuple[tuple[Task, ...], Task]:
        """Return the tasks in rank order, and the task itself."""
        self.check(spec.tasks)
        return spec.members, spec.find(task)


class Xla(Framework):
    """The common base of the frameworks that are built on XLA."""

    early: tuple[str, ...] = ("ABSL_", "GRPC_", "XLA_")
    late: tuple[str, ...] = ("XLA_FLAGS",)

    notices: tuple[str, ...] = (
        *Framework.notices,
        r"WARNING: All log messages before absl::InitializeLog\(\) is called",
    )
    native_notices: ClassVar[Mapping[str, str]] = {
        "cuda_platform.cc": r"failed call to cuInit: "
        r".*(?:\(303\)|NO_DEVICE|no CUDA-capable device)",
        "cuda_driver.cc": r"failed call to cuInit: .*(?:\(303\)|NO_DEVICE|no CUDA-capable device)",
        "cuda_dnn.cc": r"Unable to register cuDNN factory",
        "cuda_fft.cc": r"Unable to register cuFFT factory",
        "cuda_blas.cc": r"Unable to register cuBLAS factory",
        "computation_placer.cc": r"computation placer already registered",
    }
    native_failures: tuple[str, ...] = (
        r"StartAbort",
        r"unhealthy",
        r"\b(?:UNAVAILABLE|INTERNAL|ABORTED|FAILED_PRECONDITION|UNKNOWN):",
    )

    consequences: tuple[str, ...] = (
        *Framework.consequences,
        r"failed to connect to all addresses",
        r"stopped sending heartbeats",
        r"CoordinationService/",
        r"Error reported from /job:",
        r"\bUNAVAILABLE: ",
    )
    silences: tuple[str, ...] = (r"unhealthy", r"stopped sending heartbeats")
    mismatches: tuple[str, ...] = (
        r"tried to connect with a different incarnation",
        r"expects a different device incarnation",
        r"Heartbeat: Incarnation ID mismatch",
    )
    port_taken: tuple[str, ...] = (
        r"Could not start gRPC server",
        r"Failed to add port to server",
    )  # add_port.cc
    blames: tuple[str, ...] = (
        r"(?:remote target |Error reported from |^)/job:(\w+)/(?:replica:\d+/)?task:(\d+)",
    )
    blames_leader: tuple[str, ...] = (r"CoordinationService/",)


class Jax(Xla):
    """Its processes meet through the variables that ``keras.distribution.initialize`` reads.

    The JAX_ variables repeat them for JAX without Keras. ``jax.distributed.initialize`` reads only
    the coordinator's address of these (``jax/_src/distributed.py``); a script without Keras passes
    it the other two as ``num_processes`` and ``process_id``.
    """

    name = "jax"
    title = "JAX"
    module = "jax"
    companions = ("jaxlib",)
    requirements: ClassVar[Mapping[str, str]] = {"jax": "mwmagic[jax]"}
    warm = ("jax", "keras")

    ranks = ("KERAS_DISTRIBUTION_PROCESS_ID", "JAX_PROCESS_ID")
    sizes = ("KERAS_DISTRIBUTION_NUM_PROCESSES", "JAX_NUM_PROCESSES")
    addresses = ("KERAS_DISTRIBUTION_JOB_ADDRESSES", "JAX_COORDINATOR_ADDRESS")
    keras_backend = "jax"

    device_variable = "JAX_NUM_CPU_DEVICES"
    early = (*Xla.early, "JAX_")
    imports_set: ClassVar[Mapping[str, str]] = {"TF_CPP_MIN_LOG_LEVEL": "1"}  # jax/__init__.py
    threads: ClassVar[Mapping[str, int]] = {"NPROC": 1}  # XLA's thread pool

    milestones = (
        *Xla.milestones,
        Milestone("server", r"Jax service listening on"),
        Milestone("connected", r"Connected to distributed JAX controller"),
    )

    consequences = (*Xla.consequences, r"JAX distributed service detected fatal errors")
    blames_ranks = (r"stopped sending heartbeats\):\n((?:\d+\n)+)",)
    frames = (r"/jax/_src/", r"/jaxlib/")

    def environment(self, spec: ClusterSpec, task: Task) -> dict[str, str]:
        """Return the coordinator's address, the number of processes and this one's rank."""
        peers, task = self._peers(spec, task)
        return {
            **dict.fromkeys(self.addresses, spec.addresses[peers[0]]),
            **dict.fromkeys(self.sizes, str(len(peers))),
            **dict.fromkeys(self.ranks, str(peers.index(task))),
        }


class Torch(Framework):
    """Its processes meet through the variables that ``init_process_group`` reads (``env://``)."""

    name = "torch"
    title = "PyTorch"
    module = "torch"
    requirements: ClassVar[Mapping[str, str]] = {"torch": "torch"}
    warm = ("torch",)

    ranks = ("RANK",)
    sizes = ("WORLD_SIZE",)
    keras_backend = "torch"
    slurm: ClassVar[Mapping[str, str]] = {"LOCAL_RANK": "SLURM_LOCALID"}

    virtual_devices = False
    early = ("PYTORCH_", "TORCH_")

    frames = (r"/torch/(?:distributed|autograd)/",)  # gradients are reduced in `backward`

    def environment(self, spec: ClusterSpec, task: Task) -> dict[str, str]:
        """Return the address of rank 0, the number of processes and this one's ranks."""
        peers, task = self._peers(spec, task)
        host, _, port = spec.addresses[peers[0]].rpartition(":")
        own = spec.addresses[task].rpartition(":")[0]
        beside = [peer for peer in peers if spec.addresses[peer].rpartition(":")[0] == own]
        return {
            "MASTER_ADDR": host.strip("[]"),  # PyTorch resolves it as a name, which has no brackets
            "MASTER_PORT": port,
            "WORLD_SIZE": str(len(peers)),
            "RANK": str(peers.index(task)),
            "LOCAL_RANK": str(beside.index(task)),
        }


_KERAS_NOTE = """\
# Keras 3's Model.fit fails under MultiWorkerMirroredStrategy. If mwmagic is installed,
# `import mwmagic.keras` at the top of the program repairs it; `export TF_USE_LEGACY_KERAS=1`
# avoids it.
"""

_DEVICES_NOTE = """\
# TensorFlow has no variable for virtual devices: the program must create the {count} of each task
# with tf.config.set_logical_device_configuration, right after the import.
"""

_LOGGED = (
    r"INFO:tensorflow:(?:Using |Single-worker |Enabled multi-worker|Waiting for the cluster|"
    r"Cluster is ready|Check health|MultiWorkerMirroredStrategy with|Collective |Reduce to |"
    r"batch_all_reduce|ParameterServerStrategyV2 is|"
    r"`tf.distribute.experimental.ParameterServer)"
)
"""What TensorFlow's strategies log from Python."""

_TASK = r"/job:(?P<job>\w+)/replica:\d+/task:(?P<index>\d+)"


def tf_config(spec: ClusterSpec, task: Task) -> str:
    """Return TF_CONFIG for one task, as JSON.

    The other tasks do not know the evaluator, because it does not take part in
    their collectives. The evaluator itself has an entry in ``cluster``: without
    one, ``MultiWorkerMirroredStrategy`` raises a ``KeyError`` in
    ``multi_worker_util.worker_count``, and ``TFConfigClusterResolver.master``
    a ``ValueError``.
    """
    task = spec.find(task)
    own = {task.type: [spec.addresses[task]]} if task.type == "evaluator" else {}
    cluster = {**spec.groups, **own}
    return json.dumps({"cluster": cluster, "task": {"type": task.type, "index": task.index}})


class TensorFlow(Xla):
    """Its tasks find each other with TF_CONFIG."""

    name = "tensorflow"
    title = "TensorFlow"
    module = "tensorflow"
    companions = ("keras",)
    requirements: ClassVar[Mapping[str, str]] = {
        "tensorflow": "mwmagic[tensorflow]",
        "keras": "mwmagic[tensorflow]",
        "tf_keras": "tf-keras",
    }
    warm = ("tensorflow",)  # this imports Keras too

    task_types = ("chief", "worker", "ps", "evaluator")
    holds_port: ClassVar[Mapping[str, str]] = {"TF_GRPC_REUSE_PORT": "1"}
    # As a profile stops, 2.21 reads the memory of events that are gone: about one time in thirty.
    profiler_crashes = True

    # Only level 0 logs which task waits for which; the noise is hidden when the log is shown.
    defaults: ClassVar[Mapping[str, str]] = {"TF_CPP_MIN_LOG_LEVEL": "0"}
    log_level = ("TF_CPP_MIN_LOG_LEVEL", "0")
    # h5py's and MKL's, which a worker's own import sets again. A notebook that imports TensorFlow
    # while the warm process does must not look as if its user had set them.
    imports_set: ClassVar[Mapping[str, str]] = {
        "HDF5_PLUGIN_PATH": "disable",
        "KMP_DUPLICATE_LIB_OK": "True",
        "KMP_INIT_AT_FORK": "FALSE",
    }
    early = (*Xla.early, "TF_")
    # Read when the strategy is created, or at the first op.
    late = (*Xla.late, "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS")
    not_inherited = ("TF_CONFIG",)
    # With a single inter-op thread, clusters with parameter servers were seen to hang.
    threads: ClassVar[Mapping[str, int]] = {
        "TF_NUM_INTRAOP_THREADS": 1,
        "TF_NUM_INTEROP_THREADS": 2,
    }

    server = "server.py"

    notices = (*Xla.notices, _LOGGED)
    native_notices: ClassVar[Mapping[str, str]] = {
        **Xla.native_notices,
        "py_utils.cc": r"TF-TRT Warning: Could not find TensorRT",
        "dso_loader.cc": r"Could not load dynamic library",
        "dataset.cc": r"Input of GeneratorDatasetOp::Dataset will not be optimized",
        "auto_shard.cc": r"(?:AUTO sharding policy will apply|In AUTO-mode)",
        "local_rendezvous.cc": r".*is aborting with status: OUT_OF_RANGE: End of sequence",
        "generator_dataset_op.cc": r"Error occurred when finalizing GeneratorDataset iterator: "
        r"(?:FAILED_PRECONDITION: Python interpreter state is not|CANCELLED)",
    }
    continuations = (
        r"To enable the following instructions: ",
        r"The error could be from a previous operation\. Restart your program to reset\.",
        r"/job:\w+/replica:\d+/task:\d+$",
        r"\s+\[\[(?:\{\{node )?[\w/.:]+(?:\}\})?\]\]",
    )
    graph_dumps = (r"unshardable source dataset: ", r": goo\.gle/debug\w+ *$")
    batch_dumps = (r"\(PerReplica:\{$",)
    batch_lines = (r"\s*\d+: (?:<tf\.Tensor: shape=|tf\.Tensor\()",)

    milestones = (
        *Xla.milestones,
        Milestone("server", r"Started server with target"),
        Milestone("stragglers", r"Example stragglers:"),
        Milestone("straggler", rf"^{_TASK}$", native=False),
        Milestone("missing", r"Waiting for (?P<count>\d{1,9})/\d+ tasks to connect"),
        Milestone("arrived", rf"{_TASK} has connected to coordination service"),
        Milestone("joined", r"Coordination agent has successfully connected"),
        Milestone(
            "connected",
            r"(?:\[\d+\] )?Barrier\((?:WaitForAllTasks|\[Init\]Wait_for_all_tasks)[^)]*\) "
            r"has passed with status: OK",
        ),
    )
    server_addresses = (r"Started server with target: grpc://(\S+)",)
    duplicates = (
        r"/job:(\w+)/(?:replica:\d+/)?task:(\d+) unexpectedly tried to connect with a different",
        # When the second processes of all tasks have met each other, as they share the ports.
        r"/job:(\w+)/(?:replica:\d+/)?task:(\d+) Heartbeat: Incarnation ID mismatch",
    )

    consequences = (
        *Xla.consequences,
        r"Collective ops is aborted by",
        r"^UnavailableError: ",
    )
    mismatches = (
        *Xla.mismatches,
        r"expected type \d+ and data_type",
        r"Shape mismatch in the collective",
        r"is joining a group with size",
    )
    frames = (r"/tensorflow/python/(?:eager|framework|distribute|ops)/",)
    save_frames = (r'/\w*(?:checkpoint|sav)\w*\.py", line \d+ in \w*save',)

    def environment(self, spec: ClusterSpec, task: Task) -> dict[str, str]:
        """Return TF_CONFIG."""
        return {"TF_CONFIG": tf_config(spec, task)}

    def export_note(self, *, keras: str, devices: int) -> str:
        """Return what the user has to do about Keras 3 and virtual devices."""
        note = _KERAS_NOTE if keras == "auto" else ""
        return note + (_DEVICES_NOTE.format(count=devices) if devices > 1 else "")
