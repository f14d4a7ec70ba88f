"""Scripts that fail in each known way, each with the sign that it must show."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from mwmagic.model.findings import Finding, Symptom

STRATEGY = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
"""

GANG = """
import os
import tensorflow as tf
from tensorflow.python.eager import context
from mwmagic.worker.runtime import configure_heartbeat
configure_heartbeat(5.0, context)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
first = os.environ["MWMAGIC_TASK"] == "worker:0"

@tf.function
def total(value):
    one = strategy.run(lambda x: tf.reduce_sum(x), args=(value,))
    return strategy.reduce("SUM", one, axis=None)
"""

BATCH = """
data = tf.data.Dataset.range(8).batch(4)
batch = next(iter(strategy.experimental_distribute_dataset(data)))
"""

# The same with a time limit, and one task that is late.
TIMED = GANG.replace(
    "strategy =",
    "limited = tf.distribute.experimental.CommunicationOptions(timeout_seconds=1.0)\nstrategy =",
).replace("Strategy()", "Strategy(communication_options=limited)")
LATE = """
import time

def upload():
    time.sleep(600)

if not first:
    upload()
total(tf.ones(3))
"""

# Each task waits for the others by files, and can close its connections.
MEETING = """
import json, os, psutil, socket, time
from pathlib import Path

def appears(path):
    while not path.exists():
        time.sleep(0.01)

def shut(status, index):
    port = int(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][index].split(":")[1])
    for one in psutil.Process().net_connections("tcp"):
        if one.status == status and one.laddr.port == port:
            socket.socket(fileno=os.dup(one.fd)).shutdown(socket.SHUT_RDWR)
"""

# Worker 1 in two processes. The second waits until the first has met worker 0.
TWIN = (
    MEETING
    + """
connected, heard = Path("connected"), Path("heard")
twin = os.environ["MWMAGIC_TASK"] == "worker:1" and not os.fork()
if twin:
    appears(connected)
"""
)

# The second answers at the address of both, and takes no part otherwise.
USURPED = """
if twin:
    import tensorflow as tf
    where = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()
    server = tf.distribute.Server(where, job_name="worker", task_index=1)
    heard.touch()
    time.sleep(600)
"""

# The first no longer answers there: whom the system lets answer is not a matter of luck.
DEAF = """
if not first:
    connected.touch()
appears(heard)
if not first:
    shut("LISTEN", 1)
    Path("deaf").touch()
appears(Path("deaf"))
"""

# All tasks in two processes each. The second ones meet when the first leader no longer answers.
TWINS = (
    MEETING
    + """
twin = not os.fork()
if twin:
    for output in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    appears(Path("deaf"))
"""
)

# The first ones' heartbeats then reach the second leader, which knows only the second ones.
REPLACED = """
task = os.environ["MWMAGIC_TASK"]
if twin:
    Path(f"{task}-twice").touch()
    time.sleep(600)
total(tf.ones(3))
Path(f"{task}-once").touch()
if first:
    appears(Path("worker:1-once"))
    shut("LISTEN", 0)
    Path("deaf").touch()
    appears(Path("worker:0-twice"))
    appears(Path("worker:1-twice"))
    shut("ESTABLISHED", 0)
log = Path(os.environ["MWMAGIC_RUN"], "attempt-1", task.replace(":", "-") + ".log")
while "Incarnation ID mismatch" not in log.read_text():
    time.sleep(0.01)
total(tf.ones(3))
"""

MODEL = """
import numpy as np
import tensorflow as tf

def make():
    model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model

def data(count):
    return np.zeros((count, 4), "float32"), np.zeros((count, 1), "float32")
"""

COUNT = """
with strategy.scope():
    count = tf.Variable(
        1.0,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
"""

LARGE = """
import tensorflow as tf
model = tf.keras.Sequential([tf.keras.layers.Input((1000,)), tf.keras.layers.Dense(1000)])
"""

