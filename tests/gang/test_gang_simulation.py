"""A gang in a fake world, where processes fail, messages get lost and people interfere."""

import heapq
import math
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod
from itertools import chain, count, repeat

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from mwmagic import gang as g
from mwmagic.gang import FailureKind, Role
from mwmagic.model.cluster import make_tasks
from mwmagic.model.status import GivenUp, RunState

SERVES = (Role.SERVER, Role.REPLACEABLE, Role.EVALUATOR)


@dataclass(frozen=True)
class Fate:
    """What becomes of a process; one that is told to end has at most `dies` seconds more."""

    after: float = 1.0
    code: int | None = 0
    failure: FailureKind = FailureKind.PRIMARY
    heard: float = 0.0  # seconds until its exit is known
    obeys: bool = True  # SIGTERM
    dies: float = 0.0  # seconds after SIGKILL
    twice: bool = False  # its exit is told again later
    reached: g.TrainingPoint | None = None


@dataclass(eq=False)
class Process:
    task: object
    attempt: int
    fate: Fate
    alive: bool = True


@dataclass
class World:
    """Carries a gang's actions out, and holds it to its promises."""

    tasks: tuple
    policy: g.Policy
    fates: list = field(default_factory=list)
    losses: list = field(default_factory=list)  # whether a message, or a cancelling, is lost
    people: list = field(default_factory=list)  # events and their times
    now: float = 0.0

    def __post_init__(self):
        self.gang = g.Gang(self.tasks, self.policy)
        self.roles = g.roles(self.tasks)
        self.fate = chain(self.fates, repeat(None))
        self.lost = chain(self.losses, repeat(False))  # noqa: FBT003 - a list of flags
        self.numbers = count()
        self.queue = []
        self.timers = {}
        self.processes = {}
        self.alive = 0
        self.steps = 0
        self.ended = []
        self.stopped = False
        self.retired = set()
        self.exits = []  # since the gang began to end
        self.counted = self.moved = self.told = 0
        self.points = {}  # of each attempt since the last restart on request
        for time, item in self.people:
            self.later(time, self.ask, item)

    def later(self, seconds, do, *args):
        heapq.heappush(self.queue, (self.now + seconds, next(self.numbers), do, args))

    def run(self):
        """Let the world go on until nothing happens any more."""
        while self.queue or not self.nudge():
            self.now, _, do, args = heapq.heappop(self.queue)
            do(*args)
            self.steps += 1
            assert self.steps < 50 * len(self.tasks) + 5000, "it never ends"
        assert len(self.ended) == 1
        assert self.gang.state is self.ended[0]
        assert self.gang.state.final
        assert not self.alive
        return self.gang.state

    def nudge(self):
        """Do what a gang may rightly wait for; return whether the run is over."""
        if self.gang.state.final:
            return True
        peers = Role.PEER in self.roles.values()
        if self.gang.missing:
            for task in self.gang.missing:
                self.later(0.0, self.ask, g.Launched(task))
        else:
            assert not peers, f"it hangs: {self.gang}"
            self.later(0.0, self.ask, g.Stop())
        return False

    # Towards the gang.

    def ask(self, item):
        """A client asks for something."""
        over = self.gang.state.final
        if isinstance(item, g.Stop) and not over:
            if item.task is None or self.roles[item.task] in (Role.PEER, Role.SERVER):
                self.stopped = True
            else:
                self.retired.add(item.task)
        elif isinstance(item, g.Launched):
            self.retired.discard(item.task)
        elif isinstance(item, g.Restart) and not self.stopped:
            self.retired.clear()
            self.counted = self.moved = 0
            self.points = {}
        self.tell(replace(item, time=self.now))

    def tell(self, item):
        if isinstance(item, g.Exited) and self.news(item):
            self.exits = [*self.exits, item] if self.gang.state is RunState.ENDING else [item]
            if item.reached and self.roles[item.task] is not Role.EVALUATOR:
                known = self.points.get(item.attempt, item.reached)
                self.points[item.attempt] = max(known, item.reached)
        actions = self.gang.handle(item)
        if self.ended:
            assert actions == [], "an action after the end"
        for action in actions:
            self.do(action)
        self.check(actions)

    def news(self, item):
        return item.attempt == self.gang.attempt and item.task in self.gang.alive

    def check(self, actions):
        state = self.gang.state
        assert self.gang.restarts <= self.policy.restarts
        if state is RunState.BACKOFF or state.final:
            assert not self.alive
            assert not self.gang.alive
        if len(self.tasks) < 100:
            living = {one.task for one in self.processes.values() if one.alive}
            assert living <= self.gang.alive
        if actions and state in (RunState.BACKOFF, RunState.FAILED):
            self.judge(state, actions)

    def judge(self, state, actions):
        """Hold the gang to the failure it kept, and to the number of its restarts."""
        kept = self.gang._failure
        tried = [one for one in self.exits if one.code != 0 and self.counts(one)]
        permanent = any(one.failure is FailureKind.PERMANENT for one in tried)
        assert not (permanent and state is RunState.BACKOFF)
        if kept.failure is FailureKind.CONSEQUENCE and not kept.saved:
            assert all(one.failure is FailureKind.CONSEQUENCE and not one.saved for one in tried)
        for action in actions:
            if isinstance(action, g.SetTimer) and action.due == g.Backoff():
                self.count(kept)

    def count(self, kept):
        """Count a restart, unless it may resume a process that saved."""
        self.moved = 0
        if kept.saved:
            return
        self.counted += 1
        assert self.counted <= self.policy.restarts or self.policy.healthy < math.inf

    def counts(self, item):
        return self.roles[item.task] is not Role.EVALUATOR and item.task not in self.retired

    # From the gang.

    def do(self, action):
        assert not self.ended, "an action after Ended"
        self.carry_out(action)

    @singledispatchmethod
    def carry_out(self, action):
        raise TypeError(action)

    @carry_out.register
    def _(self, action: g.StartTask):
        old = self.processes.get(action.task)
        assert old is None or not old.alive, "two at once"
        assert not self.stopped, "started after a stop"
        assert action.task not in self.retired, "started though stopped alone"
        assert action.attempt == self.gang.attempt
        serves = self.roles[action.task] in SERVES
        fate = next(self.fate) or Fate(after=math.inf if serves else 1.0)
        process = self.processes[action.task] = Process(action.task, action.attempt, fate)
        self.alive += 1
        if fate.after < math.inf:
            self.later(fate.after, self.die, process, fate.code, fate.failure)

    @carry_out.register
    def _(self, action: g.EndTask):
        process = self.processes[action.task]
        assert process.attempt == action.attempt
        self.end(process, action.grace)

    @carry_out.register
    def _(self, action: g.EndAll):
        assert action.attempt == self.gang.attempt
        for process in self.processes.values():
            if process.alive:
                self.end(process, action.grace)

    @carry_out.register
    def _(self, action: g.Rebind):
        assert not self.alive, "ports moved under a living process"
        self.moved += 1
        assert self.moved <= g.PORT_TRIES or self.policy.healthy < math.inf

    @carry_out.register
    def _(self, action: g.SetTimer):
        assert action.seconds >= 0
        self.timers[action.due] = version = next(self.numbers)
        self.later(action.seconds, self.fire, action.due, version, next(self.lost))

    @carry_out.register
    def _(self, action: g.CancelTimer):
        self.timers.pop(action.due, None)

    @carry_out.register
    def _(self, action: g.Ended):
        assert not self.alive
        self.ended.append(action.state)
        assert action.given_up is None or action.state is RunState.FAILED
        if action.given_up is GivenUp.PROGRESS:
            *before, last = sorted(self.points)
            assert last == self.gang.attempt, "unknown is not none"
            assert self.points[last] <= max(self.points[one] for one in before)

    # The world's own.

    def fire(self, due, version, stale):
        """Let a timer go off; one that was on its way when it was replaced does too."""
        if stale or self.timers.get(due) == version:
            self.tell(g.Timer(due, self.now))

    def end(self, process, grace):
        self.told += 1
        if not next(self.lost):
            fate = process.fate
            wait = 0.0 if fate.obeys and grace else grace + fate.dies
            self.later(wait, self.die, process, None, FailureKind.CONSEQUENCE)

    def die(self, process, code, failure):
        if not process.alive:
            return
        process.alive = False
        self.alive -= 1
        told = (process.task, process.attempt, code, failure, self.now, process.fate.reached)
        item = g.Exited(*told)
        self.later(process.fate.heard, self.tell, item)
        if process.fate.twice:
            self.later(process.fate.heard + 3.0, self.tell_again, process, item)

    def tell_again(self, process, item):
        """Tell an exit twice; of two processes of one attempt each is told once."""
        now = self.processes[process.task]
        if now is process or now.attempt != process.attempt:
            self.tell(item)


