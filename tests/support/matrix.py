"""Disturbs trainings on several hosts at random, and judges each by the same few questions.

A round is one `mwmagic run` on the hosts of a network, with faults that are drawn from a seed: what
happens, to which task's host, when, and for how long. Whatever it was, the training must end with
the weights of one that nothing disturbed, after at most one restart for each fault; what is said of
a failure must be true; each printed line must be in its log and on the terminal once, unless a
notice says that some are missing; and nothing may be left.

``python tests/support/matrix.py ssh --rounds 300 --seed 1`` plays that many rounds, with ``slurm``
or ``ray`` (in ``.venv-ray``) on their hosts, and prints a table.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from accidents import agents, clients
from processes import LABEL, alive, children, command, kill_all, labelled, variables

from mwmagic.engines.engine import CODE
from mwmagic.model.findings import Symptom
from mwmagic.record import runs
from mwmagic.words import headline

TENSORFLOW_PYTHON = str(Path(__file__).parents[2] / ".venv/bin/python")
"""The workers' Python, of which only the framework's version is looked up."""

LEASE_SECONDS = 5.0

STEPS = 50
SAVE_STEPS = 5
"""After how many steps a training saves its weights."""

LIMIT_SECONDS = 180.0
"""How long a run may take in all."""

GONE_SECONDS = 60.0
"""How long what it started may outlive it: a link that is cut ends by its lease alone."""

TRAINING = f"""
import json, os, socket, sys, time
sides, patience = sys.argv[1], float(sys.argv[2])
config = json.loads(os.environ["TF_CONFIG"])
rank, peers = config["task"]["index"], config["cluster"]["worker"]
attempt, host = os.environ["MWMAGIC_ATTEMPT"], os.uname().nodename
name = f"{{rank}}-{{attempt}}"
begun, done = (open(f"{{sides}}/{{name}}.{{kind}}", "ab", 0) for kind in ("begun", "done"))
number = 0

def say(text=""):
    global number
    begun.write(b".")
    print("line", name, number, text, flush=True)
    done.write(b".")
    number += 1

def phase(step, what):
    with open(f"{{sides}}/phase-{{rank}}.new", "w") as file:
        file.write(f"{{attempt}} {{step}} {{what}} {{host}}")
    os.replace(file.name, f"{{sides}}/phase-{{rank}}")

def gone(task, why):
    error = "UnavailableError: Collective ops is aborted by: Error reported from"
    place = f"/job:worker/replica:0/task:{{task}}"
    print(f"tensorflow.python.framework.errors_impl.{{error}} {{place}}: {{why}}", flush=True)
    sys.exit(1)

def meet():
    end = time.monotonic() + 60
    at, port = peers[0].rsplit(":", 1)
    if rank == 0:
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("", int(port)))
        server.listen()
        server.settimeout(60)
        links = {{}}
        while len(links) < len(peers) - 1:
            link, _ = server.accept()
            link.settimeout(patience)
            file = link.makefile("rw")
            links[json.loads(file.readline())] = file
        return links
    while True:
        try:
            link = socket.create_connection((at, int(port)), 1)
            break
        except OSError:
            if time.monotonic() > end:
                gone(0, "heartbeat timeout: unhealthy")
            time.sleep(0.05)
    link.settimeout(patience)
    file = link.makefile("rw")
    file.write(json.dumps(rank) + "\\n")
    file.flush()
    return {{0: file}}

def exchange(value):
    values, last = {{rank: value}}, 0
    try:
        for last, file in sorted(links.items()):
            if rank:
                file.write(json.dumps(value) + "\\n")
                file.flush()
            values[last] = json.loads(file.readline() or gone(last, "Connection reset by peer"))
        if rank:
            return values[0]
        everything = [values[one] for one in range(len(peers))]
        for last, file in sorted(links.items()):
            file.write(json.dumps(everything) + "\\n")
            file.flush()
        return everything
    except TimeoutError:
        gone(last, "heartbeat timeout: unhealthy")
    except OSError as error:
        gone(last, error.strerror)

say("on " + host)
phase(-1, "meets")
links = meet()
try:
    with open(f"state-{{rank}}") as file:
        mine = json.load(file)
except (OSError, ValueError):
    mine = [0, [1.0, 2.0, 3.0]]
