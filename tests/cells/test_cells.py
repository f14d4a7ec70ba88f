"""Live cells: what each event leads to, and what holds whatever happens."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mwmagic.cells import (
    Answered,
    Await,
    Cells,
    Done,
    Elapsed,
    Examine,
    Found,
    Gone,
    Interrupt,
    Ready,
    Refuse,
    Signal,
    Submit,
    Tell,
    Waits,
)

TWO = ("worker:0", "worker:1")
NONE = frozenset()


def living(tasks=TWO):
    """Return cells on tasks that are all ready."""
    cells = Cells(tasks)
    for task in tasks:
        assert cells.handle(Ready(task)) == []
    return cells


def running(tasks=TWO):
    """Return cells of which the first one runs on all tasks."""
    cells = living(tasks)
    assert cells.handle(Submit(1, tasks)) == [Tell(task, 1) for task in tasks]
    return cells


def test_a_cell_waits_until_its_tasks_are_ready():
    cells = Cells(TWO)
    assert cells.handle(Submit(1, TWO)) == []
    assert cells.handle(Ready("worker:1")) == []
    assert cells.handle(Ready("worker:0")) == [Tell("worker:0", 1), Tell("worker:1", 1)]


def test_a_cell_is_over_when_all_have_answered_and_the_next_begins():
    cells = running()
    assert cells.handle(Submit(2, ("worker:1",))) == []
    assert cells.handle(Answered("worker:1", 1, raised=False)) == [Await(1, 2.0)]
    assert cells.handle(Answered("worker:0", 1, raised=True)) == [Done(1), Tell("worker:1", 2)]


def test_the_others_are_looked_at_soon_after_the_first_exception():
    cells = running(("a", "b", "c"))
    assert cells.handle(Answered("a", 1, raised=False)) == [Await(1, 2.0)]
    assert cells.handle(Answered("b", 1, raised=True)) == [Await(1, 0.3)]
    assert cells.handle(Elapsed(1)) == [Examine(1)]


def test_a_cell_is_over_when_all_others_wait_for_what_raised():
    cells = running()
    cells.handle(Answered("worker:1", 1, raised=True))
    inside = frozenset({"worker:0"})
    waits = Waits(1, ("worker:0",), ("worker:1",), ())
    assert cells.handle(Found(1, inside, NONE)) == [waits, Await(1, 1.0)]
    assert cells.handle(Found(1, inside, NONE)) == [Await(1, 1.0)], "it computes"
    assert cells.handle(Found(1, inside, inside)) == [Done(1, "waits", ("worker:0",))]
    assert cells.stuck == ("worker:0",)


def test_a_task_that_waits_for_one_that_finished_is_told_but_may_go_on():
    cells = running()
    cells.handle(Answered("worker:1", 1, raised=False))
    inside = frozenset({"worker:0"})
    assert cells.handle(Found(1, inside, NONE)) == [Await(1, 1.0)]
    waits = Waits(1, ("worker:0",), (), ("worker:1",))
    assert cells.handle(Found(1, inside, inside)) == [waits, Await(1, 1.0)]
    assert cells.handle(Found(1, inside, inside)) == [Await(1, 1.0)], "told once"
    assert cells.handle(Answered("worker:0", 1, raised=False)) == [Done(1)]


def test_what_is_stuck_gets_no_cell_until_it_answers():
    cells = running()
    cells.handle(Answered("worker:1", 1, raised=True))
    inside = frozenset({"worker:0"})
    assert cells.handle(Submit(2, TWO)) == []
    assert cells.handle(Found(1, inside, inside))[1:] == [
        Done(1, "waits", ("worker:0",)),
        Refuse(2, ("worker:0",)),
    ]
    assert cells.handle(Submit(3, ("worker:1",))) == [Tell("worker:1", 3)]
    assert cells.handle(Submit(4, TWO)) == [Refuse(4, ("worker:0",))]
    assert cells.handle(Answered("worker:0", 1, raised=True)) == []
    assert cells.handle(Submit(5, ("worker:0",))) == []
    assert cells.handle(Answered("worker:1", 3, raised=False)) == [Done(3), Tell("worker:0", 5)]


def test_an_interrupt_ends_what_runs_and_withdraws_what_waits():
    cells = running()
    cells.handle(Submit(2, TWO))
    cells.handle(Answered("worker:0", 1, raised=False))
    assert cells.handle(Interrupt(1)) == [Signal("worker:1", 1)]
    assert cells.handle(Interrupt(2)) == [Done(2, "withdrawn", TWO)]
    assert cells.handle(Interrupt(7)) == []


def test_all_cells_end_with_the_processes():
    cells = running()
    cells.handle(Submit(2, TWO))
    cells.handle(Answered("worker:0", 1, raised=False))
    assert cells.handle(Gone()) == [
        Done(1, "ended", ("worker:1",)),
        Done(2, "ended", TWO),
    ]
    assert not cells.ready
    assert cells.handle(Answered("worker:1", 1, raised=False)) == []


def test_a_program_comes_before_the_first_cell_and_its_processes_may_be_gone():
    cells = Cells((*TWO, "ps:0"), program=TWO)
    assert cells.handle(Answered("worker:0", 0, raised=False)) == [Await(0, 2.0)]
    assert cells.handle(Ready("worker:0")) == []
    assert cells.handle(Answered("worker:1", 0, raised=True)) == [Done(0)]
    assert cells.handle(Ready("worker:1")) == []
    assert cells.handle(Submit(1, ("ps:0",))) == [Refuse(1, ("ps:0",))], "it is in its program"
    assert cells.handle(Submit(2, TWO)) == [Tell(task, 2) for task in TWO]
    assert cells.handle(Gone(reset=True)) == [Done(2, "reset", TWO)]
    assert cells.current == 0, "the program runs again"


def test_a_program_is_over_when_one_raised_and_the_others_wait_for_it():
    cells = Cells(TWO, program=TWO)
    cells.handle(Answered("worker:1", 0, raised=True))
    assert cells.handle(Elapsed(0)) == [Examine(0)]
    zero = frozenset({"worker:0"})
    assert cells.handle(Found(0, zero, zero)) == [
        Waits(0, ("worker:0",), ("worker:1",), ()),
        Done(0, "waits", ("worker:0",)),
    ]
    assert cells.handle(Submit(1, TWO)) == [Refuse(1, ("worker:0",))]


class Promises(RuleBasedStateMachine):
    """Whatever happens, each cell ends once, and each task runs one cell at a time."""

    tasks = ("a", "b", "c")

    def __init__(self):
        super().__init__()
        self.cells = Cells(self.tasks)
        self.inside = {}
        self.number = 0
        self.open = set()

    def take(self, event):
        for action in self.cells.handle(event):
            if isinstance(action, Tell):
                assert action.task not in self.inside, "one cell at a time"
                assert action.cell in self.open
                self.inside[action.task] = action.cell
            elif isinstance(action, Done | Refuse):
                self.open.remove(action.cell)
            elif isinstance(action, Signal):
                assert self.inside[action.task] == action.cell

    @rule(task=st.sampled_from(tasks))
    def ready(self, task):
        self.take(Ready(task))

    @rule(tasks=st.sets(st.sampled_from(tasks), min_size=1))
    def submit(self, tasks):
        self.number += 1
        self.open.add(self.number)
        self.take(Submit(self.number, tuple(sorted(tasks))))

    @precondition(lambda self: self.inside)
    @rule(data=st.data(), raised=st.booleans())
    def answer(self, data, raised):
        task = data.draw(st.sampled_from(sorted(self.inside)))
        self.take(Answered(task, self.inside.pop(task), raised))

    @rule(ahead=st.integers(0, 3), interrupt=st.booleans())
    def poke(self, ahead, interrupt):
        self.take((Interrupt if interrupt else Elapsed)(max(self.number - ahead, 0)))

    @rule(ahead=st.integers(0, 3), inside=st.sets(st.sampled_from(tasks)), idle=st.booleans())
    def found(self, ahead, inside, idle):
        names = frozenset(inside)
        self.take(Found(max(self.number - ahead, 0), names, names if idle else NONE))

    @invariant()
    def what_runs_is_known(self):
        assert self.cells.busy == self.inside

    def teardown(self):
        self.inside.clear()
        self.take(Gone())
        assert not self.open, "each cell ends"


TestPromises = Promises.TestCase
TestPromises.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