# Which of its errors comes first is a matter of microseconds.
OVERWRITE = (
    LARGE
    + """
def write_until(words):
    while True:
        try:
            tf.train.Checkpoint(model=model).write('shared')
        except tf.errors.OpError as error:
            if words in str(error):
                raise
"""
)

SPLIT = """
import tensorflow as tf
[cpu] = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
"""

FILE_SHARDS = """
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
"""

CONFIG = """
import json, os
config = json.loads(os.environ["TF_CONFIG"])
{}
os.environ["TF_CONFIG"] = json.dumps(config)
"""

UNINSTALL = """
import sys
for name in [name for name in sys.modules if name.partition(".")[0] == "{0}"]:
    del sys.modules[name]
sys.path[:] = [path for path in sys.path if "site-packages" not in path]
import {0}
"""


# A cluster of its own, as a notebook's cell sets it that was meant for the notebook itself.
OWN_CLUSTER = (
    "import json, os, socket\n"
    "with socket.create_server(('', 0)) as free:\n"
    "    own = f'localhost:{free.getsockname()[1]}'\n"
    "os.environ['TF_CONFIG'] = json.dumps(\n"
    "    {'cluster': {'worker': [own, own]}, 'task': {'type': 'worker', 'index': 0}}\n"
    ")\n"
    "import tensorflow as tf\n"
    "from tensorflow.python.distribute.cluster_resolver import TFConfigClusterResolver\n"
    "spec = TFConfigClusterResolver().cluster_spec()\n"
    "tf.distribute.Server(spec, job_name='worker', task_index=0)"
)


@dataclass(frozen=True)
class Case:
    """What provokes a known failure.

    Parameters
    ----------
    name : str
        The entry that the diagnosis must find.
    sign : str or Finding
        The sign or symptom of it that must show.
    script : str
        What every task of a cluster of two runs.
    """

    name: str
    sign: str | Finding
    script: str

    def __str__(self) -> str:
        return self.name


def killed(number: int) -> Finding:
    """Return the symptom of a process that a signal ended."""
    return Finding(Symptom.KILLED, signal=number)