step, weights = max(exchange(mine))
say(f"from step {{step}}")
while step < {STEPS}:
    phase(step, "trains")
    time.sleep(0.12)
    parts = exchange([(rank + 1) * (one * 0.01 + step) for one in weights])
    weights = [one - 0.1 * sum(gradients) for one, gradients in zip(weights, zip(*parts))]
    step += 1
    for part in range(3):
        say(f"step {{step}}")
    if step % {SAVE_STEPS} == 0:
        phase(step, "saves")
        with open(f"state-{{rank}}.new", "w") as file:
            time.sleep(0.05)
            json.dump([step, weights], file)
            time.sleep(0.05)
        os.replace(file.name, f"state-{{rank}}")
exchange(None)
with open(f"{{sides}}/weights-{{rank}}", "w") as file:
    json.dump(weights, file)
say("done")
"""
"""Workers that add numbers up over TCP at their addresses, and give up as TensorFlow's do."""


WARM = """
import sys
import mwmagic.cli
import mwmagic.cli.clusters as clusters
sys.exit(mwmagic.cli.main())
"""

COLD = WARM.replace("sys.exit", "clusters.repeats = lambda options: False\nsys.exit")
"""The command, which does not import TensorFlow beforehand, as it does with ``--restarts``."""


def undisturbed(workers):
    """Return the weights of a training that nothing disturbs."""
    weights = [1.0, 2.0, 3.0]
    for step in range(STEPS):
        parts = [[(rank + 1) * (one * 0.01 + step) for one in weights] for rank in range(workers)]
        sums = [sum(gradients) for gradients in zip(*parts, strict=True)]
        weights = [one - 0.1 * total for one, total in zip(weights, sums, strict=True)]
    return weights


LOST = {Symptom.HOST_LOST, Symptom.AGENT_LOST}
LINK = LOST | {Symptom.CUT_OFF}
BETWEEN = {Symptom.HOSTS_APART, Symptom.CUT_OFF, Symptom.LOST_EACH_OTHER, Symptom.SILENT}
"""A link between tasks, which only they use, may be sound again when it is looked at."""

STILL = {Symptom.STOPPED_BY_SIGNAL, Symptom.SILENT}


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes
    ----------
    told
        What may be said of it, if it makes an attempt fail; nothing is said if it does not.
    lasts
        The shortest and the longest time that it lasts, in seconds, unless it is over at once.
    ends
        The exit code of a command that it ends.
    """

    told: frozenset = frozenset()
    lasts: tuple[float, float] | None = None
    ends: int | None = None


KINDS = {
    "kill worker": Kind(frozenset({Symptom.KILLED})),
    "kill agent": Kind(frozenset(LOST)),
    "kill client": Kind(frozenset(LOST)),
    "kill daemon": Kind(frozenset(LOST)),
    "stop worker": Kind(frozenset(STILL), (0.5, 12.0)),
    "stop agent": Kind(frozenset(LINK), (0.5, 15.0)),
    "cut": Kind(frozenset(LINK), (0.5, 20.0)),
    "cut there": Kind(frozenset(LINK), (0.5, 20.0)),
    "cut back": Kind(frozenset(LINK), (0.5, 20.0)),
    "cut between": Kind(frozenset(BETWEEN), (0.5, 20.0)),
    "loss": Kind(frozenset(LINK | BETWEEN), (2.0, 15.0)),
    "slow": Kind(frozenset(LINK | BETWEEN), (2.0, 15.0)),
    "interrupt command": Kind(ends=130),
    "terminate command": Kind(ends=-signal.SIGTERM),
    "kill command": Kind(ends=-signal.SIGKILL),
    "kill supervisor": Kind(ends=2),
}

SIGNALS = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "interrupt": signal.SIGINT,
    "terminate": signal.SIGTERM,
}

MOMENTS = ("allocation", "start", "step", "step", "step", "save", "end")


@dataclass
class Fault:
    """What happens in a round: `seconds` is its length, `later` its delay after its moment."""

    kind: str
    moment: str
    victim: int
    step: int = 0
    later: float = 0.0
    seconds: float = 0.0
    degree: float = 0.0
    host: str = ""
    struck: float | None = None

    @classmethod
    def drawn(cls, draw, kinds, workers):
        kind = draw.choice(kinds)
        return cls(
            kind,
            draw.choice(MOMENTS),
            draw.randrange(workers),
            step=draw.randrange(1, STEPS - 1),
            later=draw.choice([0.0, draw.uniform(0.0, 0.3)]),
            seconds=draw.uniform(*KINDS[kind].lasts) if KINDS[kind].lasts else 0.0,
            degree=draw.choice([0.05, 0.2, 0.4]) if kind == "loss" else draw.choice([64, 256]),
        )


@dataclass
class Round:
    """A run and its faults, and what was wrong."""

    seed: str
    workers: int
    spare: bool
    patience: float
    cold: bool
    faults: list[Fault]
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0
    restarts: int = 0

    @classmethod
    def drawn(cls, seed, kinds):
        draw = random.Random(seed)
        workers = 2
        faults = [Fault.drawn(draw, kinds, workers)]
        again = draw.random()
        if again < 0.35:  # at once, or while the run starts again
            second = Fault.drawn(draw, kinds, workers)
            second.moment = "beside" if again < 0.15 else "restart"
            second.later = draw.uniform(0.0, 0.5 if again < 0.15 else 2.0)
            faults.append(second)
        patience = draw.choice([draw.uniform(1.5, 6.0), 60.0])
        spare, cold = draw.random() < 0.7, draw.random() < 0.95
        return cls(str(seed), workers, spare, patience, cold, faults)

    @property
    def ends(self):
        """The exit codes of the struck faults that end the command."""
        return [KINDS[one.kind].ends for one in self.faults if one.struck and KINDS[one.kind].ends]

    def words(self):
        """Say in a line what it was."""
        faults = ", ".join(
            f"{one.kind} ({one.victim} at {one.moment} {one.step}, {one.seconds:.1f} s, "
            f"{'on ' + one.host if one.struck else 'too late'})"
            for one in self.faults
        )
        return f"{self.seed}: {faults}; patience {self.patience:.1f}{', spare' * self.spare}"


def read(path):
    try:
        return path.read_text()
    except OSError:
        return ""


def until(condition, seconds, pause=0.02):
    """Wait for a condition; return whether it came."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(pause)
    return found


