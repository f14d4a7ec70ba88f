"""TensorFlow, with every strategy of ``tf.distribute``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

from .framework import Milestone, Xla

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mwmagic.model.cluster import ClusterSpec, Task

__all__ = ["TensorFlow", "tf_config"]

_KERAS_NOTE = """\
# Keras 3's Model.fit fails under MultiWorkerMirroredStrategy. Where mwmagic is installed,
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
