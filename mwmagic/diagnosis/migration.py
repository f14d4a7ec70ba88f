"""The known failures of Keras: above all what Keras 3 lacks, or calls by another name.

An entry for something that Keras 3 no longer has says what replaces it, and recommends tf-keras
only if that still has it. In a sign a class in braces stands for the names in `signs.CLASSES`.
"""

from __future__ import annotations

from .known import Choice, KnownFailure

__all__ = ["CHANGED", "REMOVED"]

_MIGRATING = "https://keras.io/guides/migrating_to_keras_3/"

_LEGACY = Choice("keras", ("auto", "plain"), "or use `--keras legacy` (tf-keras)")

_CHILD = (
    "in a Python program that your code starts, write `import mwmagic.keras` before the import of "
    "Keras"
)

CHANGED = (
    KnownFailure(
        "keras-plain",
        "Keras 3 under MultiWorkerMirroredStrategy",
        "Keras 3 cannot reduce the values that several workers return, so `fit` and `evaluate` "
        "fail on every worker.",
        "use `--keras auto`, which repairs this, or `--keras legacy` (tf-keras)",
        "https://github.com/keras-team/keras/issues/20585",
        signs=(
            "Attempt to convert a value (PerReplica:",
            "Invalid reduction dimension 0 for input with 0 dimensions",
        ),
        when=Choice("keras", ("plain",)),
    ),
    KnownFailure(
        "per-replica",
        "A value of several replicas where one tensor belongs",
        "A `PerReplica` holds a value for each replica, as the batches of a distributed dataset "
        "and the results of `strategy.run` do, and it was used as a tensor. Keras 3's `fit` does "
        "that too, in a process in which Keras is not repaired.",
        "use such a value within `strategy.run(function, args=(value,))`, and its results after "
        f"`strategy.reduce('SUM', result, axis=None)`; {_CHILD}",
        "https://www.tensorflow.org/tutorials/distribute/custom_training",
        signs=(
            "Attempt to convert a value (PerReplica:",
            "It looks like you are using a PerReplica object while not inside a replica context",
        ),
    ),
    KnownFailure(
        "scalar-axis",
        "A reduction over the axis of a scalar",
        "`strategy.reduce(..., axis=0)` also reduces over the first dimension, and this value "
        "has none. Keras 3's `fit` does that too, in a process in which Keras is not repaired.",
        f"write `strategy.reduce(..., axis=None)`; {_CHILD}",
        "https://www.tensorflow.org/api_docs/python/tf/distribute/Strategy#reduce",
        signs=("Invalid reduction dimension 0 for input with 0 dimensions",),
    ),
    KnownFailure(
        "no-extension",
        "Saving without a file extension",
        "Keras 3 derives the file format from the extension, and its `save` does not write "
        "SavedModel directories.",
        "save the model to `model.keras`, weights to `model.weights.h5`, and a SavedModel with "
        "`model.export(directory)`",
        "https://github.com/keras-team/keras-core/pull/674",
        signs=(
            "Invalid filepath extension for saving",
            "the filepath provided must end in `.weights.h5`",
            "The filepath provided must end in `.keras`",
            "The filename must end in `.weights.h5`",
            "The `save_format` argument is deprecated in Keras 3",
        ),
        choices=(_LEGACY,),
    ),
    KnownFailure(
        "tf-weights",
        "Loading weights in TensorFlow's format with Keras 3",
        "Keras 3 loads weights only from `.weights.h5`, `.h5` and `.keras` files.",
        "load them with tf-keras, and save them there to `model.weights.h5`",
        _MIGRATING,
        signs=("Keras 3 only supports V3 `.keras` files, `.weights.h5` files",),
        choices=(_LEGACY,),
    ),
    KnownFailure(
        "saved-model",
        "Loading a SavedModel with Keras 3",
        "Keras 3 loads only `.keras` and `.h5` files.",
        "load it with `tf.saved_model.load`",
        _MIGRATING,
        signs=("the legacy SavedModel format is not supported by `load_model()` in Keras 3",),
        choices=(_LEGACY,),
    ),
    KnownFailure(
        "reset-states",
        "A method that Keras 3 renamed",
        "Keras 3 calls it `reset_state`; TensorFlow's custom-loop tutorial still uses the old "
        "name.",
        "in that line, write `.reset_state()` for `.reset_states()` (a model has neither: call it "
        "on the model's stateful layers)",
        "https://github.com/tensorflow/docs/pull/2337",
        signs=("object has no attribute 'reset_states'",),
        edit=(".reset_states", ".reset_state"),
        choices=(_LEGACY,),
    ),
    KnownFailure(
        "tensorboard-missing",
        "TensorBoard is not installed",
        "TensorFlow no longer installs TensorBoard, and the callback needs it.",
        "`%pip install tensorboard`",
        "https://github.com/stared/livelossplot/pull/152",
        signs=("TensorBoard is not installed, missing implementation for",),
    ),
)
"""Failures of Keras, but for the names that it no longer has."""


