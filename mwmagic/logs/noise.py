"""Tell what TensorFlow, XLA and gRPC say to themselves from what a user needs to read.

A two-worker training prints some forty notices before its first own line, and a
dataset that cannot be sharded dumps its graph. Errors are never hidden, nor is
anything that the user's code prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .terminal import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NATIVE = re.compile(
    r"(?:([IWEF])\d{4} \d\d:\d\d:[\d.]+ +\d+ |\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: ([IWEF]) )"
    r"(?:[\w./-]{1,200}/)?(\w{1,80}\.(?:cc|h|cu|cpp)):\d+\] ?"
)
"""How absl's C++ logging begins a line: now, and as TensorFlow did until 2.20.

Python's absl logging looks alike but names a ``.py`` file: that is the user's.
"""

_FAILING = re.compile(
    r"StartAbort|unhealthy|\b(?:UNAVAILABLE|INTERNAL|ABORTED|FAILED_PRECONDITION|UNKNOWN):"
)
# Above the info level only what is known to be harmless, by file and text.
_HARMLESS = {
    "cuda_platform.cc": r"failed call to cuInit: .*(?:\(303\)|NO_DEVICE|no CUDA-capable device)",
    "cuda_driver.cc": r"failed call to cuInit: .*(?:\(303\)|NO_DEVICE|no CUDA-capable device)",
    "cuda_dnn.cc": r"Unable to register cuDNN factory",
    "cuda_fft.cc": r"Unable to register cuFFT factory",
    "cuda_blas.cc": r"Unable to register cuBLAS factory",
    "computation_placer.cc": r"computation placer already registered",
    "py_utils.cc": r"TF-TRT Warning: Could not find TensorRT",
    "dso_loader.cc": r"Could not load dynamic library",
    "dataset.cc": r"Input of GeneratorDatasetOp::Dataset will not be optimized",
    "auto_shard.cc": r"(?:AUTO sharding policy will apply|In AUTO-mode)",
    "local_rendezvous.cc": r".*is aborting with status: OUT_OF_RANGE: End of sequence",
    "generator_dataset_op.cc": r"Error occurred when finalizing GeneratorDataset iterator: "
    r"(?:FAILED_PRECONDITION: Python interpreter state is not|CANCELLED)",
}
_KNOWN = {file: re.compile(text) for file, text in _HARMLESS.items()}
_PYTHON = re.compile(
    r"WARNING: All log messages before absl::InitializeLog\(\) is called"
    r"|INFO:tensorflow:(?:Using |Single-worker |Enabled multi-worker|Waiting for the cluster|"
    r"Cluster is ready|Check health|MultiWorkerMirroredStrategy with|Collective |Reduce to |"
    r"batch_all_reduce|ParameterServerStrategyV2 is|`tf.distribute.experimental.ParameterServer)"
    r"|\[Gloo\] Rank \d+ is connected to \d+ peer ranks\. Expected [\w ]+: \d+$"
)
_MORE = re.compile(
    r"To enable the following instructions: "
    r"|/job:\w+/replica:\d+/task:\d+$"
    r"|\s+\[\[(?:\{\{node )?[\w/.:]+(?:\}\})?\]\]"
)
_START = re.compile(
    r"^(?:[IWEF]\d{4} |\d{4}-\d\d-\d\d |WARNING: All|INFO:tensorflow:|\[Gloo\] |\x1b)"
    r"|unshardable source dataset: |\(PerReplica:\{$"
)

_NAME = r"(?:\w+|\[[\w./]+\])"
_OPEN = re.compile(rf"( *){_NAME} \{{$")
_FIELD = re.compile(rf'( *){_NAME}: (?:"(?:[^"\\]|\\.)*"|-?[\d.]+(?:e[+-]?\d+)?|[A-Za-z]\w*)$')
_CLOSE = re.compile(r"( *)\}$")
_NODE = re.compile(r'(?:name|op|input|device): "(?:[^"\\]|\\.)*"$')
_GRAPH = re.compile(r"unshardable source dataset: |: goo\.gle/debug\w+ *$")
_ARRAY = re.compile(
    r"\s*\d+: (?:<tf\.Tensor: shape=|tf\.Tensor\()|\s*(?:array|dtype)[(=]"
    r"|[\s\[\]().,]*-?(?:\d|nan|inf|True|False|b'|\.\.\.|$)"
)
_PATIENCE = 3  # foreign lines in a row that end a dump


@dataclass(frozen=True)
class Hidden:
    """Consecutive lines that say nothing to a user.

    Parameters
    ----------
    count : int
        How many lines.
    first_line : str
        The first of them.
    """

    count: int
    first_line: str

    def __str__(self) -> str:
        lines = "line" if self.count == 1 else "lines"
        return f"{self.count} {lines} of TensorFlow notices hidden"


class Noise:
    """Judge the lines of one log in their order; dumps span many of them."""

    def __init__(self) -> None:
        self._after_notice = False
        self._dump: _Dump | None = None

    def hides(self, line: str) -> bool:
        """Return whether `line`, the log's next, says nothing to a user."""
        if not (self._dump or self._after_notice or _START.search(line)):
            return False
        return self._judge(plain(line))

    def _judge(self, line: str) -> bool:
        if self._dump is not None and self._dump.over:
            self._dump = None
        native = NATIVE.match(line)
        if native or _PYTHON.match(line):
            self._after_notice = native is None or _harmless(native, line)
            self._dump = _dump(line)
            return self._after_notice
        if self._dump is not None and self._dump.owns(line):
            return True
        if self._after_notice and _OPEN.match(line):
            self._dump = _Graph()
            return self._dump.owns(line)
        self._after_notice = self._after_notice and _MORE.match(line) is not None
        self._dump = _dump(line) or self._dump
        return self._after_notice


