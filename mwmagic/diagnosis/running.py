"""What goes wrong in a run that continues, or waits, each with its meaning and what to do.

The entries are written as those of `table`.
"""

from __future__ import annotations

from mwmagic.model.findings import Finding, Symptom

from .known import KnownFailure

__all__ = ["GUARD", "LEAVE_TF_CONFIG", "REMARKS", "SAVING", "STALLS", "TUTORIAL"]

TUTORIAL = "https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras"
SAVING = f"{TUTORIAL}#model_saving_and_loading"

LEAVE_TF_CONFIG = (
    "remove the code that sets TF_CONFIG: mwmagic sets it for each task, and "
    "`json.loads(os.environ['TF_CONFIG'])` reads it"
)
GUARD = "create the strategy, and all that follows, below `if __name__ == '__main__':`"

REMARKS = (
    KnownFailure(
        "alone",
        "Workers that train alone",
        "Each worker trained by itself: the code created no MultiWorkerMirroredStrategy, or "
        "TF_CONFIG was missing when it did.",
        "create `strategy = tf.distribute.MultiWorkerMirroredStrategy()` right after the import "
        "and the model within `strategy.scope()`; leave TF_CONFIG unchanged",
        TUTORIAL,
        symptoms=(Finding(Symptom.ALONE),),
    ),
    KnownFailure(
        "outside-scope",
        "A model outside the strategy's scope",
        "The code created a MultiWorkerMirroredStrategy, and trained a model that was created "
        "outside `strategy.scope()`: each worker trained a model of its own, and learned nothing "
        "from the others.",
        "create and compile the model below `with strategy.scope():`; if each worker is to train "
        "one of its own, nothing is wrong",
        TUTORIAL,
        symptoms=(Finding(Symptom.OUTSIDE_SCOPE),),
    ),
    KnownFailure(
        "out-of-data",
        "Less data than steps or workers",
        "A worker ran out of data before it had done the requested steps; it did fewer steps, "
        "or none.",
        "`repeat()` the dataset, reduce `steps_per_epoch`, or use smaller batches without "
        "`drop_remainder`",
        TUTORIAL,
        signs=("Your input ran out of data; interrupting training",),
    ),
    KnownFailure(
        "nccl-ignored",
        "NCCL without GPUs, ignored",
        "NCCL works only between NVIDIA GPUs. This task saw none, so TensorFlow used another "
        "implementation.",
        "leave the implementation to TensorFlow (AUTO), or use `CommunicationImplementation.RING`",
        "https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/CommunicationOptions",
        signs=("Enabled NCCL communication but no GPUs detected/specified",),
    ),
    KnownFailure(
        "own-tf-config",
        "The code sets TF_CONFIG itself",
        "The task's server listened at {address}, not at the address in its TF_CONFIG: the code "
        "set another one.",
        LEAVE_TF_CONFIG,
        TUTORIAL,
        symptoms=(Finding(Symptom.ELSEWHERE),),
    ),
)
"""Problems with which a run continues, but not as intended."""

STALLS = (
    KnownFailure(
        "stalled-sizes",
        "Waiting for a task that does not exist",
        "The code's TF_CONFIG lists more tasks than this cluster has, and {peer} will never start.",
        LEAVE_TF_CONFIG,
        TUTORIAL,
        symptoms=(Finding(Symptom.WAITS_FOR_MISSING_TASK),),
    ),
    KnownFailure(
        "stalled-twice",
        "Waiting for a task whose worker claims to be another",
        "Two workers claim to be {peer}, so one task has no worker: their TF_CONFIG has the "
        "same index.",
        LEAVE_TF_CONFIG,
        TUTORIAL,
        symptoms=(Finding(Symptom.TAKES_ANOTHERS_ADDRESS),),
    ),
    KnownFailure(
        "stalled-second-process",
        "A second process of the same task",
        "The code starts processes that run it again from the start: they try to create the "
        "strategy as well, are rejected, and never answer.",
        GUARD,
        "https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods",
        symptoms=(Finding(Symptom.SECOND_PROCESS),),
    ),
    KnownFailure(
        "stalled-before-strategy",
        "A worker that does not reach the strategy",
        "Creating the strategy waits for every task, and this one is still doing something else.",
        "create the strategy first on every worker, and load the data after it",
        "https://github.com/tensorflow/tensorflow/issues/39922",
        symptoms=(Finding(Symptom.BEFORE_STRATEGY),),
    ),
    KnownFailure(
        "stalled-unreachable",
        "A worker that cannot reach the leader",
        "Both listen, but not where the other expects it: their TF_CONFIG differs, or a proxy "
        "or firewall is between them.",
        f"{LEAVE_TF_CONFIG}; and check `http_proxy`, `grpc_proxy` and the firewall",
        "https://github.com/tensorflow/tensorflow/issues/50626",
        symptoms=(Finding(Symptom.UNREACHABLE),),
    ),
    KnownFailure(
        "stalled-save",
        "Saving on the chief only",
        "Saving reads variables that are spread over all workers, so every worker must take "
        "part. The others do something else.",
        "call `save` on every worker, with `write_path(path)` (`from mwmagic.worker import "
        "write_path`): the chief's copy is kept",
        SAVING,
        symptoms=(Finding(Symptom.WAITS_IN_SAVE),),
    ),
    KnownFailure(
        "stalled-places",
        "Waiting for each other in different places",
        "Each task waits inside an operation that needs every task, but not in the same one: "
        "the number of steps differs, or the code does different things on different tasks.",
        "give every worker the same number of steps; save, evaluate and reduce on all of them "
        "or on none",
        "https://github.com/tensorflow/tensorflow/issues/37112",
        symptoms=(Finding(Symptom.DIFFERENT_PLACES),),
    ),
    KnownFailure(
        "stalled-outside",
        "One task keeps the others waiting",
        "The others wait inside an operation that needs every task; this one does something else.",
        "look at the line where it is; `%mw_stacks` shows its whole stack",
        "https://github.com/tensorflow/tensorflow/issues/37112",
        symptoms=(Finding(Symptom.KEEPS_OTHERS_WAITING),),
    ),
    KnownFailure(
        "stalled-end",
        "A worker that has finished does not end",
        "The interpreter frees what global variables hold, and that never returns. With an "
        "iterator of TensorFlow whose dataset runs Python, as in `tf.py_function`, it happens now "
        "and then, without mwmagic too: TensorFlow waits for a thread that may no longer run.",
        "`del` the iterator at the end of the program, or create it in a function",
        "https://docs.python.org/3.14/c-api/init.html#cautions-regarding-runtime-finalization",
        symptoms=(Finding(Symptom.DOES_NOT_END),),
    ),
)
"""Problems that keep a run from making progress."""