class Play:
    """A round as it is played."""

    def __init__(self, place, chosen, folder, sides):
        self.others = set(labelled())  # of tests that came before
        self.place = place
        self.chosen = chosen
        self.sides = sides
        self.hosts = {host.name: host for host in place.hosts}
        (folder / "main.py").write_text(TRAINING)
        self.out, self.err = folder / "out", folder / "err"
        words = place.words(spare=chosen.spare, workers=chosen.workers)
        options = ["--restarts", str(2 * len(chosen.faults)), "--lease", str(LEASE_SECONDS)]
        given = ["run", "-n", str(chosen.workers), "--grace", "2", *options, *words]
        program = ["main.py", str(sides), str(chosen.patience)]
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-c", COLD if chosen.cold else WARM, *given, *program],
                cwd=folder,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.undo = []

    def phase(self, rank):
        """Return a task's attempt, step, phase and host."""
        words = read(self.sides / f"phase-{rank}").split()
        return (int(words[0]), int(words[1]), *words[2:]) if len(words) == 4 else (0, -1, "", "")

    def come(self, fault):
        """Whether a fault's moment has come."""
        attempt, step, what, _ = self.phase(fault.victim)
        return {
            "allocation": lambda: children(self.process.pid),
            "start": lambda: attempt > 0,
            "step": lambda: step >= fault.step and what == "trains",
            "save": lambda: step >= fault.step and what == "saves",
            "end": lambda: step >= STEPS - 1,
            "restart": lambda: " follows, restart " in read(self.err),
            "beside": lambda: True,
        }[fault.moment]()

    def play(self):
        began = time.monotonic()
        try:
            for fault in self.chosen.faults:
                self.wait(lambda fault=fault: self.come(fault))
                self.rest(fault.later)
                if self.process.poll() is None:
                    self.strike(fault)
            self.wait(lambda: False)
            if self.process.poll() is None:
                self.chosen.wrong.append(f"not over after {LIMIT_SECONDS:g} s")
        finally:
            for _, undo in self.undo:
                with suppress(ProcessLookupError):
                    undo()
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait()
        self.chosen.seconds = time.monotonic() - began

    def wait(self, condition, limit=LIMIT_SECONDS):
        """Wait for a condition or the command's end, and end what lasts no longer."""
        deadline = time.monotonic() + limit
        while self.process.poll() is None and not condition() and time.monotonic() < deadline:
            now = time.monotonic()
            for one in [one for one in self.undo if one[0] <= now]:
                self.undo.remove(one)
                with suppress(ProcessLookupError):
                    one[1]()
            time.sleep(0.01)

    def rest(self, seconds):
        self.wait(lambda: False, seconds)

    def strike(self, fault):
        names = list(self.hosts)
        name = self.phase(fault.victim)[3] or names[fault.victim]
        host = self.hosts[name]
        fault.host = name
        fault.struck = time.monotonic()
        undo = self.hit(fault, host)
        if undo is not None and fault.seconds:
            self.undo.append((time.monotonic() + fault.seconds, undo))

    def hit(self, fault, host):
        """Have a fault happen; return what ends it."""
        match fault.kind:
            case "cut between":
                other = self.hosts[self.phase(1 - fault.victim)[3] or host.name]
                if other is host:
                    fault.struck = None
                    return None
                host.shun(other)
                return lambda: host.greet(other)
            case "cut":
                host.cut()
                return host.mend
            case "cut there" | "cut back":
                (host.deafen if fault.kind == "cut there" else host.mute)()
                return host.heal
            case "loss" | "slow":
                (host.drop if fault.kind == "loss" else host.throttle)(fault.degree)
                return host.heal
        return self.send(fault, host)

    def send(self, fault, host):
        """Send processes a signal; return what undoes that."""
        how, target = fault.kind.split()
        pids = self.targets(target, host)
        if not pids:
            fault.struck = None
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, SIGNALS[how])
        return lambda: [os.kill(pid, signal.SIGCONT) for pid in pids if alive(pid)]

    def targets(self, target, host):
        """Return the processes of a kind."""
        match target:
            case "worker":
                return self.place.workers(host)
            case "agent":
                return agents(host)
            case "client":
                return clients(self.place.client, host)
            case "daemon":
                return self.place.daemons(host)
            case "supervisor":
                own = children(self.process.pid)
                return [pid for pid in own if "supervisor" in command(pid)]
        return [self.process.pid]

    # The oracle.

    def judge(self):
        chosen = self.chosen
        self.nothing_left()
        found = runs(self.err.parent)
        err = read(self.err)
        if "Traceback" in err:
            chosen.wrong.append("a traceback")
        if not found:
            if not chosen.ends and not self.refused(err):
                chosen.wrong.append(f"no record: exit code {self.process.returncode}, {err[-600:]}")
            return
        [record] = found
        self.outcome(record, err)
        self.record(record)
        self.causes(record, err)
        self.lines(record, err)

    def refused(self, err):
        """Whether hosts that were struck before the run began are named instead."""
        early = [one.host for one in self.chosen.faults if one.moment == "allocation"]
        return self.process.returncode == 2 and any(host and host in err for host in early)

    def nothing_left(self):
        if not until(lambda: not self.left(), GONE_SECONDS, 0.2):
            self.chosen.wrong.append(f"left: {self.left()}")
            kill_all(self.own())

    def own(self):
        return set(labelled()) - self.others

    def left(self):
        return [command(pid) for pid in self.own()] or self.place.left()

    def outcome(self, record, err):
        """The exit code and the weights."""
        chosen, code = self.chosen, self.process.returncode
        if chosen.ends and (code in chosen.ends or self.over_before()):
            wanted = {"stopped", "lost", "failed", "finished"}
            if record.state not in wanted:
                chosen.wrong.append(f"the record says {record.state}")
            return
        if code != 0:
            chosen.wrong.append(f"exit code {code}: {err[-600:]}")
        if record.state != "finished":
            chosen.wrong.append(f"the record says {record.state}")
        for rank in range(chosen.workers):
            text = read(self.sides / f"weights-{rank}")
            if not text or json.loads(text) != undisturbed(chosen.workers):
                chosen.wrong.append(f"the weights of worker:{rank} are {text or 'missing'}")

    def over_before(self):
        """Whether the training was over when the command was to end."""
        return all((self.sides / f"weights-{rank}").exists() for rank in range(self.chosen.workers))

    def record(self, record):
        kinds = [event["event"] for event in record.events()]
        killed = signal.SIGKILL in [-code for code in self.chosen.ends] or 2 in self.chosen.ends
        if kinds[:1] != ["created"] or (not killed and "ended" not in kinds):
            self.chosen.wrong.append(f"the record has the events {Counter(kinds)}")
        if not record.status.over:
            self.chosen.wrong.append("the record is of a run that is not over")

    def causes(self, record, err):
        """The restarts, and what is said of each."""
        chosen, status = self.chosen, record.status
        struck = [one for one in chosen.faults if one.struck]
        chosen.restarts = len(status.setbacks)
        costly = [one for one in struck if KINDS[one.kind].ends is None]
        if len(status.setbacks) > len(costly):
            chosen.wrong.append(f"{len(status.setbacks)} restarts for {len(costly)} faults")
        for setback in status.setbacks:
            if not any(self.true(setback.cause, fault) for fault in costly):
                chosen.wrong.append(f"untrue: {headline(setback.cause)}; {setback.cause.finding}")
            if f"attempt {setback.attempt} failed" not in err and not chosen.ends:
                chosen.wrong.append(f"attempt {setback.attempt} is not printed as failed")
        if re.search(r"trained by itself", err):
            chosen.wrong.append("a false remark: trained by itself")

    def true(self, cause, fault):
        finding = cause.finding
        if finding.symptom not in KINDS[fault.kind].told:
            return False
        if "worker" in fault.kind:
            return finding.task == f"worker:{fault.victim}"
        return finding.host in (fault.host, None) or finding.symptom in BETWEEN

    def lines(self, record, err):
        """What was printed, what is in the logs, and what the command showed."""
        chosen, shown = self.chosen, defaultdict(list)
        for line in read(self.out).splitlines():
            if match := re.match(r"\[worker:\d\] line (\d)-(\d+) (\d+) ", line):
                shown[f"{match[1]}-{match[2]}"].append(int(match[3]))
        notices = set(re.findall(r"worker:(\d)[^\n]*(?:missing|lacks)", err))
        known = {one.stem for one in self.sides.glob("*.begun")}
        dead = any(KINDS[one.kind].ends in (2, -9) for one in chosen.faults if one.struck)
        for name in sorted(known | set(shown)):
            rank, attempt = name.split("-")
            begun, done = (len(read(self.sides / f"{name}.{kind}")) for kind in ("begun", "done"))
            try:
                text = record.log(f"worker:{rank}", int(attempt)).decode()
            except Exception as error:  # noqa: BLE001 - there is no log
                text = ""
                if done and not dead:
                    chosen.wrong.append(f"no log of {name}: {error}")
            logged = [int(one) for one in re.findall(rf"^line {name} (\d+) ", text, re.MULTILINE)]
            if logged != list(range(len(logged))) or len(logged) > begun:
                chosen.wrong.append(f"the log of {name} is torn")
            if len(logged) < done and rank not in notices and not dead:
                chosen.wrong.append(f"the log of {name} lacks {done - len(logged)} of {done} lines")
            if shown[name] != list(range(len(shown[name]))):
                chosen.wrong.append(f"shown of {name} is out of order, or twice")
            if len(shown[name]) < len(logged) and rank not in notices and not dead:
                lacking = len(logged) - len(shown[name])
                chosen.wrong.append(f"not shown of {name}: {lacking} of {len(logged)} lines")