class Fold:
    """Replace each stretch of notices by one `Hidden`, while the lines come in."""

    def __init__(self) -> None:
        self._noise = Noise()
        self._count = 0
        self._first = ""

    def feed(self, line: str) -> list[str | Hidden]:
        """Take the next line and return what can be shown now, in order."""
        if self._noise.hides(line):
            self._first = self._first if self._count else line
            self._count += 1
            return []
        return [*self.close(), line]

    def close(self) -> list[str | Hidden]:
        """Return the notices that nothing has followed yet."""
        hidden = Hidden(self._count, self._first)
        self._count = 0
        return [hidden] if hidden.count else []


def fold(lines: Iterable[str]) -> Iterator[str | Hidden]:
    """Yield `lines` with each stretch of notices replaced by one `Hidden`."""
    folding = Fold()
    for line in lines:
        yield from folding.feed(line)
    yield from folding.close()


def _harmless(native: re.Match[str], line: str) -> bool:
    known = _KNOWN.get(native[3])
    if known is not None and known.match(line, native.end()):
        return True
    return (native[1] or native[2]) == "I" and not _FAILING.search(line, native.end())


def _dump(line: str) -> _Dump | None:
    """Return the dump that follows `line`, if one does."""
    if _GRAPH.search(line):
        return _Graph()
    return _Batch() if line.endswith("(PerReplica:{") else None


class _Dump:
    """A message's lines that only repeat data; it ends where strangers take over."""

    def __init__(self) -> None:
        self._strangers = 0
        self._ended = False

    @property
    def over(self) -> bool:
        """Whether the next line cannot belong to it any more."""
        return self._ended or self._strangers >= _PATIENCE

    def owns(self, line: str) -> bool:
        """Return whether `line` belongs to the dump."""
        owned = self._fits(line)
        self._strangers = 0 if owned else self._strangers + 1
        return owned

    def _fits(self, line: str) -> bool:
        raise NotImplementedError


class _Graph(_Dump):
    """A protocol buffer in text form, as the auto-sharding of a dataset prints it.

    A line belongs to it only with the indent of its depth, two blanks each.
    """

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def _fits(self, line: str) -> bool:
        indent = "  " * self._depth
        if (match := _OPEN.match(line)) and match[1] == indent:
            self._depth += 1
            return True
        if (match := _CLOSE.match(line)) and self._depth and match[1] == indent[2:]:
            self._depth -= 1
            return True
        if self._depth == 0:
            self._ended = not _NODE.match(line)
            return not self._ended or not line
        match = _FIELD.match(line)
        return match is not None and match[1] == indent


class _Batch(_Dump):
    """The arrays of a batch inside an error message, up to its closing brace."""

    def _fits(self, line: str) -> bool:
        self._ended = line.startswith("})")
        return not self._ended and bool(_ARRAY.match(line))