CASES = (
    Case("no-extension", "Invalid filepath extension for saving", MODEL + "make().save('model')"),
    Case(
        "no-extension",
        "The filename must end in `.weights.h5`",
        MODEL + "make().save_weights('weights')",
    ),
    Case(
        "no-extension",
        "The filepath provided must end in `.keras`",
        MODEL + "tf.keras.callbacks.ModelCheckpoint('model')",
    ),
    Case(
        "no-extension",
        "the filepath provided must end in `.weights.h5`",
        MODEL + "tf.keras.callbacks.ModelCheckpoint('model', save_weights_only=True)",
    ),
    Case(
        "no-extension",
        "The `save_format` argument is deprecated in Keras 3",
        MODEL + "make().save('model', save_format='tf')",
    ),
    Case(
        "tf-weights",
        "Keras 3 only supports V3 `.keras` files, `.weights.h5` files",
        MODEL + "make().load_weights('checkpoint')",
    ),
    Case(
        "per-replica",
        "Attempt to convert a value (PerReplica:",
        GANG + BATCH + "strategy.reduce('MEAN', (batch,), axis=None)",
    ),
    Case(
        "per-replica",
        "It looks like you are using a PerReplica object while not inside a replica context",
        GANG + BATCH + "tf.reduce_sum(batch)",
    ),
    Case(
        "scalar-axis",
        "Invalid reduction dimension 0 for input with 0 dimensions",
        GANG + "strategy.reduce('MEAN', tf.constant(1.0), axis=0)",
    ),
    Case(
        "saved-model",
        "the legacy SavedModel format is not supported by `load_model()` in Keras 3",
        MODEL + "tf.keras.models.load_model('saved')",
    ),
    Case(
        "reset-states",
        "object has no attribute 'reset_states'",
        MODEL + "tf.keras.metrics.Mean().reset_states()",
    ),
    Case(
        "tensorboard-missing",
        "TensorBoard is not installed, missing implementation for",
        MODEL + "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.partition('.')[0] == 'tensorboard':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "make().fit(*data(8), callbacks=[tf.keras.callbacks.TensorBoard('logs')])",
    ),
    Case(
        "op-before-strategy",
        "Collective ops must be configured at program startup",
        "import tensorflow as tf\ntf.ones(3) + 1" + STRATEGY,
    ),
    Case(
        "port-taken",
        "Could not start gRPC server",
        "import json, os, socket\n"
        "config = json.loads(os.environ['TF_CONFIG'])\n"
        "own = config['cluster']['worker'][config['task']['index']]\n"
        "other = socket.socket()\n"
        "other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        "other.bind(('', int(own.rpartition(':')[2])))\n"
        "other.listen()\n"
        "os.environ.pop('TF_GRPC_REUSE_PORT')" + STRATEGY,
    ),
    Case(
        "port-taken",
        "Failed to add port to server",
        "import socket\n"
        "other = socket.create_server(('', 0))\n"
        + CONFIG.format(
            "config['cluster']['worker'] = [f'localhost:{other.getsockname()[1]}'] * 2\n"
            "config['task']['index'] = 0"
        )
        + STRATEGY,
    ),
    Case(
        "tf-config-malformed",
        "tfconfig_cluster_resolver.py...JSONDecodeError: ",
        "import json, os\nos.environ['TF_CONFIG'] = str(json.loads(os.environ['TF_CONFIG']))"
        + STRATEGY,
    ),
    Case(
        "tf-config-task",
        "The `task_id` ... exceeds the maximum id of",
        CONFIG.format("config['task']['index'] += 2") + STRATEGY,
    ),
    Case(
        "tf-config-task",
        "` ... not found in cluster_spec",
        CONFIG.format("config['task']['type'] = 'chief'") + STRATEGY,
    ),
    Case(
        "other-resolver",
        "/slurm_cluster_resolver.py",
        "import tensorflow as tf\n"
        "tf.distribute.cluster_resolver.SlurmClusterResolver(port_base=15000)",
    ),
    Case(
        "other-resolver",
        "/kubernetes_cluster_resolver.py",
        "import tensorflow as tf\ntf.distribute.cluster_resolver.KubernetesClusterResolver()",
    ),
    Case(
        "other-resolver",
        "/gce_cluster_resolver.py",
        "import tensorflow as tf\n"
        "tf.distribute.cluster_resolver.GCEClusterResolver('project', 'zone', 'group', 8470)",
    ),
    Case(
        "other-resolver",
        "/sagemaker_cluster_resolver.py",
        "import tensorflow as tf\n"
        "from tensorflow.python.distribute.cluster_resolver import sagemaker_cluster_resolver\n"
        "resolver = sagemaker_cluster_resolver.SageMakerClusterResolver()\n"
        "tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)",
    ),
    Case(
        "strategy-in-evaluator",
        "KeyError: 'evaluator'",
        CONFIG.format("config['task']['type'] = 'evaluator'") + STRATEGY,
    ),
    Case(
        "same-task-twice",
        "unexpectedly tried to connect with a different incarnation",
        TWIN
        + GANG
        + "while True:\n    total(tf.ones(3))\n    if not first:\n        connected.touch()",
    ),
    Case(
        "same-task-twice",
        "expects a different device incarnation",
        TWIN + USURPED + GANG + DEAF + "total(tf.ones(3))",
    ),
    Case(
        "same-task-twice",
        "Heartbeat: Incarnation ID mismatch",
        TWINS + GANG + REPLACED,
    ),
    Case(
        "world-size",
        "is joining a group with size..., but that group has size",
        CONFIG.format(
            "if config['task']['index'] == 1:\n"
            "    config['cluster']['worker'].append('localhost:1')"
        )
        + GANG
        + "total(tf.ones(3))",
    ),
    Case(
        "batch-not-divisible",
        "is not divisible by `num_replicas_in_sync`",
        STRATEGY + "strategy.distribute_datasets_from_function(\n"
        "    lambda its: tf.data.Dataset.range(7).batch(its.get_per_replica_batch_size(7))\n"
        ")",
    ),
    Case(
        "batch-not-divisible",
        "Inputs to operation AddN of type AddN must have the same size and shape",
        SPLIT
        + MODEL
        + "with tf.distribute.MirroredStrategy().scope():\n    model = make()\n"
        + "model.fit(*data(10), batch_size=5)",
    ),
    Case(
        "too-few-files",
        "Could not apply FILE based sharding: the dataset only has ... file(s)",
        STRATEGY
        + FILE_SHARDS
        + "with tf.io.TFRecordWriter('one') as writer:\n    writer.write(b'1')\n"
        "data = tf.data.TFRecordDataset(['one']).batch(2).with_options(options)\n"
        "list(strategy.experimental_distribute_dataset(data))",
    ),
    Case(
        "unshardable",
        "Found an unshardable source dataset",
        STRATEGY + FILE_SHARDS + "data = tf.data.Dataset.range(8).batch(2).with_options(options)\n"
        "strategy.experimental_distribute_dataset(data)",
    ),
    Case(
        "not-batched",
        "get_static_batch_dim...IndexError: list index out of range",
        STRATEGY + "data = tf.data.Dataset.range(8)\n"
        "strategy.experimental_distribute_dataset(data)",
    ),
    Case(
        "left-early",
        Finding(Symptom.FINISHED_EARLY),
        GANG + "for _ in range(3 if first else 2):\n    total(tf.ones(3))",
    ),
    Case(
        "collective-timeout",
        "Collective has timed out during execution",
        TIMED + "total(tf.ones(3))" + LATE,
    ),
    Case(
        "collective-timeout",
        "Collective has timed out waiting for other workers",
        TIMED + LATE,
    ),
    Case(
        "different-lines",
        "Collective instance ... expected type ... and data_type ... but got type",
        GANG + "with strategy.scope():\n    mean = tf.keras.metrics.Mean()\n"
        "total(tf.ones(3, tf.int32))\n"
        "if first:\n"
        "    print(float(mean.result()))\n"
        "total(tf.ones(3, tf.int32))",
    ),
    Case(
        "uneven-steps",
        "Collective instance ... expected type ... and data_type ... but got type",
        GANG + MODEL + "with strategy.scope():\n    model = make()\n"
        "options = tf.data.Options()\n"
        "options.experimental_distribute.auto_shard_policy = (\n"
        "    tf.data.experimental.AutoShardPolicy.OFF\n"
        ")\n"
        "count = 20 if first else 12\n"
        "model.fit(tf.data.Dataset.from_tensor_slices(data(count)).batch(4).with_options(options),\n"
        "          epochs=2)",
    ),
    Case(
        "different-code",
        "Shape mismatch in the collective instance",
        GANG + "strategy.run(tf.function(lambda: tf.distribute.get_replica_context().all_reduce(\n"
        "    'sum', tf.ones(3 if first else 5))))",
    ),
    Case(
        "download",
        "URL fetch failure on ...: ",
        "import os\nos.environ['https_proxy'] = 'http://127.0.0.1:9'\n"
        "import tensorflow as tf\n"
        "tf.keras.datasets.mnist.load_data('mwmagic-has-none.npz')",
    ),
    Case(
        "one-directory",
        "unable to lock file, errno = 11",
        "import h5py, time\nfile = h5py.File('shared.weights.h5', 'w')\ntime.sleep(60)",
    ),
    Case(
        "one-directory",
        "allow_missing_files was set to false and ... did not exist",
        OVERWRITE + "write_until('allow_missing_files')",
    ),
    Case(
        "one-directory",
        "_temp/part-... No such file or directory",
        OVERWRITE + "write_until('No such file')",
    ),
    Case("one-directory", "[Errno 17] File exists: ...", "import os\nos.mkdir('checkpoints')"),
    Case(
        "save-on-one",
        Finding(Symptom.FINISHED_DURING_SAVE),
        GANG + "with strategy.scope():\n"
        "    count = tf.Variable(\n"
        "        1.0,\n"
        "        synchronization=tf.VariableSynchronization.ON_READ,\n"
        "        aggregation=tf.VariableAggregation.SUM,\n"
        "    )\n"
        "if first:\n"
        "    tf.train.Checkpoint(count=count).save('checkpoint')\n",
    ),
    Case("disk-full", "No space left on device", "open('/dev/full', 'w').write('x' * 100_000)"),
    Case(
        "disk-full",
        "No space left on device",
        "import tensorflow as tf\ntf.io.write_file('/dev/full', 'x')",
    ),
    Case(
        "out-of-memory",
        "OOM when allocating tensor with shape[...]",
        "import resource\nimport tensorflow as tf\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 2**30,) * 2)\n"
        "tf.ones(2**29)",
    ),
    Case(
        "out-of-memory",
        "Unable to allocate ... for an array with shape",
        "import numpy as np\nnp.ones((2**30, 2**20))",
    ),
    Case("out-of-memory", "MemoryError", "bytes(2**62)"),
    Case(
        "nccl",
        "No OpKernel was registered to support Op 'NcclAllReduce'",
        SPLIT + "strategy = tf.distribute.MirroredStrategy(\n"
        "    cross_device_ops=tf.distribute.NcclAllReduce()\n"
        ")\n"
        "context = tf.distribute.get_replica_context\n"
        "step = tf.function(lambda: context().all_reduce('sum', tf.ones(3)))\n"
        "tf.function(lambda: strategy.run(step))()",
    ),
    Case("framework-missing", "No module named 'tensorflow'", UNINSTALL.format("tensorflow")),
    Case("framework-missing", "No module named 'keras'", UNINSTALL.format("keras")),
    Case("framework-missing", "No module named 'tf_keras'", UNINSTALL.format("tf_keras")),
    Case("module-missing", "No module named '...'", "import my_data"),
    Case(
        "protobuf",
        "Detected incompatible Protobuf Gencode/Runtime versions",
        "from google.protobuf import runtime_version as version\n"
        "version.ValidateProtobufRuntimeVersion(\n"
        "    version.Domain.PUBLIC, version.MAJOR + 1, 0, 0, '', 'model.proto'\n"
        ")",
    ),
    Case(
        "protobuf",
        "Descriptors cannot be created directly",
        "from google.protobuf.descriptor import FieldDescriptor\n"
        "FieldDescriptor('x', 'a.x', 0, 1, 1, 1, 1, False, 0, None, None, None, False, None)",
    ),
    Case(
        "pickle",
        "Can't pickle ...",
        "import multiprocessing\n"
        "multiprocessing.get_context('spawn').Process(target=lambda: None).start()",
    ),
    Case(
        "pickle", "cannot pickle '...' object", STRATEGY + "import pickle\npickle.dumps(strategy)"
    ),
    Case("input", "EOFError: EOF when reading a line", "name = input('Which data? ')"),
    Case("notebook-function", "name 'display' is not defined", "display(1)"),
    Case(
        "notebook-function",
        "name 'get_ipython' is not defined",
        "get_ipython().system('pip list')",
    ),
    Case("await", "'await' outside function", "import asyncio\nawait asyncio.sleep(0)"),
    Case("debugger", "BdbQuit", "rate = 0.1\nbreakpoint()\nprint(rate)"),
    Case("resume", Finding(Symptom.EXITED, code=42), "import sys\nsys.exit(42)"),
    Case(
        "crash",
        killed(signal.SIGSEGV),
        "import ctypes\nctypes.string_at(0)",
    ),
    Case("crash", killed(signal.SIGABRT), "import os\nos.abort()"),
    Case(
        "crash",
        killed(signal.SIGBUS),
        "import mmap, tempfile\n"
        "file = tempfile.TemporaryFile()\n"
        "file.truncate(4096)\n"
        "shared = mmap.mmap(file.fileno(), 4096)\n"
        "file.truncate(0)\n"
        "shared[0]",
    ),
    Case(
        "crash",
        killed(signal.SIGILL),
        "import ctypes, mmap\n"
        "page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
        "page.write(b'\\x0f\\x0b' if __import__('platform').machine() == 'x86_64' else bytes(4))\n"
        "address = ctypes.addressof(ctypes.c_char.from_buffer(page))\n"
        "ctypes.CFUNCTYPE(None)(address)()",
    ),
)
"""What fails in every task, or in one of a gang of two."""

