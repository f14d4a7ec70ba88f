import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mwmagic.logs.lines import Fold, Hidden, LogLine, Mark
from mwmagic.logs.noise import Noise
from mwmagic.logs.terminal import shown

NOTICE = "I0000 00:00:1795230874.609583    6545 port.cc:153] oneDNN custom operations are on."
CUDA = "cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: "
UNSHARDABLE = "NOT_FOUND: Found an unshardable source dataset: "
GRAPH = """\
name: "TensorSliceDataset/_2"
op: "TensorSliceDataset"
input: "Placeholder/_0"
attr {
  key: "Toutput_types"
  value {
    list {
      type: DT_FLOAT
      s: "a \\"quoted\\" { name"
      i: -1
      f: 1e-05
      shape {
      }
    }
  }
}
""".splitlines()


def fold(lines):
    """Fold lines as `Lines` marks them."""
    noise = Noise()
    marks = (Mark.NOISE if noise.hides(line) else Mark.PLAIN for line in lines)
    return fold_marked(map(LogLine, marks, lines))


def fold_marked(lines):
    folding = Fold()
    yield from folding.feed(lines)
    yield from folding.close()


def folded(data):
    return list(fold(shown(data, ansi=False)))


def test_only_the_users_lines_are_left_of_a_loop(sample):
    lines = folded(sample("loop-0"))
    assert lines[0] == Hidden(19)
    assert lines[1] == "step 0 loss=2.7000"
    assert sum(isinstance(line, Hidden) for line in lines) == 1
    assert len(lines) == 16


def test_older_headers_and_jax_are_known(sample):
    older = [line for line in folded(sample("tensorflow-2.16-0")) if isinstance(line, str)]
    assert not any("tensorflow/core" in line or "external/local" in line for line in older)
    assert [line for line in folded(sample("jax-1")) if isinstance(line, str)] == [
        "devices 2",
        *[f"step {step} loss=1.000" for step in range(3)],
        "done",
    ]


def test_nothing_is_lost_or_reordered(any_sample):
    lines = shown(any_sample, ansi=False)
    result = list(fold(lines))
    assert sum(part.count if isinstance(part, Hidden) else 1 for part in result) == len(lines)
    noise = Noise()
    assert [line for line in lines if not noise.hides(line)] == [
        line for line in result if isinstance(line, str)
    ]


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        (
            "lost-peer-0",
            ["unhealthy (stopped sending heartbeats)", "E0000", "/job:worker/replica:0/"],
        ),
        ("chained-1", ["KeyError: 'missing'", "RuntimeError: bad batch:", "second line"]),
        (
            "unpatched-keras3-1",
            ["ValueError: Attempt to convert a value (PerReplica:{", "}) with an"],
        ),
        (
            "unshardable-0",
            ["E0000 ", "NotFoundError: {{function_node", " [Op:AutoShardDataset] name: "],
        ),
        ("keras3-data", ["W0000 00:00:1795231644.451560", "OSError: cannot read shard 4"]),
    ],
)
def test_failures_stay(sample, name, kept):
    text = [line for line in folded(sample(name)) if isinstance(line, str)]
    for part in kept:
        assert any(part in line for line in text)
    assert any(line.startswith("Traceback") or line.endswith("last):") for line in text)


def test_dumps_are_folded_inside_an_error(sample):
    batch = folded(sample("unpatched-keras3-1"))
    first, hidden, last = batch[-3:]
    assert first.startswith("ValueError: Attempt to convert a value (")
    assert hidden.count == 15
    assert last.startswith("}) with an unsupported type (<class 'ten")
    graphs = [line for line in folded(sample("unshardable-0")) if isinstance(line, Hidden)]
    assert [line.count for line in graphs] == [19, 73, 73, 73, 72]


@pytest.mark.parametrize(
    "line",
    [
        f"E0000 00:00:1795230874.609583    6545 {CUDA}UNKNOWN ERROR (303)",
        f"2024-11-21 03:14:34.609583: E external/local_xla/xla/cuda/{CUDA}CUDA_ERROR_NO_DEVICE: no",
        "2024-11-21 03:14:34: W tensorflow/core/auto_shard.cc:5] AUTO sharding policy will apply",
        "I1121 03:29:51.396280   20048 grpc_credentials.cc:38] gRPC insecure server",
        "INFO:tensorflow:Using MirroredStrategy with devices ('/job:localhost/replica:0/task:0',)",
        "[Gloo] Rank 0 is connected to 7 peer ranks. Expected number of connected peer ranks : 7",
        f"\x1b[31m{NOTICE}\x1b[0m",
    ],
)
def test_notices(line):
    assert Noise().hides(line)