class Ssh:
    """Hosts that ssh reaches; the last does not see the directory of the run."""

    client = "ssh"
    kinds = tuple(KINDS)

    def __init__(self, lab):
        self.lab = lab
        self.hosts = lab.hosts

    def words(self, *, spare, workers):
        names = [host.name for host in self.hosts[: workers + spare]]
        if not spare:
            names = [host.name for host in self.hosts[-workers:]]
        hosts = ["--engine", "ssh", "--hosts", ",".join(names), "--python", TENSORFLOW_PYTHON]
        return [*hosts, "--", "-F", str(self.lab.config), "--"]

    def workers(self, host):
        found = [one.pid for one in host.processes()]
        own = b"MWMAGIC_TASK="
        return [pid for pid in found if any(one.startswith(own) for one in variables(pid))]

    def daemons(self, host):
        found = [one.pid for one in host.processes()]
        return [pid for pid in found if command(pid).startswith("sshd: root@")]

    def left(self):
        return self.lab.left()


@contextmanager
def ssh(hidden):
    from sshd import Lab

    with tempfile.TemporaryDirectory(prefix="mw-lab-", dir="/tmp") as folder:
        lab = Lab(folder, [hidden, CODE])
        try:
            lab.up()
            yield Ssh(lab)
        finally:
            lab.down()


