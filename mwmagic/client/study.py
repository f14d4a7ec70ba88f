"""Has an Optuna study suggest the trials of a sweep, by ask and tell, and end some of them early.

The sweep's record says which trials are over. The study may lag behind it after a kill, and catches
up when the sweep continues: each trial is reported once, when it is over here.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mwmagic.errors import BadArguments
from mwmagic.experiments.space import Range, from_json
from mwmagic.experiments.trials import TrialState
from mwmagic.record.metrics import read_few, rises

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mwmagic.experiments.space import Space
    from mwmagic.experiments.sweep import Sweep
    from mwmagic.experiments.trials import Trial, TrialStatus
    from mwmagic.record import Record

__all__ = ["StudyTrials", "check_continued", "check_new", "extend_study", "named_study"]

TRIAL_ATTRIBUTE = "mwmagic trial"
"""The attribute of a study's trial that says which trial of which sweep it was asked for."""


def named_study(names: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - Optuna may be missing
    """Return the study that a notebook's variable holds."""
    if name not in names:
        raise BadArguments(
            f"--study names a variable that holds an optuna.Study, and there is no {name} here: "
            f"{name} = optuna.create_study(...) makes one"
        )
    _check_kind(names[name], f"--study {name}")
    return names[name]


def _check_kind(study: object, what: str) -> None:
    # Nobody has a study who has not imported Optuna.
    if "optuna" not in sys.modules or not isinstance(study, import_module("optuna").Study):
        raise BadArguments(
            f"{what} needs an optuna.Study, as optuna.create_study(...) returns it, and this is "
            f"{type(study).__name__} {study!r:.80}"
        )


def _check_study(study: Any, metric: str) -> None:  # noqa: ANN401 - Optuna's
    """Refuse a study that does not rank trials as the sweep does, by one metric."""
    _check_kind(study, "study=")
    if len(study.directions) > 1:
        raise BadArguments(
            f"study {study.study_name!r} has {len(study.directions)} objectives, and a sweep has "
            "one metric: create a study with one direction"
        )
    if not metric:
        raise BadArguments(
            "a study optimizes one metric, so say which: add --metric val_loss, or "
            "metric='val_loss'"
        )
    wanted = "maximize" if rises(metric) else "minimize"
    if study.direction.name.lower() != wanted:
        better = "higher" if rises(metric) else "lower"
        raise BadArguments(
            f"study {study.study_name!r} is to {study.direction.name.lower()}, but {better} values "
            f"of {metric} are better, judging by its name: create the study with "
            f"direction={wanted!r}, or report the metric by another name"
        )


def check_new(
    study: Any,  # noqa: ANN401 - Optuna's
    space: Space,
    metric: str,
    *,
    random: int | None,
    seed: int,
    repeat: int,
) -> None:
    """Refuse to plan a sweep that a study cannot suggest the values of."""
    _check_study(study, metric)
    if random is None or not space:
        raise BadArguments(
            "a study suggests values trial by trial: give parameters with values or ranges, and "
            "say how many trials there shall be with --random N"
        )
    if seed or repeat > 1:
        raise BadArguments(
            "a study suggests each trial once, and its sampler has a seed of its own: leave out "
            f"{'--seed' if seed else '--repeat'}"
        )
    for name, values in space.items():
        for one in () if isinstance(values, Range) else values:
            if not isinstance(one, bool | int | float | str | None):
                raise BadArguments(
                    f"a study chooses among numbers, texts, True, False and None, and {name} has "
                    f"the value {one!r}"
                )


def extend_study(sweep: Sweep, random: int | None) -> int:
    """Plan more trials of a sweep whose values a study suggests."""
    if random is None:
        raise BadArguments(
            f"the study {sweep.plan.study!r} says which values the trials of sweep {sweep.number} "
            f"have: --extend {sweep.number} --random +N, and nothing else, adds N of them"
        )
    return sweep.extend([{}] * random)


def check_continued(sweep: Sweep, study: Any, *, retry: bool) -> None:  # noqa: ANN401 - Optuna's
    """Refuse to continue a sweep with another study than its own, or with what it cannot do."""
    plan = sweep.plan
    if study is None:
        if plan.study:
            raise BadArguments(
                f"sweep {sweep.number} gets its parameters from the Optuna study {plan.study!r}: "
                f"load it in a notebook, and continue with %mw_sweep --resume {sweep.number} "
                "--study NAME"
            )
        return
    if not plan.study:
        raise BadArguments(f"sweep {sweep.number} was begun without a study: leave out --study")
    if retry:
        raise BadArguments(
            f"the study {plan.study!r} knows that these trials have failed: --extend "
            f"{sweep.number} --random +N, without --retry, runs N more"
        )
    _check_study(study, plan.metric)
    known = {one.number: one.params for one in study.get_trials(deepcopy=False)}
    asked = [one for one in sweep.trials() if one.study_number is not None]
    same = study.study_name == plan.study
    if not same or any(known.get(one.study_number) != one.params for one in asked):
        raise BadArguments(
            f"sweep {sweep.number} gets its parameters from the study {plan.study!r}, and this is "
            f"{'not that one' if same else repr(study.study_name)}: load it from its storage with "
            f"optuna.load_study(study_name={plan.study!r}, storage=...)"
        )


@dataclass
class _Asked:
    """A trial of the study that is going, the last step reported of it, and how much was read."""

    trial: Any
    step: int
    size: int = 0


class StudyTrials:
    """The trials of a sweep in a study, which suggests, prunes and learns from them."""

    def __init__(self, study: Any, sweep: Sweep) -> None:  # noqa: ANN401 - Optuna's
        self._optuna = import_module("optuna")
        self._study, self._sweep = study, sweep
        self._metric = sweep.plan.metric
        self._space = from_json(sweep.plan.space)
        self._going: dict[int, _Asked] = {}

    def suggested(self, trial: Trial) -> Trial:
        """Return a trial with the values that the study suggests, after noting them."""
        if trial.study_number is not None:
            return trial
        asked = self._ask(f"{self._sweep.path.absolute()}/{trial.number}")
        params = {name: _suggest(asked, name, values) for name, values in self._space.items()}
        found = replace(trial, params=params, study_number=asked.number)
        self._sweep.append(found.as_json())
        return found

    def _ask(self, label: str) -> Any:  # noqa: ANN401 - Optuna's
        """Return the study's trial for one of ours: a new one, unless a kill has left one."""
        for one in self._running():
            if one.user_attrs.get(TRIAL_ATTRIBUTE) == label:
                return self._trial(one)
        waiting = self._optuna.trial.TrialState.WAITING
        if not self._study.get_trials(deepcopy=False, states=(waiting,)):
            # It has its label before it runs, so that no kill leaves one that nobody knows.
            one = self._optuna.trial.create_trial(
                state=waiting, user_attrs={TRIAL_ATTRIBUTE: label}
            )
            self._study.add_trial(one)
        asked = self._study.ask()
        if asked.user_attrs.get(TRIAL_ATTRIBUTE) != label:
            asked.set_user_attr(TRIAL_ATTRIBUTE, label)
        return asked

    def _running(self) -> list[Any]:
        """Return the trials that the study does not know to be over."""
        states = (self._optuna.trial.TrialState.RUNNING,)
        found: list[Any] = self._study.get_trials(deepcopy=False, states=states)
        return found

    def _trial(self, frozen: Any) -> Any:  # noqa: ANN401 - Optuna's
        """Return a trial that an earlier process asked for as one that can be reported to."""
        return self._optuna.Trial(self._study, frozen._trial_id)  # noqa: SLF001 - Optuna has no other way

    def prunes(self, trial: Trial, record: Record) -> str:
        """Report to the study what a trial has reached; return why it ends early, if it does."""
        going = self._going.get(trial.number) or self._resumed(trial)
        if going is not None and self._report(going, record) and going.trial.should_prune():
            return f"{type(self._study.pruner).__name__} pruned it"
        return ""

    def _report(self, going: _Asked, record: Record) -> bool:
        """Report the values that a trial has reached since the last look; return whether any."""
        path = record.paths.metrics
        size = path.stat().st_size if path.exists() else 0
        if size == going.size:
            return False
        going.size = size
        reached = _reached(read_few(path), self._metric)
        new = {step: value for step, value in reached.items() if step > going.step}
        for step, value in new.items():
            going.trial.report(value, step)
            going.step = step
        return bool(new)

    def _resumed(self, trial: Trial) -> _Asked | None:
        """Return a trial that is going; None if the study knows that it is over."""
        for one in self._running():
            if one.number == trial.study_number:
                step = max(one.intermediate_values, default=-1)
                return self._going.setdefault(trial.number, _Asked(self._trial(one), step))
        return None

    def settle(self, outcomes: Iterable[TrialStatus]) -> None:
        """Report each trial that is over to the study, unless it knows already."""
        states = self._optuna.trial.TrialState
        running = {one.number for one in self._running()}
        for one in outcomes:
            number = one.trial.study_number
            if number not in running or not one.state.over:
                continue
            going = self._going.get(one.trial.number) or self._resumed(one.trial)
            if going is not None and one.record is not None:
                self._report(going, one.record)
            value = one.value(self._metric)
            if one.state is TrialState.PRUNED:
                self._study.tell(number, state=states.PRUNED)
            elif value is None:
                self._study.tell(number, state=states.FAIL)
            else:
                self._study.tell(number, value)


def _suggest(asked: Any, name: str, values: tuple[Any, ...] | Range) -> Any:  # noqa: ANN401 - Optuna's
    """Have the study choose the value of a parameter."""
    if not isinstance(values, Range):
        return asked.suggest_categorical(name, values)
    if not values.whole:
        return asked.suggest_float(name, values.low, values.high, log=values.log)
    return asked.suggest_int(name, math.ceil(values.low), math.floor(values.high), log=values.log)


def _reached(entries: Sequence[Mapping[str, Any]], metric: str) -> dict[int, float]:
    """Return the values of a metric by epoch, or by step or in order if there are no epochs.

    They are those of the first task that reports it, without the running means of an epoch.
    """
    found: dict[int, float] = {}
    having = [one for one in entries if metric in one["metrics"] and one["kind"] != "evaluate"]
    for one in having:
        ended = one["final"] or one["kind"] == "validation" or one["step"] is None
        if one["task"] != having[0]["task"] or (one["kind"] in ("train", "bar") and not ended):
            continue
        known = one["epoch"] if ended else one["step"]
        found[len(found) + 1 if known is None else known] = one["metrics"][metric]
    return found
