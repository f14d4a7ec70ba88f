"""Disturbs trainings on several hosts at random, and judges each by the same few questions.

A round is one `mwmagic run` or `mwmagic sweep`, or live cells, on the hosts of a network, with
faults that are drawn from a seed: what happens, to which task's host, when, and for how long.
Whatever it was, the training must end with the weights of one that nothing disturbed, after at most
one restart for each fault, and a sweep that a fault has ended must do so when it is continued; what
is said of a failure must be true; each line that a program prints must be in its log and on the
terminal once, unless a notice says that some are missing; and nothing may be left.

``python tests/support/matrix.py ssh --rounds 300 --seed 1`` plays that many rounds, with ``slurm``
or ``ray`` (in ``.venv-ray``) on their hosts, and prints a table.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from accidents import agents, clients
from places import ENGINES, PYTHON, ready
from processes import LABEL, alive, children, command, kill_all, labelled
from trainings import KERAS, LIVE, PLAIN, STEPS, SWEPT_STEPS, UNITS, undisturbed

from mwmagic.model.findings import Symptom
from mwmagic.record import runs
from mwmagic.words import headline

LEASE_SECONDS = 5.0

LIMIT_SECONDS = 180.0
"""How long a run may take in all."""

GONE_SECONDS = 60.0
"""How long what it started may outlive it: a link that is cut ends by its lease alone."""

WARM = """
import sys
import mwmagic.cli
from mwmagic import Cluster
declare = Cluster.declare
sys.exit(mwmagic.cli.main())
"""

_CLUSTER = "Cluster.declare = lambda say, **options: declare(say, **{**options, 'warm': False})\n"

COLD = WARM.replace("sys.exit", f"{_CLUSTER}sys.exit")
"""The command, which does not import TensorFlow beforehand."""

LOST = {Symptom.HOST_LOST, Symptom.AGENT_LOST}
LINK = LOST | {Symptom.CUT_OFF}
BETWEEN = {Symptom.HOSTS_APART, Symptom.CUT_OFF, Symptom.LOST_EACH_OTHER, Symptom.SILENT}
"""A link between tasks, which only they use, may be sound again when it is looked at."""

STILL = {Symptom.STOPPED_BY_SIGNAL, Symptom.SILENT}

NO_SPACE = os.strerror(errno.ENOSPC)


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
    "full record": Kind(frozenset({Symptom.NOT_STARTED}), (0.5, 12.0)),
    "full host": Kind(frozenset({Symptom.NOT_STARTED}), (0.5, 12.0)),
    "interrupt command": Kind(ends=130),
    "terminate command": Kind(ends=-signal.SIGTERM),
    "kill command": Kind(ends=-signal.SIGKILL),
    "kill supervisor": Kind(ends=2),
}


def happening(place):
    """Return the kinds of faults that can happen on an engine's hosts."""
    return tuple(kind for kind in KINDS if kind not in place.lacks)


SIGNALS = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "interrupt": signal.SIGINT,
    "terminate": signal.SIGTERM,
}

PROGRAMS = ("plain",) * 14 + ("live",) * 2 + ("sweep",) * 3 + ("keras",)
"""What is disturbed: a plain training, a sweep of it, it in live cells, or one with Keras."""

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
    units: int = 1
    host: str = ""
    struck: float | None = None

    @classmethod
    def drawn(cls, draw, kinds, workers, program):
        if program == "live":  # whose process is the user's own
            kinds = [kind for kind in kinds if KINDS[kind].ends is None]
        kind = draw.choice(kinds)
        moment = draw.choice(MOMENTS)
        steps = SWEPT_STEPS if program == "sweep" else STEPS
        return cls(
            kind,
            "start" if kind.startswith("full") and moment == "allocation" else moment,
            draw.randrange(workers),
            step=draw.randrange(1, steps - 1),
            units=draw.choice(UNITS) if program == "sweep" else 1,
            later=draw.choice([0.0, draw.uniform(0.0, 0.3)]),
            seconds=draw.uniform(*KINDS[kind].lasts) if KINDS[kind].lasts else 0.0,
            degree=draw.choice([0.05, 0.2, 0.4]) if kind == "loss" else draw.choice([64, 256]),
        )


