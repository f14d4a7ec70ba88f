"""What an agent tells of its machine, and of files on it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from processes import children, eventually
from pythons import executable
from speaker import state

from mwmagic.agent import machine
from mwmagic.agent import machine as module
from mwmagic.agent.wire import CHUNK_BYTES, unpacked


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Put a driver's tool on the agent's PATH."""

    def install(code):
        path = tmp_path / "bin" / module.TOOL
        path.parent.mkdir()
        executable(path, code, "-IS")
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")

    return install


def looked(agent, number=1):
    agent.say("look", id=number)
    return agent.wait("looked", id=number)["machine"]


def test_a_machine_is_reported_as_it_is(speak, monkeypatch, tool):
    tool("print('0, NVIDIA H100 80GB HBM3, 81559 MiB')\nprint('1, NVIDIA GB10, [N/A]')")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    agent = speak()
    machine = looked(agent)
    assert machine["host"] == os.uname().nodename
    assert machine["processors"] == len(os.sched_getaffinity(0))
    assert 100 << 20 < machine["memory"] <= os.sysconf("SC_PHYS_PAGES") * 4096
    assert machine["python"] == sys.version.split()[0]
    assert machine["visible"] == "1"
    assert machine["gpus"] == [
        {"index": 0, "name": "NVIDIA H100 80GB HBM3", "memory": 81559 << 20},
        {"index": 1, "name": "NVIDIA GB10", "memory": None},
    ]
    assert machine["why"] is None
    assert not any(one.startswith("127.") for own in machine["addresses"].values() for one in own)


USED_GPUS = """
import sys
queried = "utilization" in sys.argv[1]
rows = ("97, 4096", "20, 512", "[N/A], 0") if queried else ("A, 9 MiB",) * 3
for index, row in enumerate(rows):
    print(f"{index}, {row}")
"""


@pytest.mark.parametrize(
    ("visible", "used"),
    [(None, [[97, 4 << 30], [20, 512 << 20]]), ("1,2", [[20, 512 << 20]]), ("", [])],
)
def test_the_use_of_the_gpus_that_a_worker_sees_is_measured(speak, tool, visible, used):
    tool(USED_GPUS)
    agent = speak(sample=0.02)
    looked(agent)
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    agent.start("a", "import time; time.sleep(600)", env=env)
    agent.start("b", "import time; time.sleep(600)", env={"CUDA_VISIBLE_DEVICES": "0"})

    def measured():
        found = [event["processes"] for event in agent.all("usage")]
        return any(one.get("b", {}).get("gpus") == [[97, 4 << 30]] for one in found) and found[-1]

    assert agent.until(measured, "the use of GPUs")["a"]["gpus"] == used


def test_only_the_processors_that_may_be_used_count(speak):
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        agent = speak()
    finally:
        os.sched_setaffinity(0, allowed)
    assert looked(agent)["processors"] == 1


def test_addresses_are_those_of_the_interfaces():
    text = Path("/proc/net/fib_trie").read_text()
    for own in module.addresses().values():
        assert all(address in text or ":" in address for address in own)


def test_what_is_used_of_a_machine_is_what_no_process_could_get():
    used = module.usage()
    assert 0 <= used["load"] < 10_000
    assert 10 << 20 < used["memory"] < module.memory_total()
    assert 0 <= used["received"] <= module.usage()["received"]
    assert 0 <= used["sent"] <= module.usage()["sent"]


def test_what_a_process_has_moved_to_and_from_disks_is_what_the_kernel_counts():
    found, kernel = module.transferred(os.getpid()), Path("/proc/self/io").read_text()
    assert f"read_bytes: {found['read']}\nwrite_bytes: {found['written']}\n" in kernel
    assert module.transferred(2**22) == {"read": 0, "written": 0}, "there is no such process"


@pytest.mark.parametrize("names", machine.USED.items(), ids=["v2", "v1"])
def test_a_group_with_a_limit_tells_what_it_uses_itself(tmp_path, monkeypatch, names):
    limit, (current, cache) = names
    files = {limit: "1000\n", current: "900\n", "memory.stat": f"a b\n\n{cache.decode()} 300\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(machine, "files", lambda *_: [str(tmp_path / limit)])
    assert machine.memory_used(2000) == 600
    assert machine.memory_used(1000) is None
    (tmp_path / current).write_text("max")
    assert machine.memory_used(2000) is None


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("print('No devices were found')", "nvidia-smi lists none"),
        ("print('broken driver'); raise SystemExit(9)", "broken driver"),
        ("raise SystemExit(9)", "nvidia-smi exits with 9"),
        ("import os; os.abort()", "nvidia-smi exits with -6"),
    ],
)
def test_why_there_are_no_gpus_is_reported(speak, tool, code, why):
    tool(code)
    machine = looked(speak())
    assert machine["gpus"] == []
    assert why in machine["why"] or "UnicodeEncodeError" in machine["why"]