def _removed(
    what: str,
    instead: str,
    *signs: str,
    legacy: bool = True,
    edit: tuple[str, str] | None = None,
    words: str = "",
) -> KnownFailure:
    """Return the entry of something that Keras 3 no longer has, which words may describe."""
    words = words or f"`{what}`"
    return KnownFailure(
        f"keras-3-{what}",
        words[0].upper() + words[1:],
        f"Keras 3 no longer has {words}.",
        instead,
        _MIGRATING,
        signs=signs,
        edit=edit,
        choices=(_LEGACY,) if legacy else (),
    )


REMOVED = (
    # Optimizers.
    _removed(
        "optimizer.lr",
        "write `optimizer.learning_rate`",
        "'{optimizer}' object has no attribute 'lr'",
        edit=(".lr", ".learning_rate"),
    ),
    _removed(
        "Optimizer(lr=...)",
        "write `learning_rate=...`",
        "Argument(s) not recognized: {'lr':",
    ),
    _removed(
        "optimizer._decayed_lr",
        "write `optimizer.learning_rate`, which is the current value of a schedule too",
        "'{optimizer}' object has no attribute '_decayed_lr'",
        legacy=False,
    ),
    _removed(
        "optimizer.weights",
        "write `optimizer.variables`, a list",
        "'{optimizer}' object has no attribute 'weights'",
        legacy=False,
        edit=(".weights", ".variables"),
    ),
    _removed(
        "optimizer.get_weights",
        "write `[variable.numpy() for variable in optimizer.variables]`",
        "'{optimizer}' object has no attribute 'get_weights'",
        legacy=False,
    ),
    _removed(
        "optimizer.minimize",
        "take the gradients with `tf.GradientTape`, and pass them to "
        "`optimizer.apply_gradients(zip(gradients, variables))`",
        "'{optimizer}' object has no attribute 'minimize'",
    ),
    _removed(
        "optimizer.get_gradients",
        "take the gradients with `tf.GradientTape`",
        "'{optimizer}' object has no attribute 'get_gradients'",
        legacy=False,
    ),
    _removed(
        "optimizer.aggregate_gradients",
        "leave it out: `optimizer.apply_gradients` adds up the gradients of all replicas",
        "'{optimizer}' object has no attribute 'aggregate_gradients'",
    ),
    _removed(
        "apply_gradients(experimental_aggregate_gradients=...)",
        "leave it out: `apply_gradients` adds up the gradients of all replicas",
        "apply_gradients() got an unexpected keyword argument 'experimental_aggregate_gradients'",
        "apply_gradients() got an unexpected keyword argument 'skip_gradients_aggregation'",
    ),
    _removed(
        "optimizer.get_scaled_loss",
        "write `optimizer.scale_loss(loss)`",
        "object has no attribute 'get_scaled_loss'",
        edit=(".get_scaled_loss", ".scale_loss"),
    ),
    _removed(
        "optimizer.get_unscaled_gradients",
        "leave it out: `optimizer.apply_gradients` removes the scale from the gradients",
        "object has no attribute 'get_unscaled_gradients'",
    ),
    _removed(
        "LossScaleOptimizer.loss_scale",
        "write `optimizer.dynamic_scale`",
        "'LossScaleOptimizer' object has no attribute 'loss_scale'",
        edit=(".loss_scale", ".dynamic_scale"),
    ),
    _removed(
        "keras.optimizers.legacy",
        "use the optimizer of that name in `keras.optimizers`",
        "`keras.optimizers.legacy` is not supported in Keras 3",
    ),
    _removed(
        "keras.optimizers.experimental",
        "use the optimizer of that name in `keras.optimizers`",
        "keras.optimizers' has no attribute 'experimental'",
        "keras.optimizers.experimental'",
    ),
    # Models.
    _removed(
        "model.fit_generator",
        "write `model.fit`, which takes generators too",
        "object has no attribute 'fit_generator'",
        edit=(".fit_generator", ".fit"),
    ),
    _removed(
        "model.evaluate_generator",
        "write `model.evaluate`, which takes generators too",
        "object has no attribute 'evaluate_generator'",
        edit=(".evaluate_generator", ".evaluate"),
    ),
    _removed(
        "model.predict_generator",
        "write `model.predict`, which takes generators too",
        "object has no attribute 'predict_generator'",
        edit=(".predict_generator", ".predict"),
    ),
    _removed(
        "model.predict_classes",
        "write `model.predict(x).argmax(axis=-1)`, or `(model.predict(x) > 0.5).astype(int)` "
        "for one output with a sigmoid",
        "'{model}' object has no attribute 'predict_classes'",
        legacy=False,
    ),
    _removed(
        "model.predict_proba",
        "write `model.predict`",
        "'{model}' object has no attribute 'predict_proba'",
        legacy=False,
        edit=(".predict_proba", ".predict"),
    ),
    _removed(
        "fit(workers=...)",
        "leave out `workers`, `use_multiprocessing` and `max_queue_size`; a `keras.utils."
        "PyDataset` of yours passes them to `super().__init__`",
        "Trainer.fit() got an unexpected keyword argument 'workers'",
        "Trainer.fit() got an unexpected keyword argument 'use_multiprocessing'",
        "Trainer.fit() got an unexpected keyword argument 'max_queue_size'",
        "Trainer.predict() got an unexpected keyword argument 'workers'",
        "Trainer.predict() got an unexpected keyword argument 'use_multiprocessing'",
        "Trainer.predict() got an unexpected keyword argument 'max_queue_size'",
        "Arguments not recognized: {'workers':",
        "Arguments not recognized: {'use_multiprocessing':",
        "Arguments not recognized: {'max_queue_size':",
    ),
    _removed(
        "train_on_batch(reset_metrics=...)",
        "leave it out, and call `model.reset_metrics()` where the metrics are to start again",
        "_on_batch() got an unexpected keyword argument 'reset_metrics'",
    ),
    _removed(
        "compile(experimental_run_tf_function=...)",
        "leave it out",
        "Trainer.compile() got an unexpected keyword argument 'experimental_run_tf_function'",
    ),
    _removed(
        "save_weights(save_format=...)",
        "leave it out, and end the file's name in `.weights.h5`",
        "save_weights() got an unexpected keyword argument 'save_format'",
    ),
    _removed(
        "save(signatures=...)",
        "save the model to `model.keras` without it; a SavedModel is written by "
        "`model.export(directory)`",
        "The following argument(s) are not supported: ['signatures']",
        "The following argument(s) are not supported: ['options']",
    ),
    _removed(
        "model.to_yaml",
        "write `model.to_json()`, and `keras.models.model_from_json` to read it",
        "'{model}' object has no attribute 'to_yaml'",
        "keras.models' has no attribute 'model_from_yaml'",
        "cannot import name 'model_from_yaml' from",
        legacy=False,
    ),
    # Layers.
    _removed(
        "layer.output_shape",
        "write `layer.output.shape`",
        "'{layer}' object has no attribute 'output_shape'",
        edit=(".output_shape", ".output.shape"),
    ),
    _removed(
        "layer.input_shape",
        "write `layer.input.shape`",
        "'{layer}' object has no attribute 'input_shape'",
        edit=(".input_shape", ".input.shape"),
    ),
    _removed(
        "layer.get_output_at",
        "write `layer.output` if the layer is used once; otherwise keep what each call returned",
        "object has no attribute 'get_output_at'",
    ),
    _removed(
        "layer.get_input_at",
        "write `layer.input` if the layer is used once; otherwise keep what each call was given",
        "object has no attribute 'get_input_at'",
    ),
    _removed(
        "layer.add_update",
        "`assign` the variable within `call`",
        "object has no attribute 'add_update'",
    ),
    _removed(
        "layer.add_metric",
        "name it in `model.compile(metrics=[...])`, or make it in `__init__` and call its "
        "`update_state` within `call`",
        "Layer `add_metric()` method is deprecated",
    ),
    _removed(
        "Layer(batch_input_shape=...)",
        "begin the model with `keras.Input(batch_shape=...)`",
        "Unrecognized keyword arguments passed to ...: {'batch_input_shape':",
    ),
    _removed(
        "BatchNormalization(fused=...)",
        "leave it out",
        "Unrecognized keyword arguments passed to BatchNormalization: {'fused':",
    ),
    _removed(
        "keras.layers.CuDNNLSTM",
        "use `keras.layers.LSTM` or `GRU`, which use cuDNN by themselves on a GPU",
        "keras.layers' has no attribute 'CuDNN",
        "cannot import name 'CuDNN",
        legacy=False,
    ),
    _removed(
        "keras.layers.experimental",
        "import the layer from `keras.layers`",
        "keras.layers' has no attribute 'experimental'",
        "No module named 'tensorflow.keras.layers.experimental",
    ),
    _removed(
        "keras.layers.core",
        "import the layer from `keras.layers`",
        "No module named 'keras.layers.",
        legacy=False,
        words="the modules of `keras.layers`, such as `keras.layers.core`",
    ),
    _removed(
        "keras.engine",
        "import `Layer` from `keras.layers`, and `Model` from `keras`",
        "No module named 'keras.engine",
        legacy=False,
    ),
    # Callbacks.
    _removed(
        "ModelCheckpoint(period=...)",
        "write `save_freq='epoch'`, or a number of batches",
        "ModelCheckpoint.__init__() got an unexpected keyword argument 'period'",
    ),
    _removed(
        "TensorBoard(write_grads=...)",
        "leave it out",
        "TensorBoard.__init__() got an unexpected keyword argument 'write_grads'",
        "TensorBoard.__init__() got an unexpected keyword argument 'batch_size'",
    ),
    _removed(
        "BackupAndRestore(save_before_preemption=...)",
        "leave it out, and write `save_freq=...` to save more often",
        "BackupAndRestore.__init__() got an unexpected keyword argument 'save_before_preemption'",
    ),
    _removed(
        "keras.callbacks.experimental",
        "use `keras.callbacks.BackupAndRestore`",
        "keras.callbacks' has no attribute 'experimental'",
    ),
    # Modules.
    _removed(
        "keras.mixed_precision.experimental",
        "use `keras.mixed_precision.set_global_policy(...)`, and `Policy` of the same module",
        "keras.mixed_precision' has no attribute 'experimental'",
        "cannot import name 'experimental' from 'tensorflow.keras.mixed_precision'",
        legacy=False,
    ),
    _removed(
        "keras.utils.np_utils",
        "use `keras.utils.to_categorical` and `keras.utils.normalize`",
        "has no attribute 'np_utils'",
        "cannot import name 'np_utils'",
        "keras.utils.np_utils'",
        legacy=False,
    ),
    _removed(
        "keras.utils.vis_utils",
        "use `keras.utils.plot_model`",
        "keras.utils.vis_utils'",
        legacy=False,
    ),
    _removed(
        "keras.utils.multi_gpu_model",
        "create the model under a strategy, which uses all GPUs of a task",
        "has no attribute 'multi_gpu_model'",
        "cannot import name 'multi_gpu_model'",
        legacy=False,
    ),
    _removed(
        "keras.utils.experimental.DatasetCreator",
        "give `fit` the dataset itself; Keras 3's `fit` has no ParameterServerStrategy",
        "keras.utils' has no attribute 'experimental'",
        "No module named 'tensorflow.keras.utils.experimental'",
    ),
    _removed(
        "keras.utils.SidecarEvaluator",
        "load and evaluate each new checkpoint in a loop",
        "keras.utils' has no attribute 'SidecarEvaluator'",
    ),
    _removed(
        "keras.preprocessing.text",
        "write `tf.keras.preprocessing.text`, which Keras 3 keeps, or use "
        "`keras.layers.TextVectorization`",
        "No module named 'keras.preprocessing.text'",
        "cannot import name 'text' from 'keras.preprocessing'",
        legacy=False,
    ),
    _removed(
        "keras.preprocessing.image.ImageDataGenerator",
        "write `tf.keras.preprocessing.image.ImageDataGenerator`, which Keras 3 keeps, or use "
        "`keras.utils.image_dataset_from_directory`",
        "cannot import name 'ImageDataGenerator' from 'keras.preprocessing.image'",
        legacy=False,
    ),
    _removed(
        "keras.wrappers.scikit_learn",
        "use `keras.wrappers.SKLearnClassifier` or `SKLearnRegressor`, or the package `scikeras`",
        "keras.wrappers.scikit_learn'",
        "keras.wrappers' has no attribute 'scikit_learn'",
        legacy=False,
    ),
    _removed(
        "keras.estimator",
        "train the model with `fit`",
        "keras' has no attribute 'estimator'",
    ),
    _removed(
        "keras.experimental",
        "use the name in `keras.optimizers.schedules`, if it is a schedule; `LinearModel` and the "
        "others have no successor",
        "keras' has no attribute 'experimental'",
    ),
    _removed(
        "keras.backend",
        "use `keras.ops` or TensorFlow's own operation; there are no sessions, and `training=` "
        "takes the place of the learning phase",
        "keras.backend' has no attribute '...'",
        "No module named 'keras.backend.tensorflow_backend'",
        legacy=False,
        words="most of `keras.backend`",
    ),
    _removed(
        "relu(alpha=...)",
        "write `negative_slope=...`",
        "relu() got an unexpected keyword argument 'alpha'",
    ),
    _removed(
        "reduction='auto'",
        "write `reduction='sum_over_batch_size'`",
        "Invalid value for argument `reduction`...Received: reduction=auto",
    ),
)
"""What Keras 3 no longer has."""
