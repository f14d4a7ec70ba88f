"""Live cells: what each event leads to, and what holds whatever happens."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mwmagic.cells import (
    Abort,
    Align,
    Aligned,
    Answered,
    Arrived,
    Await,
    Bound,
    Cells,
    Compare,
    Compared,
    Digest,
    Done,
    Elapsed,
    Examine,
    Found,
    Freed,
    Gone,
    Interrupt,
    Meet,
    Ready,
    Recovered,
    Refuse,
    Rejoin,
    Rejoined,
    Signal,
    Standing,
    Submit,
    Tell,
    Unable,
    Waits,
)

TWO = ("worker:0", "worker:1")
NONE = frozenset()


ALONE = ()
"""The partners of tasks that have no collectives."""


def living(tasks=TWO, partners=ALONE):
    """Return cells on tasks that are all ready."""
    cells = Cells(tasks, partners)
    for task in tasks:
        assert cells.handle(Ready(task)) == []
    return cells


def running(tasks=TWO, partners=ALONE):
    """Return cells of which the first one runs on all tasks."""
    cells = living(tasks, partners)
    assert cells.handle(Submit(1, tasks)) == [Tell(task, 1) for task in tasks]
    return cells


def together(tasks=TWO):
    """Return cells of which the first one runs on tasks with collectives in common."""
    return running(tasks, tasks)


def looked(cells, inside, idle):
    """Return what is done once it has been found where the tasks are."""
    assert cells.handle(Elapsed(1, "look")) == [Examine(1)]
    return cells.handle(Found(1, inside, idle))


def kinds(actions):
    return [type(one) for one in actions]


def test_a_cell_waits_until_its_tasks_are_ready():
    cells = Cells(TWO)
    assert cells.handle(Submit(1, TWO)) == []
    assert cells.handle(Ready("worker:1")) == []
    assert cells.handle(Ready("worker:0")) == [Tell("worker:0", 1), Tell("worker:1", 1)]


def test_a_cell_is_over_when_all_have_answered_and_the_next_begins():
    cells = running()
    assert cells.handle(Submit(2, ("worker:1",))) == []
    assert cells.handle(Answered("worker:1", 1, raised=False)) == [Await(1, 2.0, "look")]
    assert cells.handle(Answered("worker:0", 1, raised=True)) == [Done(1), Tell("worker:1", 2)]


def test_the_others_are_freed_soon_after_the_first_exception():
    cells = running(("a", "b", "c", "d"))
    assert cells.handle(Answered("a", 1, raised=False)) == [Await(1, 2.0, "look")]
    assert cells.handle(Answered("b", 1, raised=True)) == [Await(1, 0.3, "free")]
    assert cells.handle(Answered("c", 1, raised=True)) == []
    assert cells.handle(Elapsed(1, "free")) == [Abort("d", 1)]
    assert cells.handle(Elapsed(1, "look")) == [Examine(1)]
    assert cells.handle(Answered("d", 1, raised=True, freed=True)) == [Done(1)]


def test_a_cell_is_over_when_all_others_wait_and_cannot_be_freed():
    cells = running()
    cells.handle(Answered("worker:1", 1, raised=True))
    assert cells.handle(Elapsed(1, "free")) == [Abort("worker:0", 1), Await(1, 1.0, "look")]
    assert cells.handle(Bound("worker:0", 1, "gpu")) == [Examine(1)]
    inside = frozenset({"worker:0"})
    waits = Waits(1, ("worker:0",), ("worker:1",), (), "gpu")
    assert cells.handle(Found(1, inside, NONE)) == [waits]
    assert looked(cells, inside, NONE) == [Await(1, 1.0, "look")], "it computes"
    assert looked(cells, inside, inside) == [Done(1, "waits", ("worker:0",))]
    assert cells.stuck == ("worker:0",)


def test_what_still_waits_after_some_looks_counts_as_what_cannot_be_freed():
    cells = running()
    cells.handle(Answered("worker:1", 1, raised=True))
    cells.handle(Elapsed(1, "free"))
    inside = frozenset({"worker:0"})
    looks = [looked(cells, inside, inside) for _ in range(5)]
    assert looks[:4] == [[Await(1, 1.0, "look")]] * 4
    assert looks[4][-1] == Done(1, "waits", ("worker:0",))


def test_a_task_that_waits_for_one_that_finished_is_freed_once_that_is_certain():
    cells = running()
    cells.handle(Answered("worker:1", 1, raised=False))
    inside, again = frozenset({"worker:0"}), [Await(1, 1.0, "look")]
    assert looked(cells, inside, inside) == again
    assert looked(cells, inside, NONE) == again, "it computes"
    assert looked(cells, inside, inside) == again
    assert looked(cells, inside, inside) == [Abort("worker:0", 1), *again]
    assert cells.handle(Answered("worker:0", 1, raised=True, freed=True)) == [Done(1)]


def test_a_task_that_waits_for_one_outside_the_cell_is_looked_at_too():
    cells = living(partners=TWO)
    assert cells.handle(Submit(1, TWO[:1])) == [Tell("worker:0", 1), Await(1, 2.0, "look")]
    inside = frozenset({"worker:0"})
    looked(cells, inside, inside)
    assert looked(cells, inside, inside) == [Abort("worker:0", 1), Await(1, 1.0, "look")]
    told = cells.handle(Answered("worker:0", 1, raised=True, freed=True))
    assert told[0] == Freed(1, ("worker:0",), (), (), ("worker:1",))


def test_what_is_stuck_gets_no_cell_until_it_answers():
    cells = running()
    cells.handle(Answered("worker:1", 1, raised=True))
    cells.handle(Elapsed(1, "free"))
    cells.handle(Bound("worker:0", 1, "gpu"))
    inside = frozenset({"worker:0"})
    assert cells.handle(Submit(2, TWO)) == []
    assert looked(cells, inside, inside)[1:] == [
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
    assert cells.handle(Interrupt(1)) == [Signal("worker:1", 1), Await(1, 0.3, "free")]
    assert cells.handle(Interrupt(2)) == [Done(2, "withdrawn", TWO)]
    assert cells.handle(Interrupt(7)) == []
    assert cells.handle(Elapsed(1, "free")) == [Abort("worker:1", 1)]


def test_tasks_make_a_strategy_when_all_are_about_to():
    cells = together()
    assert cells.handle(Arrived("worker:1", 1)) == []
    assert cells.handle(Arrived("worker:0", 1)) == [Meet("worker:0", 1), Meet("worker:1", 1)]


def test_a_task_that_waits_to_make_a_strategy_is_freed_when_another_does_not_come():
    cells = together()
    cells.handle(Answered("worker:1", 1, raised=False))
    assert cells.handle(Arrived("worker:0", 1)) == [Await(1, 0.3, "free")]
    assert cells.handle(Elapsed(1, "free")) == [Abort("worker:0", 1)]
    assert cells.handle(Arrived("worker:0", 1)) == [Abort("worker:0", 1)], "it comes again"


def recovering(*standings, tasks=TWO, aborted=True):
    """Return cells after an error of the second task, and what is next once all have rejoined."""
    cells = together(tasks)
    cells.handle(Answered(tasks[1], 1, raised=True))
    if aborted:
        cells.handle(Elapsed(1, "free"))
    for task in (tasks[0], *tasks[2:]):
        last = cells.handle(Answered(task, 1, raised=True, freed=aborted))
    orders = [Rejoin(task, 1, 1) for task in tasks]
    assert last[-len(tasks) :] == orders
    for task, standing in zip(tasks, standings, strict=True):
        last = cells.handle(Rejoined(task, 1, standing))
    return cells, last


def same(shared="1", means="1"):
    return Digest({"w": shared}, {"m": means})


AT_7 = Standing(begun=7, done=7, before=6, entered=7, left=7, usual=1)
IN_8 = Standing(begun=7, done=7, before=7, entered=8, left=7, usual=1)
DONE_8 = Standing(begun=8, done=8, before=7, entered=8, left=7, usual=1)
TORN_8 = Standing(begun=8, done=7, before=7, entered=8, left=7, usual=1)


def test_tasks_that_stand_alike_are_not_compared_unless_one_was_freed():
    cells, last = recovering(AT_7, AT_7, aborted=False)
    assert last == [Done(1)]
    assert cells.current is None
    _, last = recovering(AT_7, AT_7)
    assert last == [Compare(task, 1, 7) for task in TWO]


def test_tasks_without_collectives_are_not_compared():
    assert recovering(None, None)[1] == [Done(1)]


def test_all_get_the_state_of_the_highest_whole_update():
    for stands in ((DONE_8, IN_8), (DONE_8, TORN_8)):
        cells, last = recovering(*stands)
        assert last == [Compare(task, 1, 8) for task in TWO]
        cells.handle(Compared("worker:0", 1, same()))
        last = cells.handle(Compared("worker:1", 1, same("2", "2")))
        assert last == [Align(task, 1, "worker:0", 8, ("w",), ("m",)) for task in TWO]
        assert cells.handle(Aligned("worker:1", 1)) == []
        told = Recovered(1, "aligned", "worker:0", 2, 2)
        assert cells.handle(Aligned("worker:0", 1)) == [told, Done(1)]


def test_where_the_first_stands_after_a_step_its_means_are_those_of_all():
    cells, last = recovering(TORN_8, AT_7)
    assert last == [Compare(task, 1, 7) for task in TWO]
    cells.handle(Compared("worker:0", 1, same("2", "2")))
    last = cells.handle(Compared("worker:1", 1, same()))
    assert last == [Align(task, 1, "worker:1", 7, ("w", "m"), ()) for task in TWO]


def test_a_state_torn_on_every_task_is_reported():
    assert recovering(TORN_8, TORN_8)[1] == [Recovered(1, "torn", None), Done(1)]


def test_a_partial_step_is_reported():
    cut = Standing(begun=8, done=8, before=7, entered=5, left=4, usual=2)
    cells, _ = recovering(cut, cut)
    for task in TWO:
        cells.handle(Compared(task, 1, same()))
    cells.handle(Aligned("worker:0", 1))
    assert cells.handle(Aligned("worker:1", 1))[0] == Recovered(
        1, "aligned", "worker:1", 0, 2, cut=True
    )


def test_a_recovery_that_fails_is_reported_and_what_hangs_in_it_is_stuck():
    cells, _ = recovering(DONE_8, IN_8)
    assert kinds(cells.handle(Unable("worker:0", 1))) == [Recovered, Done]
    assert cells.stuck == ("worker:1",)
    assert cells.handle(Submit(2, TWO)) == [Refuse(2, ("worker:1",))]
    assert cells.handle(Compared("worker:1", 1, same())) == []
    assert cells.handle(Submit(3, TWO)) == [Tell(task, 3) for task in TWO]
    cells, _ = recovering(DONE_8, IN_8)
    told = cells.handle(Elapsed(1, "recover"))
    assert told == [Recovered(1, "failed", "worker:0"), Done(1)]
    assert cells.stuck == TWO


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
    cells = Cells((*TWO, "ps:0"), TWO, program=TWO)
    assert cells.handle(Answered("worker:0", 0, raised=False)) == [Await(0, 2.0, "look")]
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
    assert cells.handle(Elapsed(0, "free")) == [Examine(0), Await(0, 1.0, "look")]
    zero = frozenset({"worker:0"})
    assert cells.handle(Found(0, zero, zero)) == [
        Waits(0, ("worker:0",), ("worker:1",), ()),
        Done(0, "waits", ("worker:0",)),
    ]
    assert cells.handle(Submit(1, TWO)) == [Refuse(1, ("worker:0",))]


PURPOSES = ("free", "look", "recover")


class Promises(RuleBasedStateMachine):
    """Whatever happens, each cell ends once, and each task runs one cell at a time."""

    tasks = ("a", "b", "c")

    def __init__(self):
        super().__init__()
        self.cells = Cells(self.tasks)
        self.inside = {}
        self.orders = {}
        self.number = 0
        self.open = set()

    def take(self, event):
        for action in self.cells.handle(event):
            if isinstance(action, Tell):
                assert action.task not in self.inside, "one cell at a time"
                assert action.cell in self.open
                self.inside[action.task] = action.cell
                self.orders.pop(action.task, None)
            elif isinstance(action, Rejoin | Compare | Align):
                assert action.task not in self.inside, "nothing else runs there"
                self.orders[action.task] = action
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

    @precondition(lambda self: self.orders)
    @rule(data=st.data(), begun=st.integers(0, 2), entered=st.integers(0, 2), able=st.booleans())
    def obey(self, data, begun, entered, able):
        task = data.draw(st.sampled_from(sorted(self.orders)))
        order = self.orders.pop(task)
        stand = Standing(begun=begun, done=min(begun, 1), entered=entered)
        said = {
            Rejoin: lambda: Rejoined(task, order.cell, stand if able or begun else None),
            Compare: lambda: Compared(task, order.cell, same(str(begun), str(entered))),
            Align: lambda: Aligned(task, order.cell) if able else Unable(task, order.cell),
        }
        self.take(said[type(order)]())

    @rule(ahead=st.integers(0, 3), interrupt=st.booleans(), purpose=st.sampled_from(PURPOSES))
    def poke(self, ahead, interrupt, purpose):
        number = max(self.number - ahead, 0)
        self.take(Interrupt(number) if interrupt else Elapsed(number, purpose))

    @rule(ahead=st.integers(0, 3), inside=st.sets(st.sampled_from(tasks)), idle=st.booleans())
    def found(self, ahead, inside, idle):
        names = frozenset(inside)
        self.take(Found(max(self.number - ahead, 0), names, names if idle else NONE))

    @invariant()
    def what_runs_is_known(self):
        busy = self.cells.busy
        assert self.inside.items() <= busy.items()
        assert {*busy} - {*self.inside} <= {*self.orders}, "only what hangs in a recovery"

    def teardown(self):
        self.inside.clear()
        self.take(Gone())
        assert not self.open, "each cell ends"


TestPromises = Promises.TestCase
TestPromises.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_an_error_of_a_task_that_runs_alone_ends_no_collectives():
    cells = living(partners=TWO)
    assert kinds(cells.handle(Submit(1, TWO, alone=True))) == [Tell, Tell]
    assert cells.handle(Answered("worker:1", 1, raised=True)) == [Await(1, 2.0, "look")]
    assert cells.handle(Answered("worker:0", 1, raised=False)) == [Done(1)]


def test_a_task_that_runs_alone_and_waits_in_a_collective_is_freed():
    cells = living(partners=TWO)
    assert kinds(cells.handle(Submit(1, ("worker:0",), alone=True))) == [Tell, Await]
    waiting = frozenset({"worker:0"})
    assert kinds(looked(cells, waiting, waiting)) == [Await]
    assert Abort("worker:0", 1) in looked(cells, waiting, waiting)
    assert Rejoin("worker:1", 1, 1) in cells.handle(
        Answered("worker:0", 1, raised=True, freed=True)
    )