seconds = st.sampled_from([0.0, 0.01, 0.02, 0.5, 1.0, 2.5, 6.0, 40.0])
fates = st.builds(
    Fate,
    after=seconds,
    code=st.sampled_from([0, 1, 42, None]),
    failure=st.sampled_from(FailureKind),
    heard=st.sampled_from([0.0, 0.01, 1.0, 5.0]),
    obeys=st.booleans(),
    dies=st.sampled_from([0.0, 0.1, 9.0]),
    twice=st.booleans(),
    reached=st.none() | st.builds(g.TrainingPoint, st.integers(0, 2), st.integers(0, 1)),
)
policies = st.builds(
    g.Policy,
    restarts=st.integers(0, 5),
    grace=st.sampled_from([0.0, 3.0]),
    evaluation=st.sampled_from([0.0, 20.0]),
    healthy=st.sampled_from([2.0, math.inf]),
    resume=st.sampled_from([0.0, 2.0]),
)


@st.composite
def shapes(draw):
    chief = draw(st.booleans())
    workers = draw(st.integers(0 if chief else 1, 4))
    ps = draw(st.integers(0, 2)) if workers else 0
    return make_tasks(workers, chief=chief, ps=ps, evaluator=draw(st.booleans()))


@st.composite
def worlds(draw):
    tasks = draw(shapes())
    one, grace = st.sampled_from(tasks), st.sampled_from([None, 0.0, 7.0])
    asked = st.one_of(
        st.builds(g.Stop, st.none() | one, grace),
        st.builds(g.Launched, one),
        st.builds(g.Restart),
    )
    wait = seconds if draw(st.booleans()) else st.just(0.0)
    launches = [(draw(wait), g.Launched(task)) for task in tasks if draw(st.integers(0, 9))]
    return World(
        tasks,
        draw(policies),
        fates=draw(st.lists(st.none() | fates, max_size=20)),
        losses=draw(st.lists(st.booleans(), max_size=20)),
        people=launches + draw(st.lists(st.tuples(seconds, asked), max_size=5)),
    )


PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)


@settings(PATIENT, max_examples=30)
@given(worlds())
def test_a_gang_keeps_its_promises(world):
    event(world.run().value)


@pytest.mark.slow
@settings(PATIENT, max_examples=600)
@given(worlds())
def test_a_gang_keeps_its_promises_whatever_happens(world):
    event(world.run().value)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 100, 10_000])
def test_a_gang_of_any_size_fails_restarts_and_finishes(size):
    fates = [None] * size + [Fate(0.5, 1)] + [Fate(6.0, None, FailureKind.CONSEQUENCE)] * (size - 1)
    tasks = make_tasks(size)
    people = [(0.0, g.Launched(task)) for task in tasks]
    restart = [(0.5, g.Restart())]
    world = World(tasks, g.Policy(restarts=1), fates, people=people + restart)
    assert world.run() is RunState.FINISHED
    assert world.gang.attempt == 3
    assert world.told == size + size - 1


@pytest.mark.slow
def test_a_large_gang_with_servers_replaces_its_workers():
    tasks = make_tasks(1000, chief=True, ps=20, evaluator=True)
    fates = [Fate(40.0)] + [Fate(0.5 + at / 1000, 1) for at in range(1000)]
    world = World(tasks, g.Policy(), fates, people=[(0.0, g.Launched(task)) for task in tasks])
    assert world.run() is RunState.FINISHED
    assert (world.gang.attempt, world.told) == (1, 1021)