PLAIN = (
    Case(
        "keras-plain",
        "Attempt to convert a value (PerReplica:",
        GANG + MODEL + "with strategy.scope():\n    model = make()\nmodel.fit(*data(8))",
    ),
    Case(
        "keras-plain",
        "Invalid reduction dimension 0 for input with 0 dimensions",
        GANG + MODEL + "with strategy.scope():\n    model = make()\nmodel.test_on_batch(*data(8))",
    ),
)
"""What fails under Keras 3 without its repairs."""

LACKING = (
    ("optimizer.lr", "k.optimizers.Adam().lr"),
    ("Optimizer(lr=...)", "k.optimizers.Adam(lr=0.1)"),
    ("optimizer._decayed_lr", "k.optimizers.SGD()._decayed_lr('float32')"),
    ("optimizer.weights", "k.optimizers.SGD().weights"),
    ("optimizer.get_weights", "k.optimizers.SGD().get_weights()"),
    ("optimizer.minimize", "k.optimizers.SGD().minimize"),
    ("optimizer.get_gradients", "k.optimizers.SGD().get_gradients"),
    ("optimizer.aggregate_gradients", "k.optimizers.SGD().aggregate_gradients"),
    (
        "apply_gradients(experimental_aggregate_gradients=...)",
        "k.optimizers.SGD().apply_gradients([], experimental_aggregate_gradients=False)",
    ),
    (
        "apply_gradients(experimental_aggregate_gradients=...)",
        "k.optimizers.SGD().apply_gradients([], skip_gradients_aggregation=True)",
    ),
    ("optimizer.get_scaled_loss", "scaled().get_scaled_loss(tf.constant(1.0))"),
    ("optimizer.get_unscaled_gradients", "scaled().get_unscaled_gradients([])"),
    ("LossScaleOptimizer.loss_scale", "scaled().loss_scale"),
    ("keras.optimizers.legacy", "k.optimizers.legacy.Adam()"),
    ("keras.optimizers.experimental", "k.optimizers.experimental.Adam()"),
    ("keras.optimizers.experimental", "from tensorflow.keras.optimizers.experimental import Adam"),
    ("model.fit_generator", "model().fit_generator"),
    ("model.evaluate_generator", "model().evaluate_generator"),
    ("model.predict_generator", "model().predict_generator"),
    ("model.predict_classes", "model().predict_classes"),
    ("model.predict_proba", "model().predict_proba"),
    *(
        ("fit(workers=...)", f"model().{method}, verbose=0, {argument})")
        for method in ("fit(x, y", "predict(x", "evaluate(x, y")
        for argument in ("workers=2", "use_multiprocessing=True", "max_queue_size=2")
    ),
    ("train_on_batch(reset_metrics=...)", "model().train_on_batch(x, y, reset_metrics=False)"),
    (
        "compile(experimental_run_tf_function=...)",
        "model().compile('sgd', experimental_run_tf_function=False)",
    ),
    (
        "save_weights(save_format=...)",
        "model().save_weights('a.weights.h5', save_format='h5')",
    ),
    ("save(signatures=...)", "model().save('saved', signatures=None)"),
    ("save(signatures=...)", "model().save('saved', options=None)"),
    ("model.to_yaml", "model().to_yaml()"),
    ("model.to_yaml", "k.models.model_from_yaml('')"),
    ("model.to_yaml", "from keras.models import model_from_yaml"),
    ("layer.output_shape", "model().layers[-1].output_shape"),
    ("layer.input_shape", "model().layers[-1].input_shape"),
    ("layer.get_output_at", "model().layers[-1].get_output_at(0)"),
    ("layer.get_input_at", "model().layers[-1].get_input_at(0)"),
    ("layer.add_update", "k.layers.Dense(1).add_update"),
    ("layer.add_metric", "k.layers.Dense(1).add_metric(k.Input((1,)), name='zero')"),
    ("Layer(batch_input_shape=...)", "k.layers.LSTM(1, batch_input_shape=(1, 2, 3))"),
    ("BatchNormalization(fused=...)", "k.layers.BatchNormalization(fused=True)"),
    ("keras.layers.CuDNNLSTM", "k.layers.CuDNNLSTM(1)"),
    ("keras.layers.CuDNNLSTM", "from tensorflow.keras.layers import CuDNNGRU"),
    ("keras.layers.experimental", "k.layers.experimental"),
    ("keras.layers.experimental", "from tensorflow.keras.layers.experimental import preprocessing"),
    ("keras.layers.core", "from keras.layers.normalization import x"),
    ("keras.engine", "from keras.engine.topology import Layer"),
    ("ModelCheckpoint(period=...)", "k.callbacks.ModelCheckpoint('a.keras', period=2)"),
    ("TensorBoard(write_grads=...)", "k.callbacks.TensorBoard('logs', write_grads=True)"),
    ("TensorBoard(write_grads=...)", "k.callbacks.TensorBoard('logs', batch_size=2)"),
    (
        "BackupAndRestore(save_before_preemption=...)",
        "k.callbacks.BackupAndRestore('backup', save_before_preemption=False)",
    ),
    ("keras.callbacks.experimental", "k.callbacks.experimental"),
    ("keras.mixed_precision.experimental", "k.mixed_precision.experimental"),
    (
        "keras.mixed_precision.experimental",
        "from tensorflow.keras.mixed_precision import experimental",
    ),
    ("keras.utils.np_utils", "k.utils.np_utils"),
    ("keras.utils.np_utils", "from keras.utils import np_utils"),
    ("keras.utils.np_utils", "from keras.utils.np_utils import to_categorical"),
    ("keras.utils.vis_utils", "from keras.utils.vis_utils import plot_model"),
    ("keras.utils.multi_gpu_model", "k.utils.multi_gpu_model"),
    ("keras.utils.multi_gpu_model", "from keras.utils import multi_gpu_model"),
    ("keras.utils.experimental.DatasetCreator", "k.utils.experimental.DatasetCreator"),
    (
        "keras.utils.experimental.DatasetCreator",
        "from tensorflow.keras.utils.experimental import DatasetCreator",
    ),
    ("keras.utils.SidecarEvaluator", "k.utils.SidecarEvaluator"),
    ("keras.preprocessing.text", "from keras.preprocessing.text import Tokenizer"),
    ("keras.preprocessing.text", "from keras.preprocessing import text"),
    (
        "keras.preprocessing.image.ImageDataGenerator",
        "from keras.preprocessing.image import ImageDataGenerator",
    ),
    ("keras.wrappers.scikit_learn", "from keras.wrappers.scikit_learn import KerasClassifier"),
    ("keras.wrappers.scikit_learn", "k.wrappers.scikit_learn"),
    ("keras.estimator", "k.estimator"),
    ("keras.experimental", "k.experimental"),
    ("keras.backend", "k.backend.get_session()"),
    ("keras.backend", "from keras.backend.tensorflow_backend import set_session"),
    ("relu(alpha=...)", "k.activations.relu(x, alpha=0.1)"),
    ("reduction='auto'", "k.losses.MeanSquaredError(reduction='auto')"),
)
"""What Keras 3 lacks, by what it is, each as a line of Python that fails for want of it."""

