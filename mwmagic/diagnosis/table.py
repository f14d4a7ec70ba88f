"""The failures that end a run, each with its meaning and what to do.

An entry is recognised by what mwmagic observes (its symptoms) or by what others
print (its signs), with ``...`` for the parts that vary. In a meaning or remedy
``{0}`` is the text in the first ``...``, and ``{peer}`` that field of the
symptom. More specific entries come first. Each symptom and sign was provoked
with the installed TensorFlow, by a test with the entry's name.
"""

from __future__ import annotations

import signal
from errno import ENOSPC

from mwmagic.gang import Policy
from mwmagic.model.findings import Finding, Symptom
from mwmagic.model.variables import RESUME_CODE

from .known import AT_LINES, Choice, KnownFailure
from .migration import CHANGED, REMOVED
from .running import GUARD, LEAVE_TF_CONFIG, REMARKS, SAVING, STALLS, TUTORIAL

__all__ = ["AT_LINES", "ENTRIES", "KNOWN"]

_SHARDING = "https://www.tensorflow.org/api_docs/python/tf/data/experimental/AutoShardPolicy"

_RESTARTS = Choice("restarts", ("0",), "`--restarts 1` restarts all tasks")

KNOWN = (
    *CHANGED,
    *REMOVED,
    # The cluster.
    KnownFailure(
        "op-before-strategy",
        "Operations before the strategy",
        "TensorFlow ran an operation before the strategy was created. Tensors, datasets, models "
        "and `list_logical_devices()` run operations; `list_physical_devices()` and "
        "`set_random_seed()` do not.",
        "create the strategy right after `import tensorflow`",
        "https://github.com/tensorflow/tensorflow/issues/34568",
        signs=("Collective ops must be configured at program startup",),
    ),
    KnownFailure(
        "port-taken",
        "The port is already in use",
        "Another process listens on the task's port, and moving to other ports did not help. "
        "mwmagic reserves its ports, so either the code uses an address of its own or "
        "TF_GRPC_REUSE_PORT was unset.",
        "leave TF_CONFIG and TF_GRPC_REUSE_PORT unchanged; `ss -ltnp` shows which process listens",
        "https://github.com/kubeflow/kubeflow/issues/1931",
        signs=("Could not start gRPC server", "Failed to add port to server"),
    ),
    KnownFailure(
        "tf-config-malformed",
        "TF_CONFIG is not valid JSON",
        "The code sets TF_CONFIG to text that cannot be parsed. `str()` of a Python dictionary "
        "is not valid JSON, because its quotes are single quotes.",
        f"{LEAVE_TF_CONFIG}; if the code must set it, use `json.dumps`",
        TUTORIAL,
        signs=("tfconfig_cluster_resolver.py...JSONDecodeError: ",),
    ),
    KnownFailure(
        "tf-config-task",
        "TF_CONFIG names a task that its cluster does not have",
        "The task in TF_CONFIG is not in its cluster: the code changed one of the two.",
        LEAVE_TF_CONFIG,
        TUTORIAL,
        signs=("The `task_id` ... exceeds the maximum id of", "` ... not found in cluster_spec"),
    ),
    KnownFailure(
        "other-resolver",
        "A cluster resolver of another environment",
        "The code's `cluster_resolver` asks Slurm, Kubernetes, Google's Compute Engine or "
        "SageMaker for the tasks. But mwmagic started these tasks, and TF_CONFIG lists them.",
        "leave out the `cluster_resolver`, or use `TFConfigClusterResolver()`",
        "https://www.tensorflow.org/api_docs/python/tf/distribute/cluster_resolver/TFConfigClusterResolver",
        signs=(
            "/slurm_cluster_resolver.py",
            "/kubernetes_cluster_resolver.py",
            "/gce_cluster_resolver.py",
            "/sagemaker_cluster_resolver.py",
        ),
    ),
    KnownFailure(
        "strategy-in-evaluator",
        "The evaluator created the strategy",
        "An evaluator is not part of the training cluster, so it cannot create that cluster's "
        "strategy.",
        "in the evaluator, load checkpoints and evaluate them without a strategy",
        "https://www.tensorflow.org/tutorials/distribute/parameter_server_training",
        signs=("KeyError: 'evaluator'",),
    ),
    KnownFailure(
        "same-task-twice",
        "Two processes claim the same task",
        "Two processes joined the cluster as the same task: either their TF_CONFIG has the same "
        "index, or one started the other, which runs the same code.",
        f"{LEAVE_TF_CONFIG}; with `multiprocessing`, {GUARD}",
        TUTORIAL,
        signs=(
            "unexpectedly tried to connect with a different incarnation",
            "expects a different device incarnation",
            "Heartbeat: Incarnation ID mismatch",
        ),
    ),
    KnownFailure(
        "world-size",
        "Workers disagree about the number of workers",
        "The TF_CONFIG of the workers lists clusters of different sizes.",
        LEAVE_TF_CONFIG,
        "https://github.com/tensorflow/tensorflow/issues/33979",
        signs=("is joining a group with size..., but that group has size",),
    ),
    # Data.
    KnownFailure(
        "batch-not-divisible",
        "The batch size is not divisible by the number of replicas",
        "Each replica gets an equal share of a batch, and this batch size is not a multiple of "
        "the number of replicas.",
        "use a batch size that is a multiple of `strategy.num_replicas_in_sync`, with "
        "`drop_remainder=True`",
        "https://github.com/keras-team/keras/issues/19246",
        signs=(
            "is not divisible by `num_replicas_in_sync`",
            "Inputs to operation AddN of type AddN must have the same size and shape",
        ),
    ),
    KnownFailure(
        "too-few-files",
        "Fewer files than workers",
        "With FILE sharding each worker needs at least one file of its own, and there are only "
        "{0}.",
        "split the data into more files, or shard by DATA: "
        "`options.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA`",
        _SHARDING,
        signs=("Could not apply FILE based sharding: the dataset only has ... file(s)",),
    ),
    KnownFailure(
        "unshardable",
        "FILE sharding of data that is not in files",
        "The sharding policy is FILE, but the dataset does not read files: it comes from "
        "memory, a range or a generator.",
        "shard by DATA, or leave the policy at AUTO: "
        "`options.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA`",
        _SHARDING,
        signs=("Found an unshardable source dataset",),
    ),
    KnownFailure(
        "not-batched",
        "A dataset without batches",
        "The strategy divides each batch among the workers, and the dataset's elements are single "
        "samples.",
        "end the dataset with `.batch(n)`, where n is the global batch: the samples of all workers "
        "in a step",
        "https://www.tensorflow.org/tutorials/distribute/input#rebatching",
        signs=("get_static_batch_dim...IndexError: list index out of range",),
    ),
    KnownFailure(
        "left-early",
        "A worker that ends before the others",
        "The line that {peer} had reached needs every worker, and this one had already ended: it "
        "had fewer batches, or its code leaves out what that line does, such as `evaluate`.",
        "call the same on every worker (`fit`, `evaluate`, `predict`), and give each the same "
        "number of steps: `repeat()` the dataset and set `steps_per_epoch`, or let the strategy "
        "shard it (`experimental_distribute_dataset`)",
        "https://github.com/tensorflow/tensorflow/issues/36153",
        symptoms=(Finding(Symptom.FINISHED_EARLY),),
    ),
    KnownFailure(
        "collective-timeout",
        "A task that comes too late to a collective",
        "The code gives collectives a time limit, and not every task reached this one in time.",
        "let every task do the slow work, or none; or set a larger "
        "`CommunicationOptions(timeout_seconds=...)`, or none",
        "https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/CommunicationOptions",
        signs=(
            "Collective has timed out during execution",
            "Collective has timed out waiting for other workers",
        ),
        together=True,
    ),
    KnownFailure(
        "different-lines",
        "Workers enter different collectives",
        "The tasks were in different collectives, at these lines. Each training step is one, and "
        "so are reading a metric or a variable that is spread over the workers, `reduce`, `save` "
        "and `evaluate`. One of the lines ran on some tasks only, or not as often on all.",
        "run both lines on every task, equally often. To print on the chief only, read on all: "
        "`value = metric.result()`, and below that `if chief: print(value)`",
        "https://github.com/tensorflow/tensorflow/issues/36153",
        signs=("Collective instance ... expected type ... and data_type ... but got type",),
        when=Choice(AT_LINES, ("different",)),
        together=True,
    ),
    KnownFailure(
        "uneven-steps",
        "Workers run different numbers of steps",
        "One worker left the loop or the epoch, while the others began the next step, which "
        "needs every worker. It had fewer batches, decided to stop by itself, or read a metric or "
        "reduced a value alone.",
        "give every worker the same number of steps: `repeat()` the dataset and set "
        "`steps_per_epoch`, or let the strategy shard it (`experimental_distribute_dataset`); "
        "stop, and read metrics, on all workers alike",
        "https://github.com/tensorflow/tensorflow/issues/36153",
        signs=("Collective instance ... expected type ... and data_type ... but got type",),
        together=True,
    ),
    KnownFailure(
        "different-code",
        "Workers compute different things",
        "The workers entered the same collective operation with tensors of different shapes: "
        "their code or model differs, or one of them skipped an operation that the others ran.",
        "run the same code on every worker; code that depends on the task must not change the "
        "model, nor save, evaluate or reduce on one task only",
        "https://github.com/tensorflow/tensorflow/issues/34156",
        signs=("Shape mismatch in the collective instance",),
        together=True,
    ),
    KnownFailure(
        "download",
        "Data cannot be downloaded",
        "{0} cannot be reached from here.",
        "check the network and the proxy, or put the file into `~/.keras/datasets/` yourself",
        "https://github.com/keras-team/keras/issues/14089",
        signs=("URL fetch failure on ...: ",),
    ),
    # Files.
    KnownFailure(
        "one-directory",
        "All workers write to the same path",
        "Several workers write to the same file or directory and interfere with each other.",
        "let every worker save, to `write_path(path)` (`from mwmagic.worker import "
        "write_path`): the chief's copy is kept",
        "https://github.com/tensorflow/tensorflow/issues/38635",
        signs=(
            "unable to lock file, errno = 11",
            "allow_missing_files was set to false and ... did not exist",
            "_temp/part-... No such file or directory",
            "[Errno 17] File exists: ...",
        ),
        choices=(
            Choice("keras", ("auto",), "Keras' own `save` and callbacks may share a path"),
            Choice(
                "keras",
                ("plain",),
                "under `--keras auto`, Keras' own `save` and callbacks may share a path",
            ),
        ),
    ),
    KnownFailure(
        "save-on-one",
        "Saving on the chief only",
        "Saving reads variables that are spread over all workers, so every worker must take "
        "part. This one did not.",
        "call `save` on every worker, with `write_path(path)` (`from mwmagic.worker import "
        "write_path`): the chief's copy is kept",
        SAVING,
        symptoms=(Finding(Symptom.FINISHED_DURING_SAVE),),
    ),
    KnownFailure(
        "disk-full",
        "The disk is full",
        "No space is left where the code writes.",
        "free some space (`df -h`), keep fewer checkpoints "
        "(`CheckpointManager(max_to_keep=...)`), or write elsewhere",
        "https://www.tensorflow.org/api_docs/python/tf/train/CheckpointManager",
        symptoms=(Finding(Symptom.NOT_STARTED, errno=ENOSPC),),
        signs=("No space left on device",),
    ),
    # Memory and hardware.
    KnownFailure(
        "oom-killed",
        "The system ran out of memory",
        "Together, the processes needed more memory than the machine or its container has.",
        "use a smaller batch or fewer workers, or keep less data in memory (`tf.data` from files)",
        "https://docs.kernel.org/admin-guide/cgroup-v2.html#memory",
        symptoms=(Finding(Symptom.OUT_OF_MEMORY),),
    ),
    KnownFailure(
        "out-of-memory",
        "An allocation failed",
        "The process asked for more memory than it can get.",
        "use a smaller batch or model, or read the data piece by piece (`tf.data` from files)",
        "https://www.tensorflow.org/guide/data_performance",
        signs=(
            "OOM when allocating tensor with shape[...]",
            "Unable to allocate ... for an array with shape",
            "MemoryError",
        ),
    ),
    KnownFailure(
        "nccl",
        "NCCL without GPUs",
        "NCCL works only between NVIDIA GPUs, and this task sees none.",
        "leave the implementation to TensorFlow (AUTO), or use "
        "`CommunicationImplementation.RING` or `HierarchicalCopyAllReduce()`",
        "https://github.com/tensorflow/tensorflow/issues/33656",
        signs=("No OpKernel was registered to support Op 'NcclAllReduce'",),
    ),
    # Python.
    KnownFailure(
        "framework-missing",
        "TensorFlow is not installed",
        "The workers use this notebook's Python, in which it is not installed.",
        '`%pip install "mwmagic[tensorflow]"`',
        "https://www.tensorflow.org/install/pip",
        signs=(
            "No module named 'tensorflow'",
            "No module named 'keras'",
            "No module named 'tf_keras'",
        ),
    ),
    KnownFailure(
        "module-misspelled",
        "The name of a module is misspelled",
        "There is no module {0}; an installed one, or one beside the script, has nearly that name.",
        "import `{1}`; only if you mean another one, `%pip install` the package that provides it",
        "https://docs.python.org/3/library/exceptions.html#ModuleNotFoundError",
        signs=("No module named '...'. Did you mean: '...'?",),
    ),
    KnownFailure(
        "module-missing",
        "A module is missing",
        "The workers use this notebook's Python and the script's directory, and {0} is in neither.",
        "`%pip install` the package that provides {0}, or, if it is your own module, put its "
        "file next to the script",
        "https://ipython.readthedocs.io/en/stable/interactive/magics.html#magic-pip",
        signs=("No module named '...'",),
    ),
    KnownFailure(
        "notebook-name",
        "A variable of the notebook",
        "The notebook has this name, but workers do not: they are separate processes, which run "
        "only the code of their own cell.",
        "define or import it in the workers' cell; pass a number or a text with `--args $name` "
        "(`sys.argv`) or `--env NAME=$name` (`os.environ`); save data to a file and load it there",
        "https://docs.python.org/3/library/sys.html#sys.argv",
        symptoms=(Finding(Symptom.LACKS_NAME),),
    ),
    KnownFailure(
        "notebook-function",
        "A function of IPython",
        "`display` and `get_ipython`, which magics and `!` become in a script, exist in notebooks "
        "only, and workers are plain Python processes.",
        "`print` instead of `display`; run magics and commands in a cell of their own",
        "https://ipython.readthedocs.io/en/stable/interactive/reference.html",
        signs=("name 'display' is not defined", "name 'get_ipython' is not defined"),
    ),
    KnownFailure(
        "await",
        "`await` outside a function",
        "Only notebooks run `await` outside an `async` function, and workers are plain Python "
        "processes.",
        "put it into `async def main()`, and call `asyncio.run(main())`",
        "https://docs.python.org/3/library/asyncio-runner.html",
        signs=("'await' outside function",),
    ),
    KnownFailure(
        "protobuf",
        "The wrong version of protobuf",
        "A module was generated for a different version of protobuf than the installed one.",
        "upgrade the package that contains the module, or generate it again; `%pip install "
        '"mwmagic[tensorflow]"` installs the protobuf that TensorFlow needs',
        "https://protobuf.dev/support/cross-version-runtime-guarantee/",
        signs=(
            "Detected incompatible Protobuf Gencode/Runtime versions",
            "Descriptors cannot be created directly",
        ),
    ),
    KnownFailure(
        "pickle",
        "An object cannot be sent to another process",
        "Objects are pickled on their way to another process. Lambdas and nested functions, "
        "strategies, models with locks and open files cannot be pickled.",
        "send plain data, and functions defined at the top level of a module next to the script",
        "https://docs.python.org/3/library/pickle.html#what-can-be-pickled-and-unpickled",
        signs=("Can't pickle ...", "cannot pickle '...' object"),
    ),
    KnownFailure(
        "input",
        "A worker asks for input",
        "A worker has no keyboard. Its questions reach a notebook that is open in a page, while "
        "`%mw_wait` waits there; nobody could answer this one.",
        "run the cell in such a notebook; or pass the answer with `--args` or `--env`",
        "https://docs.python.org/3/library/functions.html#input",
        signs=("EOFError: EOF when reading a line",),
    ),
    KnownFailure(
        "debugger",
        "A debugger ended a worker's program",
        "The debugger's command `q` ended it, or nobody could type a command: for that, the "
        "notebook must be open in a page, while `%mw_wait` waits there.",
        "type `c` in the debugger to continue; without a page, print what you want to know",
        "https://docs.python.org/3/library/pdb.html",
        signs=("BdbQuit",),
    ),
    # Ended from outside.
    KnownFailure(
        "stopped",
        "A worker was stopped by a signal",
        "It received SIGSTOP, or a debugger holds it, and the others stopped waiting for it.",
        "run it again; SIGCONT (`%mw_kill 1 --signal CONT`) would have resumed it",
        "https://man7.org/linux/man-pages/man7/signal.7.html",
        symptoms=(Finding(Symptom.STOPPED_BY_SIGNAL),),
    ),
    KnownFailure(
        "silent",
        "A worker stopped responding",
        "It was alive, but its TensorFlow heartbeats stopped: its machine or network hangs, or "
        "code held Python's global interpreter lock for seconds.",
        "look at its log and at the load of its machine; `%mw_stacks` shows where each task is "
        "while it runs",
        "https://www.tensorflow.org/guide/migrate/fault_tolerance",
        symptoms=(Finding(Symptom.SILENT),),
    ),
    KnownFailure(
        "cut-off",
        "A machine was cut off",
        "For that long nothing on the machine answered, not even mwmagic's own agent: its network "
        "was interrupted or loses packets, or the machine itself hung. So the tasks gave each "
        "other up.",
        "look at the network between the machines (`ping`, `ip -s link`), and at the load of this "
        "one",
        "https://www.tensorflow.org/guide/migrate/fault_tolerance",
        symptoms=(Finding(Symptom.CUT_OFF),),
        choices=(_RESTARTS,),
    ),
    KnownFailure(
        "lost-each-other",
        "Two workers lost each other",
        "Each of them reports that the other is gone, while both of their machines answered "
        "mwmagic: the link between these two was interrupted, loses packets or is blocked by a "
        "firewall, or one of the two workers stood still for a while.",
        "look at the network and the firewalls between these two machines (`ping` from one to the "
        "other, `ip -s link` on both)",
        "https://www.tensorflow.org/guide/migrate/fault_tolerance",
        symptoms=(Finding(Symptom.LOST_EACH_OTHER),),
        choices=(_RESTARTS,),
    ),
    KnownFailure(
        "profiler",
        "A crash of TensorFlow's profiler",
        "When a profile stops, TensorFlow writes to events that it has already freed. Each "
        "collective has such an event on every worker but the one that coordinates them.",
        "profile `worker:0`, or the chief if there is one",
        "https://github.com/openxla/xla/blob/main/xla/tsl/profiler/backends/cpu/traceme_recorder.cc",
        signs=('Fatal Python error: ...profiler_v2.py", line ... in stop',),
    ),
    KnownFailure(
        "crash",
        "A crash in native code",
        "A library written in C or C++ crashed. The task's log ends with its message and the "
        "line of Python that called it.",
        "search for that message; often two packages are incompatible, or /dev/shm is full",
        "https://docs.python.org/3/library/faulthandler.html",
        symptoms=(
            Finding(Symptom.KILLED, signal=signal.SIGSEGV),
            Finding(Symptom.KILLED, signal=signal.SIGABRT),
            Finding(Symptom.KILLED, signal=signal.SIGBUS),
            Finding(Symptom.KILLED, signal=signal.SIGILL),
        ),
    ),
    KnownFailure(
        "resume",
        "Exit code 42: saved, start me again",
        "With code 42, which TensorFlow's PreemptionCheckpointHandler uses, a task says that it "
        f"has saved and wants to be started again; the others have {Policy.saving:.0f} s to save "
        f"too. In the first {Policy.resume:.0f} s of a run this counts as a failure.",
        "use another code if nothing was saved",
        "https://www.tensorflow.org/guide/migrate/fault_tolerance",
        symptoms=(Finding(Symptom.EXITED, code=RESUME_CODE),),
        choices=(Choice("restarts", ("0",), "`--restarts 1` starts all tasks again in any case"),),
    ),
    KnownFailure(
        "killed",
        "Killed from outside",
        "Neither the code nor mwmagic ended it, but a person, the batch system, or a limit on "
        "memory or time.",
        "look into `dmesg` and the batch system's log",
        "https://man7.org/linux/man-pages/man7/signal.7.html",
        symptoms=(
            Finding(Symptom.KILLED, signal=signal.SIGKILL),
            Finding(Symptom.KILLED, signal=signal.SIGTERM),
            Finding(Symptom.KILLED, signal=signal.SIGHUP),
        ),
        choices=(_RESTARTS,),
    ),
    KnownFailure(
        "agent-lost",
        "The agent is gone",
        "The process that starts the workers on a machine ended, or the machine went down, and its "
        "workers ended with it. Batch systems do this when a limit of time or memory is reached.",
        "look into `dmesg` and the batch system's log",
        "https://man7.org/linux/man-pages/man7/signal.7.html",
        symptoms=(Finding(Symptom.AGENT_LOST),),
        choices=(_RESTARTS,),
    ),
    KnownFailure(
        "host-lost",
        "A machine is gone",
        "The machine no longer answers, or its connection ended, so all its workers are lost: it "
        "was preempted, switched off or cut off from the network, or its job ran out of time.",
        "check whether the machine is up and can be reached, and what its scheduler, if it has "
        "one, has recorded about it and the job",
        "https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras#fault_tolerance",
        symptoms=(Finding(Symptom.HOST_LOST),),
        choices=(
            Choice(
                "restarts",
                ("0",),
                "`--restarts 1` restarts all tasks, on other machines if there are any",
            ),
        ),
    ),
)
"""Failures that end a run."""

ENTRIES = {known.name: known for known in (*KNOWN, *REMARKS, *STALLS)}
"""Every entry, by name."""
