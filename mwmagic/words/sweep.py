"""What is said of a sweep: how a trial begins and ends, what failed alike, and what was found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from mwmagic.experiments.sweep import TrialState, groups, matters_most
from mwmagic.model.findings import Cause
from mwmagic.model.status import RunState
from mwmagic.model.values import counted

from .failure import headline
from .table import RunTable, short_name, took_text, value_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mwmagic.experiments.runs import Facts
    from mwmagic.experiments.sweep import Trial, TrialStatus

_Table = TypeVar("_Table", bound=RunTable)

__all__ = [
    "begun_words",
    "ended_words",
    "going_words",
    "interrupted_words",
    "params_words",
    "resume_words",
    "summary",
    "table",
    "why_failed",
]


def params_words(params: Mapping[str, Any]) -> str:
    """Return a combination of parameters as ``units 64, lr 0.01``."""
    return ", ".join(
        f"{short_name(name, [*params])} {value_text(one)}" for name, one in params.items()
    )


def _trial_words(trial: Trial) -> str:
    again = [f"repetition {trial.repeat + 1}"] if trial.repeat else []
    what = ", ".join([*filter(None, [params_words(trial.params)]), *again])
    return f"trial {trial.number}" + (f" ({what})" if what else "")


def begun_words(trial: Trial, total: int, run: int) -> str:
    """Say that a trial begins."""
    return f"{_trial_words(trial)} of {total} is run {run}"


def ended_words(trial: Trial, facts: Facts, metric: str, *, pruned: str) -> str:
    """Say how a trial has ended; `pruned` is why it was ended early, if it was."""
    took = took_text(facts.seconds)
    if pruned and facts.state == RunState.STOPPED.value:
        how = f"ended early because {pruned}"
    elif facts.state == RunState.FAILED.value:
        how = f"failed: {why_failed(facts)}"
    elif facts.state != RunState.FINISHED.value:
        how = facts.state
    else:
        names = [metric] if metric else [*facts.best][:2]
        how = (
            ", ".join(
                f"{name} {value_text(facts.best[name])}" for name in names if name in facts.best
            )
            or "finished"
        )
    return f"trial {trial.number}: {how}" + (f", {took}" if took else "")


def why_failed(facts: Facts) -> str:
    """Say in a line why a run failed."""
    if not facts.failure:
        return "no task reported a cause"
    cause = Cause.from_json(facts.failure)
    return headline(cause) + (f": {cause.exception}" if cause.exception else "")


def interrupted_words(one: TrialStatus) -> str:
    """Say that a trial which was under way begins again."""
    run = f": run {one.facts.number} was interrupted" if one.facts else ""
    return f"trial {one.trial.number} begins again{run}"


def summary(outcomes: Sequence[TrialStatus], metric: str) -> list[str]:
    """Say what became of a sweep's trials, which failed alike, and what was found."""
    lines = [_counts(outcomes), *_failures(outcomes)]
    ranked = groups(outcomes, metric)
    if ranked:
        best = ranked[0]
        numbers = {one.trial.number: one.facts.number for one in outcomes if one.facts}
        trials = ", ".join(map(str, best.trials))
        runs = ", ".join(str(numbers[one]) for one in best.trials)
        several = "s" if len(best.trials) > 1 else ""
        facts = "; ".join(filter(None, [f"run{several} {runs}", params_words(best.params)]))
        spread = ""
        if best.spread is not None:
            spread = f" ± {best.spread:.2g} over {len(best.results)} repetitions"
        found = f"best: trial{several} {trials} ({facts}), {metric} {value_text(best.mean)}{spread}"
        most = matters_most(outcomes, metric)
        if most is not None:
            varied = [*outcomes[0].trial.params]
            found += f"; {short_name(most[0], varied)} matters most ({most[1]:.0%} of the variance)"
        lines.append(found)
    elif any(one.state is TrialState.FINISHED for one in outcomes):
        lines.append(_no_best(outcomes, metric))
    return lines


def _no_best(outcomes: Sequence[TrialStatus], metric: str) -> str:
    """Say why no trial is best."""
    known = sorted({name for one in outcomes if one.facts for name in one.facts.last})
    if not known:
        return "no trial reported a metric, so none of them is the best"
    return f"no finished trial has the metric {metric!r}: there are {', '.join(known)}"


def going_words(number: int, outcomes: Sequence[TrialStatus]) -> str:
    """Say how far a sweep is that is going."""
    over = sum(one.state.over for one in outcomes)
    return f"sweep {number}: {over} of {counted(len(outcomes), 'trial')} are over"


def resume_words(number: int, outcomes: Sequence[TrialStatus], command: str) -> str:
    """Say how far a sweep is that has not ended, and how it continues."""
    over = sum(one.state.over for one in outcomes)
    return (
        f"sweep {number} is not over: {over} of {counted(len(outcomes), 'trial')} are; "
        f"`{command} --resume {number}` runs the others"
    )


def table(outcomes: Sequence[TrialStatus], metric: str, kind: type[_Table]) -> _Table:
    """Return the table of the runs of a sweep, the best first."""
    records = [one.record for one in outcomes if one.record is not None]
    known = any(one.facts and metric in one.facts.best for one in outcomes)
    return kind(records, best=metric if known else None, metrics=(metric,) if known else ())


_ORDER = (
    TrialState.FINISHED,
    TrialState.PRUNED,
    TrialState.FAILED,
    TrialState.RUNNING,
    TrialState.INTERRUPTED,
    TrialState.WAITING,
)


def _counts(outcomes: Sequence[TrialStatus]) -> str:
    found = [(state, sum(one.state is state for one in outcomes)) for state in _ORDER]
    texts = [f"{number} {state.value}" for state, number in found if number]
    return f"{counted(len(outcomes), 'trial')}: {', '.join(texts)}"


def _failures(outcomes: Sequence[TrialStatus]) -> list[str]:
    """Return one line for each kind of failure, however many trials had it."""
    alike: dict[str, list[int]] = {}
    for one in outcomes:
        if one.state is TrialState.FAILED and one.facts is not None:
            # The same error in any task of any trial.
            text = re.sub(r"^\w+:\d+ ", "a task ", why_failed(one.facts))
            alike.setdefault(text, []).append(one.trial.number)
    return [
        f"trial {trials[0]} failed: {text}"
        if len(trials) == 1
        else f"{len(trials)} trials failed alike ({', '.join(map(str, trials))}): {text}"
        for text, trials in alike.items()
    ]