class OnSlurm:
    """The nodes of a Slurm."""

    client = "srun"
    kinds = tuple(KINDS)

    def __init__(self, one):
        self.slurm = one
        self.hosts = one.network.hosts

    def words(self, *, spare, workers):
        asked = ["--engine", "slurm", "--nodes", str(workers), "--python", TENSORFLOW_PYTHON]
        return asked if spare else [*asked, "--", f"--exclude={self.hosts[0].name}", "--"]

    workers = Ssh.workers

    def daemons(self, host):
        return [one.pid for one in host.processes() if one.name() == "slurmstepd"]

    def left(self):
        return self.slurm.jobs() or [c for h in self.hosts for c in map(command, agents(h))]


@contextmanager
def slurm(_hidden):
    import slurm as on_network

    with on_network.slurm() as one, patch.dict(os.environ, one.environment):
        yield OnSlurm(one)


class OnRay:
    """The nodes of a Ray."""

    client = ""
    kinds = tuple(kind for kind in KINDS if kind not in ("kill client", "kill daemon"))

    def __init__(self, one):
        self.rays = one
        self.hosts = one.network.hosts

    def words(self, *, spare, workers):
        address = ["--engine", "ray", "--address", self.rays.address, "--nodes", str(workers)]
        return [*address, "--python", TENSORFLOW_PYTHON]

    workers = Ssh.workers

    def left(self):
        return self.rays.groups() or self.rays.left()