@dataclass
class Round:
    """A run and its faults, and what was wrong."""

    seed: str
    program: str
    workers: int
    spare: bool
    patience: float
    cold: bool
    faults: list[Fault]
    steps: int = STEPS
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0
    restarts: int = 0

    @classmethod
    def drawn(cls, seed, kinds, programs=PROGRAMS):
        draw = random.Random(seed)
        workers, program = 2, draw.choice(programs)
        faults = [Fault.drawn(draw, kinds, workers, program)]
        again = draw.random()
        if again < 0.35:  # at once, or while the run starts again
            second = Fault.drawn(draw, kinds, workers, program)
            beside = again < 0.15 or program == "live"
            second.moment = "beside" if beside else "restart"
            second.later = draw.uniform(0.0, 0.5 if again < 0.15 else 2.0)
            faults.append(second)
        patience = draw.choice([draw.uniform(1.5, 6.0), 6.0 if program == "live" else 60.0])
        spare, cold = draw.random() < 0.7, draw.random() < 0.95
        steps = SWEPT_STEPS if program == "sweep" else STEPS
        return cls(str(seed), program, workers, spare, patience, cold, faults, steps)

    @property
    def sweeps(self):
        return self.program == "sweep"

    @property
    def units(self):
        """The values of what is swept."""
        return UNITS if self.sweeps else UNITS[:1]

    @property
    def full(self):
        """Whether a disk was full."""
        return any(one.struck and one.kind.startswith("full") for one in self.faults)

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
        more = f"patience {self.patience:.1f}{', spare' * self.spare}"
        return f"{self.seed}: {self.program}; {faults}; {more}"


def read(path):
    try:
        return path.read_text()
    except OSError:
        return ""


