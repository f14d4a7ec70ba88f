"""The failures that people run into, each with its meaning and what to do.

An entry's signs are what the user sees: text that TensorFlow, Keras, Python or
mwmagic prints, with ``...`` for what varies. What stands for the first ``...``
is ``{0}`` in the remedy. The more special entry comes first. Each sign was
provoked with the installed TensorFlow, by a test of the entry's name.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KNOWN", "NOTICES", "STALLS", "Known"]


@dataclass(frozen=True)
class Known:
    """A failure that is known.

    Parameters
    ----------
    name : str
        Its name, as the documentation and the tests have it.
    title : str
        What it is, in a few words.
    signs : tuple of str
        How it shows.
    meaning : str
        What it means, in a sentence or two.
    remedy : str
        What to try.
    link : str
        Where to read on.
    """

    name: str
    title: str
    signs: tuple[str, ...]
    meaning: str
    remedy: str
    link: str


_TUTORIAL = "https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras"
_SAVING = f"{_TUTORIAL}#model_saving_and_loading"
_SHARDING = "https://www.tensorflow.org/api_docs/python/tf/data/experimental/AutoShardPolicy"

_LEAVE_TF_CONFIG = (
    "take what sets TF_CONFIG out of the code: mwmagic sets it for each task, and "
    "`json.loads(os.environ['TF_CONFIG'])` reads it"
)
_GUARD = "make the strategy, and all that follows, below `if __name__ == '__main__':`"

KNOWN = (
    # Keras.
    Known(
        "keras-plain",
        "Keras 3 under MultiWorkerMirroredStrategy",
        (
            "Attempt to convert a value (PerReplica:",
            "Invalid reduction dimension 0 for input with 0 dimensions",
        ),
        "Keras 3 cannot reduce what several workers return, so that `fit` and `evaluate` fail "
        "on every worker.",
        "use `--keras auto`, which repairs that and is the default, or `--keras legacy` (tf-keras)",
        "https://github.com/keras-team/keras/issues/20585",
    ),
    Known(
        "no-extension",
        "Saving without an extension",
        (
            "Invalid filepath extension for saving",
            "the filepath provided must end in `.weights.h5`",
            "The filepath provided must end in `.keras`",
            "The filename must end in `.weights.h5`",
        ),
        "Keras 3 tells the format of a file by its extension, and writes no SavedModel directories "
        "with `save`.",
        "save to `model.keras`, weights to `model.weights.h5`, and a SavedModel with "
        "`model.export(directory)`",
        "https://github.com/keras-team/keras-core/pull/674",
    ),
    Known(
        "saved-model",
        "Loading a SavedModel",
        ("the legacy SavedModel format is not supported by `load_model()` in Keras 3",),
        "Keras 3 loads `.keras` and `.h5` files only.",
        "load it with `tf.saved_model.load`, or use `--keras legacy` (tf-keras)",
        "https://keras.io/guides/migrating_to_keras_3/",
    ),
    Known(
        "reset-states",
        "A method of Keras 2",
        ("object has no attribute 'reset_states'",),
        "Keras 3 calls it `reset_state`; TensorFlow's custom-loop tutorial still has the old name.",
        "write `reset_state()`, or use `--keras legacy` (tf-keras)",
        "https://github.com/tensorflow/docs/pull/2337",
    ),
    Known(
        "tensorboard-missing",
        "TensorBoard is not installed",
        ("TensorBoard is not installed, missing implementation for",),
        "TensorFlow no longer installs TensorBoard with itself, and the callback needs it.",
        "`%pip install tensorboard`",
        "https://github.com/stared/livelossplot/pull/152",
    ),
    # The cluster.
    Known(
        "op-before-strategy",
        "Operations before the strategy",
        ("Collective ops must be configured at program startup",),
        "TensorFlow ran an operation before the strategy was made. Tensors, datasets, models and "
        "`list_logical_devices()` do; `list_physical_devices()` and `set_random_seed()` do not.",
        "make the strategy right after `import tensorflow`",
        "https://github.com/tensorflow/tensorflow/issues/34568",
    ),
    Known(
        "port-taken",
        "The port is taken",
        ("Could not start gRPC server", "Failed to add port to server"),
        "Somebody else listens on the task's port, also after moving to other ports. mwmagic holds "
        "its ports, so this is an address of the code's own, or TF_GRPC_REUSE_PORT was unset.",
        "leave TF_CONFIG and TF_GRPC_REUSE_PORT as they are; `ss -ltnp` shows who listens",
        "https://github.com/kubeflow/kubeflow/issues/1931",
    ),
    Known(
        "tf-config-malformed",
        "TF_CONFIG is no JSON",
        ("tfconfig_cluster_resolver.py...JSONDecodeError: ",),
        "The code sets TF_CONFIG to something that cannot be read. Python's `str` of a dictionary "
        "is no JSON: its quotes are single.",
        _LEAVE_TF_CONFIG + "; if it must be, write it with `json.dumps`",
        _TUTORIAL,
    ),
    Known(
        "tf-config-task",
        "TF_CONFIG names a task that its cluster lacks",
        (
            "The `task_id` ... exceeds the maximum id of",
            "` ... not found in cluster_spec",
        ),
        "The task in TF_CONFIG is none of those in its cluster; the code changed one of the two.",
        _LEAVE_TF_CONFIG,
        _TUTORIAL,
    ),
    Known(
        "strategy-in-evaluator",
        "The evaluator made the strategy",
        ("KeyError: 'evaluator'",),
        "An evaluator is no part of the cluster that trains, so it cannot make its strategy.",
        "in the evaluator, load checkpoints and evaluate them without a strategy",
        "https://www.tensorflow.org/tutorials/distribute/parameter_server_training",
    ),
    Known(
        "same-task-twice",
        "Two workers are the same task",
        (
            "unexpectedly tried to connect with a different incarnation",
            "expects a different device incarnation",
        ),
        "Two processes say that they are the same task of the cluster: their TF_CONFIG has the "
        "same index, or one started the other, which runs the same code.",
        f"{_LEAVE_TF_CONFIG}; with `multiprocessing`, {_GUARD}",
        _TUTORIAL,
    ),
    Known(
        "world-size",
        "Workers disagree about the number of workers",
        ("is joining a group with size..., but that group has size",),
        "The workers' TF_CONFIG list clusters of different sizes.",
        _LEAVE_TF_CONFIG,
        "https://github.com/tensorflow/tensorflow/issues/33979",
    ),
    # Data.
    Known(
        "batch-not-divisible",
        "The batch cannot be divided by the replicas",
        (
            "is not divisible by `num_replicas_in_sync`",
            "Inputs to operation AddN of type AddN must have the same size and shape",
        ),
        "A batch has to be dealt out to all replicas alike, and its size is no multiple of their "
        "number.",
        "batch by a multiple of `strategy.num_replicas_in_sync`, with `drop_remainder=True`",
        "https://github.com/keras-team/keras/issues/19246",
    ),
    Known(
        "too-few-files",
        "Fewer files than workers",
        ("Could not apply FILE based sharding: the dataset only has ... file(s)",),
        "Sharded by FILE, each worker needs a file of its own, and there are only {0}.",
        "split the data into more files, or shard by DATA: "
        "`options.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA`",
        _SHARDING,
    ),
    Known(
        "unshardable",
        "Data that is in no files cannot be sharded by FILE",
        ("Found an unshardable source dataset",),
        "The sharding policy is FILE, but the dataset starts from no file: from memory, a range or "
        "a generator.",
        "shard by DATA, or leave the policy at AUTO: "
        "`options.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA`",
        _SHARDING,
    ),
    Known(
        "uneven-steps",
        "Workers with different numbers of steps",
        (
            "Collective instance ... expected type ... and data_type ... but got type",
            "finished while others still needed it",
        ),
        "One worker had fewer batches, and left the loop or the epoch while the others went on to "
        "the next step, in which it takes part too.",
        "give every worker the same number of steps: `repeat()` the dataset and set "
        "`steps_per_epoch`, or let the strategy shard it (`experimental_distribute_dataset`)",
        "https://github.com/tensorflow/tensorflow/issues/36153",
    ),
    Known(
        "different-code",
        "Workers compute different things",
        ("Shape mismatch in the collective instance",),
        "The workers met in one collective operation with tensors of different shapes: their code "
        "or the model differs, or one of them skipped an operation that the others ran.",
        "run the same code on every worker; what depends on the task may not change the model, nor "
        "save, evaluate or reduce on one of them only",
        "https://github.com/tensorflow/tensorflow/issues/34156",
    ),
    Known(
        "download",
        "Data that cannot be downloaded",
        ("URL fetch failure on ...: ",),
        "{0} cannot be reached from here.",
        "look at the network and the proxy; or put the file into `~/.keras/datasets/` by hand",
        "https://github.com/keras-team/keras/issues/14089",
    ),
    # Files.
    Known(
        "one-directory",
        "All workers write to one place",
        (
            "unable to lock file, errno = 11",
            "allow_missing_files was set to false and ... did not exist",
            "_temp/part-... No such file or directory",
            "[Errno 17] File exists: ...",
        ),
        "Several workers write the same file or directory, and are in each other's way.",
        "let every worker save, to `write_path(path)` (`from mwmagic.worker import "
        "write_path`): the chief's is kept. Keras' own `save` and callbacks may share a path under "
        "`--keras auto`",
        "https://github.com/tensorflow/tensorflow/issues/38635",
    ),
    Known(
        "save-on-one",
        "Saving on the chief only",
        ("finished while another saved",),
        "Saving reads variables that all workers hold a part of, so all take part in it. This one "
        "did not.",
        "call `save` on every worker, with `write_path(path)` (`from mwmagic.worker import "
        "write_path`): the chief's is kept",
        _SAVING,
    ),
    Known(
        "disk-full",
        "The disk is full",
        ("No space left on device",),
        "There is no room left where the code writes.",
        "free some (`df -h`), keep fewer checkpoints (`CheckpointManager(max_to_keep=...)`), or "
        "write elsewhere",
        "https://www.tensorflow.org/api_docs/python/tf/train/CheckpointManager",
    ),
    # Memory and hardware.
    Known(
        "oom-killed",
        "The system ran out of memory",
        ("killed by the kernel's out-of-memory killer",),
        "All processes together wanted more memory than the machine, or its container, has.",
        "a smaller batch, fewer workers, or less data in memory (`tf.data` from files)",
        "https://docs.kernel.org/admin-guide/cgroup-v2.html#memory",
    ),
    Known(
        "out-of-memory",
        "An array that does not fit",
        (
            "OOM when allocating tensor with shape[...]",
            "Unable to allocate ... for an array with shape",
            "MemoryError",
        ),
        "The process asked for more memory than it can have.",
        "a smaller batch or model, or data read piece by piece (`tf.data` from files)",
        "https://www.tensorflow.org/guide/data_performance",
    ),
    Known(
        "nccl",
        "NCCL without GPUs",
        ("No OpKernel was registered to support Op 'NcclAllReduce'",),
        "NCCL reduces between NVIDIA GPUs, and this task sees none.",
        "leave the implementation to TensorFlow (AUTO), or take "
        "`CommunicationImplementation.RING` or `HierarchicalCopyAllReduce()`",
        "https://github.com/tensorflow/tensorflow/issues/33656",
    ),
    # Python.
    Known(
        "framework-missing",
        "TensorFlow is not installed",
        ("No module named 'tensorflow'", "No module named 'keras'", "No module named 'tf_keras'"),
        "The workers run the Python of this notebook, where it is not installed.",
        '`%pip install "mwmagic[tensorflow]"`',
        "https://www.tensorflow.org/install/pip",
    ),
    Known(
        "module-missing",
        "A module is missing",
        ("No module named '...'",),
        "The workers run the Python of this notebook, in the directory of the script, and find no "
        "{0} in either.",
        "`%pip install` what {0} belongs to; or, if it is yours, put its file beside the script",
        "https://ipython.readthedocs.io/en/stable/interactive/magics.html#magic-pip",
    ),
    Known(
        "protobuf",
        "The wrong version of protobuf",
        (
            "Detected incompatible Protobuf Gencode/Runtime versions",
            "Descriptors cannot be created directly",
        ),
        "A module was generated for another version of protobuf than the one installed.",
        "upgrade the package that holds the module, or generate it again; "
        '`%pip install "mwmagic[tensorflow]"` brings the protobuf that fits TensorFlow',
        "https://protobuf.dev/support/cross-version-runtime-guarantee/",
    ),
    Known(
        "pickle",
        "Something cannot be sent to another process",
        ("Can't pickle ...", "cannot pickle '...' object"),
        "What goes to another process is pickled, and functions made on the spot, strategies, "
        "models with locks and open files cannot be.",
        "send data, and functions defined at the top of a module beside the script",
        "https://docs.python.org/3/library/pickle.html#what-can-be-pickled-and-unpickled",
    ),
    Known(
        "input",
        "A worker asks for input",
        ("EOFError: EOF when reading a line",),
        "A worker has no keyboard: it runs in the background, and there may be many.",
        "ask in a cell of the notebook, and hand the answer on with `--args` or `--env`",
        "https://docs.python.org/3/library/functions.html#input",
    ),
    # Ends from outside.
    Known(
        "stopped",
        "A worker was stopped by a signal",
        ("was stopped by a signal and no longer answered",),
        "Somebody sent it SIGSTOP, or a debugger holds it; the others gave it up.",
        "SIGCONT would have let it go on (`%mw_kill 1 --signal CONT`); run it again",
        "https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
    Known(
        "silent",
        "A worker no longer answers",
        ("no longer answered the others",),
        "It lived, but TensorFlow's heartbeats stopped: its machine or network hangs, or code "
        "holds Python's lock for seconds.",
        "look at its log, and at the machine's load; `%mw_stacks` shows where each task is while "
        "it runs",
        "https://www.tensorflow.org/guide/migrate/fault_tolerance",
    ),
    Known(
        "crash",
        "A crash in native code",
        ("killed by SIGSEGV", "killed by SIGABRT", "killed by SIGBUS", "killed by SIGILL"),
        "A library written in C or C++ crashed; its last words are in the task's log, with the "
        "line of Python that called it.",
        "search for those words; often two packages do not fit together, or /dev/shm is full",
        "https://docs.python.org/3/library/faulthandler.html",
    ),
    Known(
        "killed",
        "Ended from outside",
        ("killed by SIGKILL", "killed by SIGTERM", "killed by SIGHUP"),
        "Neither the code nor mwmagic ended it: a person, the batch system, or a limit on memory "
        "or time did.",
        "look into `dmesg` and the batch system's log; `--restarts 1` starts the gang again",
        "https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
    Known(
        "agent-lost",
        "The agent is gone",
        ("lost with its agent on ...", "ended with its agent, ..."),
        "The process that starts the workers on a machine was ended, or the machine was, and its "
        "workers with it. Batch systems do so when time or memory is up.",
        "look into `dmesg` and the batch system's log; `--restarts 1` starts the gang again",
        "https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
)
"""What ends a run."""

NOTICES = (
    Known(
        "alone",
        "Workers that train alone",
        ("trains, and never started a server for the others",),
        "Each worker trains by itself: the code makes no MultiWorkerMirroredStrategy, or TF_CONFIG "
        "was missing when it did.",
        "`strategy = tf.distribute.MultiWorkerMirroredStrategy()` right after the import, and the "
        "model within `strategy.scope()`; leave TF_CONFIG as it is",
        _TUTORIAL,
    ),
    Known(
        "out-of-data",
        "Less data than steps or workers",
        ("Your input ran out of data; interrupting training",),
        "A worker's share of the data did not last for the steps asked for, and fewer were done, "
        "maybe none.",
        "`repeat()` the dataset, take fewer `steps_per_epoch`, or smaller batches without "
        "`drop_remainder`",
        _TUTORIAL,
    ),
    Known(
        "nccl-ignored",
        "NCCL without GPUs, ignored",
        ("Enabled NCCL communication but no GPUs detected/specified",),
        "NCCL reduces between NVIDIA GPUs; this task sees none, and TensorFlow took another way.",
        "leave the implementation to TensorFlow (AUTO), or take `CommunicationImplementation.RING`",
        "https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/CommunicationOptions",
    ),
    Known(
        "own-tf-config",
        "The code sets TF_CONFIG itself",
        ("listens at ..., which is not its address",),
        "The task's server is at {0}, not where its TF_CONFIG puts it: the code sets another one.",
        _LEAVE_TF_CONFIG,
        _TUTORIAL,
    ),
)
"""What lets a run go on, but not as its author thinks."""

STALLS = (
    Known(
        "stalled-sizes",
        "Waiting for a task that does not exist",
        ("waits for ..., which is not in this cluster",),
        "The code's TF_CONFIG lists more tasks than this cluster has, and nobody will start {0}.",
        _LEAVE_TF_CONFIG,
        _TUTORIAL,
    ),
    Known(
        "stalled-twice",
        "Waiting for a task whose worker says that it is another",
        ("listens at the address of ...",),
        "Two workers take themselves for {0}, so that nobody is the other task: their TF_CONFIG "
        "has the same index.",
        _LEAVE_TF_CONFIG,
        _TUTORIAL,
    ),
    Known(
        "stalled-second-process",
        "A second process of the same task",
        ("has a second process, which tries to join as the same task",),
        "The code starts processes, and these run it from the start: they make the strategy too, "
        "are refused, and never answer.",
        _GUARD,
        "https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods",
    ),
    Known(
        "stalled-before-strategy",
        "A worker that does not reach the strategy",
        ("has not reached the strategy, where ... waits for it",),
        "Making the strategy waits for every task, and this one is still doing something else.",
        "make the strategy first on every worker, and load the data after it",
        "https://github.com/tensorflow/tensorflow/issues/39922",
    ),
    Known(
        "stalled-unreachable",
        "A worker that does not reach the leader",
        ("does not reach ..., which waits for it",),
        "Both listen, but not where the other expects it: their TF_CONFIG differ, or a proxy or a "
        "firewall is between them.",
        _LEAVE_TF_CONFIG + "; and look at `http_proxy`, `grpc_proxy` and the firewall",
        "https://github.com/tensorflow/tensorflow/issues/50626",
    ),
    Known(
        "stalled-save",
        "Saving on the chief only",
        ("waits for the others in a save",),
        "Saving reads variables that all workers hold a part of, so all take part in it. The "
        "others do something else.",
        "call `save` on every worker, with `write_path(path)` (`from mwmagic.worker import "
        "write_path`): the chief's is kept",
        _SAVING,
    ),
    Known(
        "stalled-places",
        "Waiting for each other in different places",
        ("wait for each other in different places",),
        "Each waits inside an operation in which all take part, but not in the same: the number of "
        "steps differs, or the code does what depends on the task.",
        "give every worker the same steps; save, evaluate and reduce on all of them or on none",
        "https://github.com/tensorflow/tensorflow/issues/37112",
    ),
    Known(
        "stalled-outside",
        "One keeps the others waiting",
        ("keeps the others waiting",),
        "The others wait inside an operation in which all take part; this one does something else.",
        "look at the line where it is; `%mw_stacks` shows its whole stack",
        "https://github.com/tensorflow/tensorflow/issues/37112",
    ),
)
"""What keeps a run from going on."""