@contextmanager
def ray(_hidden):
    import raylets

    with raylets.rays() as one:
        yield OnRay(one)


ENGINES = {"ssh": ssh, "slurm": slurm, "ray": ray}


@contextmanager
def ready(engine):
    """Bring an engine's hosts up; yield them, and the folder that not all of them see."""
    own = tempfile.TemporaryDirectory(prefix="mw-runs-", dir="/tmp")
    with own as folder, ENGINES[engine](Path(folder)) as place:
        yield place, Path(folder)


def played(place, folder, chosen):
    """Play a round and judge it."""
    own = Path(tempfile.mkdtemp(dir=folder))
    with tempfile.TemporaryDirectory(prefix="mw-sides-", dir="/tmp") as sides:
        play = Play(place, chosen, own, Path(sides))
        play.play()
        play.judge()
        if chosen.wrong and (keep := os.environ.get("MWMAGIC_MATRIX_KEEP")):
            subprocess.run(["cp", "-r", own, sides, f"{keep}/"], check=False)
            chosen.wrong.append(f"kept in {own.name}")
    return chosen


def table(rounds):
    """Return a line for each kind of fault."""
    kinds = defaultdict(list)
    for one in rounds:
        for name in {fault.kind for fault in one.faults if fault.struck} or {"nothing"}:
            kinds[name].append(one)
    form = "{:<16}{:>7}{:>7}{:>10}{:>12}".format
    lines = [form("fault", "rounds", "wrong", "restarts", "longest s")]
    for name, ones in [*sorted(kinds.items()), ("all", rounds)]:
        wrong = sum(bool(one.wrong) for one in ones)
        restarts = sum(one.restarts for one in ones)
        longest = max((one.seconds for one in ones), default=0.0)
        lines.append(form(name, len(ones), wrong, restarts, f"{longest:.0f}"))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no more rounds")
    parser.add_argument("--only", help="the kinds of faults, separated by commas")
    given = parser.parse_args()
    os.environ.setdefault(LABEL, str(os.getpid()))
    began, rounds = time.monotonic(), []
    with ExitStack() as stack:
        place, folder = stack.enter_context(ready(given.engine))
        kinds = given.only.split(",") if given.only else place.kinds
        for number in range(given.rounds):
            if time.monotonic() - began > given.seconds:
                break
            one = played(place, folder, Round.drawn(f"{given.seed}-{number}", kinds))
            rounds.append(one)
            state = "; ".join(one.wrong) or "right"
            took = f"{one.restarts} restarts, {one.seconds:.0f} s"
            print(f"{one.words()}: {took}: {state}", flush=True)
    print(table(rounds))
    return 1 if any(one.wrong for one in rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