def failures(record):
    """Return the causes of a run's failed attempts."""
    causes = [setback.cause for setback in record.status.setbacks]
    return [*causes, record.status.cause] if record.state == "failed" else causes


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
        (folder / "main.py").write_text(KERAS if chosen.program == "keras" else PLAIN)
        self.folder = folder
        self.out, self.err = sides / "out", sides / "err"
        limit = ["--restarts", str(2 * len(chosen.faults)), "--lease", str(LEASE_SECONDS)]
        options = ["-n", str(chosen.workers), "--grace", "2", "--python", PYTHON, *limit]
        words = [*options, *place.words(spare=chosen.spare, workers=chosen.workers)]
        # A state is kept on the host's own disk, unless that is to be full.
        states = sides if any(one.kind.startswith("full") for one in chosen.faults) else "."
        program = [str(sides), str(states), str(chosen.steps), str(chosen.patience)]
        if chosen.program == "live":
            words = [*words, "main.py", *program]
        elif chosen.sweeps:
            values = ",".join(map(str, UNITS))
            words = ["sweep", *words, "--args", " ".join(program), "main.py", f"units={values}"]
        else:
            words = ["run", *words, "main.py", *program]
        self.process = self.begun(words)
        self.undo = []

    def begun(self, words):
        """Start the command."""
        starts = LIVE if self.chosen.program == "live" else COLD if self.chosen.cold else WARM
        start = [sys.executable, "-c", starts]
        with self.out.open("ab") as out, self.err.open("ab") as err:
            pipes = {"stdout": out, "stderr": err}
            return subprocess.Popen(
                [*start, *words], cwd=self.folder, start_new_session=True, **pipes
            )

    def phase(self, rank):
        """Return a task's units, attempt, step, phase and host."""
        words = read(self.sides / f"phase-{rank}").split()
        return (*map(int, words[:3]), *words[3:]) if words else (0, 0, -1, "", "")

    def come(self, fault):
        """Whether a fault's moment has come."""
        units, attempt, step, what, _ = self.phase(fault.victim)
        begun = units == fault.units and attempt > 0
        come = {
            "allocation": lambda: children(self.process.pid),
            "start": lambda: begun,
            "step": lambda: begun and step >= fault.step and what == "trains",
            "save": lambda: begun and step >= fault.step and what == "saves",
            "end": lambda: begun and step >= self.chosen.steps - 1,
            "restart": lambda: " follows, restart " in read(self.err),
            "beside": lambda: True,
        }
        return come[fault.moment]() or units > fault.units

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
        if (
            self.chosen.sweeps
            and self.process.returncode
            and (self.chosen.ends or self.chosen.full)
        ):
            self.resume()
        self.chosen.seconds = time.monotonic() - began

    def resume(self):
        """Continue a sweep that has ended too early, now that nothing disturbs it."""
        code = self.process.returncode
        if code not in self.chosen.ends and NO_SPACE not in read(self.err):
            self.chosen.wrong.append(f"the sweep has ended with {code}: {read(self.err)[-600:]}")
        self.process = self.begun(["sweep", "--resume"])
        try:
            self.process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.chosen.wrong.append("what continued the sweep is not over")
            self.process.kill()
            self.process.wait()

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
        name = self.phase(fault.victim)[-1] or names[fault.victim]
        host = self.hosts[name]
        fault.host = name
        fault.struck = time.monotonic()
        undo = self.hit(fault, host)
        if undo is not None and fault.seconds:
            self.undo.append((time.monotonic() + fault.seconds, undo))

    def hit(self, fault, host):
        """Have a fault happen; return what ends it."""
        ways = {
            "cut": (host.cut, host.mend),
            "cut there": (host.deafen, host.heal),
            "cut back": (host.mute, host.heal),
            "loss": (lambda: host.drop(fault.degree), host.heal),
            "slow": (lambda: host.throttle(fault.degree), host.heal),
        }
        if fault.kind in ways:
            strike, undo = ways[fault.kind]
            strike()
            return undo
        match fault.kind:
            case "cut between":
                other = self.hosts[self.phase(1 - fault.victim)[-1] or host.name]
                if other is host:
                    fault.struck = None
                    return None
                host.shun(other)
                return lambda: host.greet(other)
            case "full record":
                return self.filled(self.folder.parent / "filler")
            case "full host":
                fault.host = self.place.hosts[-1].name
                return self.place.fill()
        return self.send(fault, host)

    def filled(self, filler):
        """Fill the disk of a file; return what makes room again."""
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        return lambda: filler.unlink(missing_ok=True)

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
        found = sorted(runs(self.folder), key=lambda record: record.number)
        err = read(self.err)
        if "Traceback" in err:
            chosen.wrong.append("a traceback")
        if not found:
            if not chosen.ends and not self.refused(err):
                chosen.wrong.append(f"no record: exit code {self.process.returncode}, {err[-600:]}")
            return
        self.outcome(found, err)
        for record in found:
            self.record(record)
            self.causes(record, err)
        self.count(found)
        if chosen.program != "live":  # what cells print is shown beside them
            self.lines(found, err)

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

    def outcome(self, found, err):
        """The exit code and the weights."""
        chosen, code = self.chosen, self.process.returncode
        states = [record.state for record in found]
        if chosen.ends and not chosen.sweeps and (code in chosen.ends or self.over_before()):
            if not {"stopped", "lost", "failed", "finished"}.issuperset(states):
                chosen.wrong.append(f"the record says {states}")
            return
        if code != (os.EX_IOERR if chosen.full and "is incomplete" in err else 0):
            chosen.wrong.append(f"exit code {code}: {err[-600:]}")
        if not self.well(states):
            chosen.wrong.append(f"the record says {states}")
        for units in chosen.units:
            plain = undisturbed(units, chosen.workers, chosen.steps)
            wanted = self.place.trained if chosen.program == "keras" else plain
            for rank in range(chosen.workers):
                text = read(self.sides / f"weights-{units}-{rank}")
                if not text or json.loads(text) != wanted:
                    chosen.wrong.append(f"the weights of worker:{rank} are {text or 'missing'}")

    def well(self, states):
        """Whether the states of all runs are those of a training that ended well."""
        *before, last = states
        if self.chosen.program == "live":
            return last in ("stopped", "finished") and {"failed"}.issuperset(before)
        finished = states.count("finished")
        return finished == len(self.chosen.units) and (self.chosen.sweeps or not before)

    def over_before(self):
        """Whether the training was over when the command was to end."""
        ranks = range(self.chosen.workers)
        return all((self.sides / f"weights-1-{rank}").exists() for rank in ranks)

    def record(self, record):
        kinds = [event["event"] for event in record.events()]
        killed = signal.SIGKILL in [-code for code in self.chosen.ends] or 2 in self.chosen.ends
        lacks = killed or (self.chosen.full and record.status.trouble)
        if kinds[:1] != ["created"] or (not lacks and "ended" not in kinds):
            self.chosen.wrong.append(f"the record has the events {Counter(kinds)}")
        if not record.status.over:
            self.chosen.wrong.append("the record is of a run that is not over")

    @property
    def costly(self):
        """The faults that may use a restart."""
        struck = [one for one in self.chosen.faults if one.struck]
        return [one for one in struck if KINDS[one.kind].ends is None]

    def count(self, found):
        chosen = self.chosen
        chosen.restarts = sum(len(failures(record)) for record in found)
        if chosen.restarts > len(self.costly):
            chosen.wrong.append(f"{chosen.restarts} restarts for {len(self.costly)} faults")

    def causes(self, record, err):
        """What is said of each restart."""
        chosen = self.chosen
        for cause in failures(record):
            if not any(self.true(cause, fault) for fault in self.costly):
                chosen.wrong.append(f"untrue: {headline(cause)}; {cause.finding}")
        for setback in record.status.setbacks:
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
        if "full" in fault.kind:
            return NO_SPACE in (finding.detail or "")
        return finding.host in (fault.host, None) or finding.symptom in BETWEEN

    def lines(self, found, err):
        """What was printed, what is in the logs, and what the command showed."""
        chosen, shown = self.chosen, defaultdict(list)
        for line in read(self.out).splitlines():
            if match := re.match(r"\[worker:\d\] line (\S+) (\d+) ", line):
                shown[match[1]].append(int(match[2]))
        known = {one.stem for one in self.sides.glob("*.begun")}
        dead = any(KINDS[one.kind].ends in (2, -9) for one in chosen.faults if one.struck)
        records = {record.number: record for record in found}
        for name in sorted(known | set(shown)):
            number, rank, attempt = map(int, name.split("-"))
            begun, done = (len(read(self.sides / f"{name}.{kind}")) for kind in ("begun", "done"))
            record = records[number]
            lacks = dead or rank in self.noticed(record, err)
            try:
                text = record.log(f"worker:{rank}", attempt).decode()
            except Exception as error:  # noqa: BLE001 - there is no log
                text = ""
                if done and not lacks and not record.status.trouble:
                    chosen.wrong.append(f"no log of {name}: {error}")
            logged = [int(one) for one in re.findall(rf"^line {name} (\d+) ", text, re.MULTILINE)]
            if logged != list(range(len(logged))) or len(logged) > begun:
                chosen.wrong.append(f"the log of {name} is torn")
            if len(logged) < done and not lacks and not record.status.trouble:
                chosen.wrong.append(f"the log of {name} lacks {done - len(logged)} of {done} lines")
            if shown[name] != list(range(len(shown[name]))):
                chosen.wrong.append(f"shown of {name} is out of order, or twice")
            wanted = done if record.status.trouble else len(logged)
            if len(shown[name]) < wanted and not lacks and not chosen.sweeps:
                lacking = wanted - len(shown[name])
                chosen.wrong.append(f"not shown of {name}: {lacking} of {wanted} lines")

    def noticed(self, record, err):
        """Return the workers of which a notice says that lines may be missing."""
        if not self.chosen.sweeps:
            return set(map(int, re.findall(r"worker:(\d)[^\n]*(?:missing|lacks)", err)))
        cut = [one.finding for one in record.status.remarks]
        cut = [one.task for one in cut if one.symptom in (Symptom.LOG_CUT, Symptom.LOG_UNWRITTEN)]
        return {int(task.partition(":")[2]) for task in cut}