def test_no_tool_is_no_gpu(speak, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    machine = looked(speak())
    assert machine["gpus"] == []
    assert machine["why"] == "cannot run nvidia-smi: No such file or directory"


def test_a_tool_that_hangs_holds_nothing_up_and_ends(speak, tool):
    tool("import time; time.sleep(1000)")
    agent = speak()
    for number in range(3):
        agent.say("look", id=number)
    agent.start("a", "print('well')")
    agent.wait("exited", process="a", code=0)
    [*pids] = children(agent.pid)
    assert len(pids) == 3
    agent.child.stdin.close()
    agent.child.wait(120)
    eventually(lambda: all(state(pid) in ("", "Z") for pid in pids))
    assert not agent.all("looked")


def test_a_tool_that_hangs_is_killed_in_time(speak, tool, tmp_path):
    tool("import time; time.sleep(1000)")
    program = tmp_path / "hasty.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(Path(module.__file__).parents[2])!r})\n"
        "from mwmagic.agent import agent, machine\n"
        "machine.GPU_SECONDS = 0.05\n"
        "agent.Agent().run()\n"
    )
    agent = speak(program=program)
    assert looked(agent)["why"] == "nvidia-smi did not answer within 0.05 seconds"
    assert children(agent.pid) == []


def test_many_looks_leave_nothing(speak, tool):
    tool("print('0')")
    agent = speak()
    before = len([*Path(f"/proc/{agent.pid}/fd").iterdir()])
    for number in range(10):
        assert looked(agent, number)["gpus"] == [{"index": 0, "name": "", "memory": None}]
    assert len([*Path(f"/proc/{agent.pid}/fd").iterdir()]) == before
    assert children(agent.pid) == []


def fetched(agent, path, offset, count, number=1):
    agent.say("fetch", id=number, path=str(path), offset=offset, bytes=count)
    event = agent.wait("fetched", id=number)
    return unpacked(event["data"]), event["size"]


def test_a_file_is_fetched_in_pieces(agent, tmp_path):
    content = bytes(range(256)) * 1000
    path = tmp_path / "file-\udcff"
    path.write_bytes(content)
    got, number = b"", 0
    while len(got) < len(content):
        number += 1
        piece, size = fetched(agent, path, len(got), 1 << 30, number)
        assert size == len(content)
        assert 0 < len(piece) <= CHUNK_BYTES
        got += piece
    assert got == content
    assert fetched(agent, path, 10, 3, 98) == (content[10:13], len(content))
    assert fetched(agent, path, 1 << 40, 3, 99) == (b"", len(content))


@pytest.mark.parametrize(
    ("name", "where", "error"),
    [
        ("none", (0, 1), "No such file"),
        ("fifo", (0, 1), "not a regular file"),
        (".", (0, 1), "not a regular file"),
        ("a\0b", (0, 1), "null"),
        ("file", (-1, 1), "no piece of 1 bytes at -1"),
        ("file", (0, -1), "no piece of -1 bytes at 0"),
        ("file", (1 << 70, 1), "too"),
    ],
)
def test_what_cannot_be_fetched_is_refused(agent, tmp_path, name, where, error):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("x")
    agent.say("fetch", id=7, path=f"{tmp_path}/{name}", offset=where[0], bytes=where[1])
    assert error in agent.wait("refused", command="fetch", id=7)["error"]
    agent.say("ping", n=1, until=None)
    agent.wait("pong")


def test_the_files_below_a_directory_are_named(agent, tmp_path):
    (tmp_path / "saved" / "variables").mkdir(parents=True)
    (tmp_path / "saved" / "index").write_text("12")
    (tmp_path / "saved" / "variables" / "data-\udcff").write_text("1234")
    os.mkfifo(tmp_path / "saved" / "fifo")
    agent.say("list", id=1, path=f"{tmp_path}/saved/")
    found = agent.wait("listed", id=1)["files"]
    assert sorted(found) == [["index", 2], ["variables/data-\udcff", 4]]
    agent.say("list", id=2, path=f"{tmp_path}/saved/index")
    assert agent.wait("listed", id=2)["files"] == [["", 2]]
    errors = {3: (f"{tmp_path}/none", "No such file"), 4: ("/dev/zero", "neither a file")}
    for number, (path, error) in errors.items():
        agent.say("list", id=number, path=path)
        assert error in agent.wait("refused", command="list", id=number)["error"]


def test_devices_are_not_read(agent):
    agent.say("fetch", id=1, path="/dev/zero", offset=0, bytes=10)
    assert "not a regular file" in agent.wait("refused", id=1)["error"]


@pytest.fixture
def packages(tmp_path):
    """Make packages that Python finds, with some version or none."""

    def make(name, version=None, *, dist=None):
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / "__init__.py").write_text("raise SystemExit('not imported')")
        if version is not None:
            about = tmp_path / "site" / f"{dist or name}-{version}.dist-info"
            about.mkdir()
            (about / "METADATA").write_text(f"Name: {dist or name}\nVersion: {version}\n")
            (about / "top_level.txt").write_text(name)

    return make


def found(agent, names, env):
    agent.say("find", id=5, names=names, env=env)
    return agent.until(lambda: agent.all("found", id=5) or agent.all("refused", id=5))[0]


def test_versions_are_those_that_workers_would_import(agent, tmp_path, packages):
    packages("one", "2.19.1")
    packages("two")
    packages("three", "0.1", dist="three-nightly")
    (tmp_path / "site" / "removed").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('hello')")
    names = ["one", "two", "three", "removed", "none", "no.such"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    assert found(agent, names, env)["versions"] == {
        "one": "2.19.1",
        "two": "",
        "three": "0.1",
        **dict.fromkeys(["removed", "none", "no.such"]),
    }


def test_a_python_that_cannot_tell_versions_says_why(agent, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('not that json')")
    refused = found(agent, ["one"], {**os.environ, "PYTHONPATH": str(tmp_path)})
    assert refused["error"] == "not that json"


def test_the_greeting_has_the_addresses_of_the_interfaces(agent):
    assert agent.hello["addresses"] == module.addresses()