NOTED = (
    Case(
        "alone",
        Finding(Symptom.ALONE),
        MODEL + "make().fit(*data(8), verbose=2)",
    ),
    Case(
        "alone",
        Finding(Symptom.ALONE),
        "import os\ndel os.environ['TF_CONFIG']"
        + STRATEGY
        + MODEL
        + "with strategy.scope():\n    model = make()\nmodel.fit(*data(8), verbose=2)",
    ),
    Case(
        "outside-scope",
        Finding(Symptom.OUTSIDE_SCOPE),
        STRATEGY + MODEL + "make().fit(*data(8), verbose=2)",
    ),
    Case(
        "out-of-data",
        "Your input ran out of data; interrupting training",
        GANG
        + MODEL
        + "with strategy.scope():\n    model = make()\n"
        + "batches = tf.data.Dataset.from_tensor_slices(data(1)).batch(2, drop_remainder=True)\n"
        + "model.fit(batches, verbose=2)",
    ),
    Case(
        "nccl-ignored",
        "Enabled NCCL communication but no GPUs detected/specified",
        "import tensorflow as tf\n"
        "nccl = tf.distribute.experimental.CommunicationImplementation.NCCL\n"
        "options = tf.distribute.experimental.CommunicationOptions(implementation=nccl)\n"
        "tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)",
    ),
    Case("own-tf-config", Finding(Symptom.ELSEWHERE), OWN_CLUSTER),
    Case(
        "own-tf-config",
        Finding(Symptom.ELSEWHERE),
        OWN_CLUSTER + "\nfor line in range(1000):\n    print(line)",
    ),
)
"""What ends well, but not as meant."""