def played(place, folder, chosen):
    """Play a round and judge it."""
    if chosen.program == "keras" and place.trained is None:
        place.trained = trained(place, folder)
    own = Path(tempfile.mkdtemp(dir=folder))
    with tempfile.TemporaryDirectory(prefix="mw-sides-", dir="/tmp") as sides:
        play = Play(place, chosen, own, Path(sides))
        play.play()
        play.judge()
        if chosen.wrong and (keep := os.environ.get("MWMAGIC_MATRIX_KEEP")):
            subprocess.run(["cp", "-r", own, sides, f"{keep}/"], check=False)
            chosen.wrong.append(f"kept in {own.name} and {Path(sides).name}")
    shutil.rmtree(own)  # the disk is small
    return chosen


def trained(place, folder):
    """Return the weights of a training with Keras that nothing disturbs."""
    with tempfile.TemporaryDirectory(prefix="mw-sides-", dir="/tmp") as sides:
        own = Path(tempfile.mkdtemp(dir=folder))
        alone = Round("undisturbed", "keras", 2, spare=True, patience=60.0, cold=True, faults=[])
        play = Play(place, alone, own, Path(sides))
        play.play()
        return json.loads(read(play.sides / "weights-1-0"))


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
    parser.add_argument("--program", choices=sorted(set(PROGRAMS)))
    given = parser.parse_args()
    os.environ.setdefault(LABEL, str(os.getpid()))
    began, rounds = time.monotonic(), []
    with ExitStack() as stack:
        place, folder = stack.enter_context(ready(given.engine))
        kinds = given.only.split(",") if given.only else happening(place)
        programs = (given.program,) if given.program else PROGRAMS
        for number in range(given.rounds):
            if time.monotonic() - began > given.seconds:
                break
            one = played(place, folder, Round.drawn(f"{given.seed}-{number}", kinds, programs))
            rounds.append(one)
            state = "; ".join(one.wrong) or "right"
            took = f"{one.restarts} restarts, {one.seconds:.0f} s"
            print(f"{one.words()}: {took}: {state}", flush=True)
    print(table(rounds))
    return 1 if any(one.wrong for one in rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