@pytest.mark.parametrize(
    "line",
    [
        "E0000 00:00:1795230874.609583    6545 add_port.cc:83] Failed to add port to server",
        f"E0000 00:00:1795230874.609583    6545 {CUDA}CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "I0000 00:00:1795230874.6  6545 executor.cc:2] StartAbort UNAVAILABLE: Connection reset",
        "W0000 00:00:1795230874.6  6545 preemption_notifier.cc:90] SIGTERM caught at 2026-11-21",
        "W0000 00:00:1795230874.6  6545 local_rendezvous.cc:412] is aborting with status: INTERNAL",
        "I1121 03:14:34.609583 139 main.py:53] epoch 1 loss=0.5",
        "INFO:root:epoch 1",
        "INFO:tensorflow:Error reported to Coordinator: out of memory",
        "loss: 0.5",
        "/job:worker/replica:0/task:1",
        "To enable the following instructions: read on",
        "2024-11-21 03:14:34 starting",
        "node {",
        'name: "mine"',
        "[Gloo] my own line",
        "  [0.1, 0.2],",
        "",
    ],
)
def test_lines_to_show(line):
    assert not Noise().hides(line)


@pytest.mark.parametrize(
    "head", ["W0000 00:00:1.2  3 op_kernel.cc:1] ", "errors_impl.NotFoundError: "]
)
def test_a_users_print_inside_a_graph_dump_is_shown(head):
    lines = [
        head + UNSHARDABLE,
        *GRAPH[:7],
        "loss: 0.5",
        "Epoch 2/3",
        *GRAPH[7:],
        "name = x",
        "done",
    ]
    shown_lines = [line for line in fold(lines) if isinstance(line, str)]
    assert shown_lines == [head + UNSHARDABLE, "loss: 0.5", "Epoch 2/3", "name = x", "done"]


def test_a_dump_that_is_cut_off_ends_at_the_next_lines():
    lines = [
        f"errors_impl.NotFoundError: {UNSHARDABLE}",
        *GRAPH[:7],
        "a",
        "b",
        "c",
        "      d: 1",
        "e",
    ]
    assert list(fold(lines)) == [lines[0], Hidden(7), "a", "b", "c", "      d: 1", "e"]


def test_numbers_after_a_batch_dump_are_shown():
    lines = [
        "ValueError: value (PerReplica:{",
        "  0: tf.Tensor(",
        "[[1. 2.]",
        "}) no",
        "[[1. 2.]",
        "0.5",
    ]
    assert list(fold(lines)) == [lines[0], Hidden(2), *lines[3:]]


def test_a_notice_of_several_lines_is_one():
    lines = [NOTICE, "/job:worker/replica:0/task:1", "\t [[{{node PyFunc}}]]", "device_info {"]
    lines += ["  device {", "  }", "}", "", "mine", "/job:worker/replica:0/task:1"]
    assert list(fold(lines)) == [Hidden(8), "mine", "/job:worker/replica:0/task:1"]


def test_a_fold_shows_a_line_as_early_as_it_can():
    taken = []
    lines = [
        LogLine(Mark.PLAIN, "mine"),
        LogLine(Mark.NOISE, NOTICE),
        LogLine(Mark.ERROR, "failed"),
    ]
    folding = fold_marked(taken.append(line) or line for line in lines)
    assert next(folding) == "mine"
    assert len(taken) == 1
    assert next(folding) == Hidden(1)
    assert next(folding) == "failed"
    assert list(fold_marked([LogLine(Mark.NOISE, NOTICE)])) == [Hidden(1)]


@settings(deadline=None)
@given(st.lists(st.text() | st.sampled_from([NOTICE, *GRAPH, "x (PerReplica:{", UNSHARDABLE])))
def test_garbage_never_raises(lines):
    count = sum(part.count if isinstance(part, Hidden) else 1 for part in fold(lines))
    assert count == len(lines)


OURS = """\
E0000 00:00:1795798930.776541   28375 base_collective_executor.cc:252] BaseCollectiveExecutor::\
StartAbort UNAVAILABLE: freed by mwmagic, as another task does not come to this collective
E0000 00:00:1795798930.776636   28375 ring_alg.cc:291] Aborting RingReduce with UNAVAILABLE: \
Collective ops is aborted by: freed by mwmagic, as another task does not come to this collective
The error could be from a previous operation. Restart your program to reset. [type.googleapis]
W0000 00:00:1795798930.776677   31916 local_rendezvous.cc:412] Local rendezvous is aborting with \
status: UNAVAILABLE: Collective ops is aborted by: freed by mwmagic, as another task does not \
come to this collective
The error could be from a previous operation. Restart your program to reset.
\t [[{{node CollectiveReduceV2}}]] [type.googleapis.com/tensorflow.DerivedStatus='']
"""


def test_what_we_have_ended_ourselves_is_folded():
    noise = Noise()
    lines = OURS.splitlines()
    assert [line for line in lines if not noise.hides(line)] == []
    foreign = [line.replace("freed by mwmagic", "Connection reset by peer") for line in lines]
    assert foreign[0] in [line for line in foreign if not noise.hides(line)]
    assert not Noise().hides(lines[2]), "a user may print it"