STUCK = (
    Case(
        "stalled-sizes",
        Finding(Symptom.WAITS_FOR_MISSING_TASK),
        CONFIG.format("config['cluster']['worker'].append('localhost:1')") + STRATEGY,
    ),
    Case(
        "stalled-twice",
        Finding(Symptom.TAKES_ANOTHERS_ADDRESS),
        CONFIG.format("config['task']['index'] = 1") + STRATEGY,
    ),
    Case(
        "stalled-second-process",
        Finding(Symptom.SECOND_PROCESS),
        GANG
        + "import multiprocessing\n"
        + "multiprocessing.get_context('spawn').Pool(1).map(str, range(3))",
    ),
    Case(
        "stalled-before-strategy",
        Finding(Symptom.BEFORE_STRATEGY),
        "import os, time\nif os.environ['MWMAGIC_TASK'] == 'worker:1':\n    time.sleep(600)"
        + STRATEGY,
    ),
    Case(
        "stalled-unreachable",
        Finding(Symptom.UNREACHABLE),
        CONFIG.format(
            "if config['task']['index'] == 1:\n    config['cluster']['worker'][0] = 'localhost:1'"
        )
        + STRATEGY,
    ),
    Case(
        "stalled-save",
        Finding(Symptom.WAITS_IN_SAVE),
        GANG
        + COUNT
        + "import time\n"
        + "if first:\n    tf.train.Checkpoint(count=count).save('checkpoint')\n"
        + "while not os.path.exists('checkpoint-1.index'):\n    time.sleep(1)",
    ),
    Case(
        "stalled-outside",
        Finding(Symptom.KEEPS_OTHERS_WAITING),
        GANG
        + "import time\ntotal(tf.ones(3))\nif not first:\n    time.sleep(600)\ntotal(tf.ones(3))",
    ),
    Case(
        "stalled-end",
        Finding(Symptom.DOES_NOT_END),
        # TensorFlow's iterators do that only now and then.
        """
import ctypes, functools, os
import tensorflow as tf

class Iterator:
    __del__ = functools.partial(ctypes.CDLL(None).read, os.pipe()[0], bytes(1), 1)

batches = Iterator()
""",
    ),
    Case(
        "stalled-places",
        Finding(Symptom.DIFFERENT_PLACES),
        GANG
        + "import time\n"
        + "tasks = context.context()\n"
        + "if first:\n    tasks.wait_at_barrier('one', 600_000)\n"
        + "else:\n    tasks.wait_at_barrier('other', 600_000)",
    ),
)
"""What never ends."""
