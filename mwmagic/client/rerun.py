"""Repeats a recorded run, and says what cannot be as it was."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.errors import BadArguments, ClusterError, NoRun
from mwmagic.experiments.parameters import parameters, settings, unset
from mwmagic.model.options import OPTIONS, ClusterOptions
from mwmagic.model.values import counted
from mwmagic.record.provenance import versions
from mwmagic.words.changed import inherited_words, unlike_words

from .run import program_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mwmagic.record import Record

    from .cluster import Cluster
    from .run import Run

__all__ = ["Rerun"]


@dataclass(frozen=True)
class _Part:
    """What some tasks, or all of them if none are named, ran."""

    tasks: tuple[str, ...]
    script: str
    source: str
    args: tuple[str, ...]
    env: dict[str, str]
    cwd: str


class Rerun:
    """A recorded run, as it can be launched again with other workers or parameters.

    `options` are those of its cluster, with that number of workers. Live cells, missing code, an
    unknown parameter, and another number of workers for tasks that ran different programs are
    refused.
    """

    def __init__(
        self,
        record: Record,
        workers: int | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self._record = record = record.read_once()
        known = record.part("launches")
        launches = {str(task): one for task, one in known.items() if isinstance(one, dict)}
        if record.status.live:
            raise BadArguments(
                f"run {record.number} is a session of live cells, which has no program to run "
                "again; `%mw_export --live` writes one"
            )
        if not launches:
            raise NoRun(f"the record of run {record.number} does not say what was launched")
        self._params = params or {}
        self._parts = [_without(one, self._params) for one in _parts(record, launches)]
        options = ClusterOptions.from_json(record.part("options"))
        if workers is not None and workers != options.workers:
            if len(self._parts) > 1:
                raise BadArguments(
                    f"the tasks of run {record.number} ran different programs, so it is not "
                    "known which one more workers would run: leave out --workers"
                )
            options = replace(options, workers=workers)
        self.options = options

    def declaration(self) -> dict[str, Any]:
        """Return the options that declare such a cluster from a shell."""
        own = {name: getattr(self.options, name) for name, one in OPTIONS.items() if one.command}
        return {
            name: value
            for name, value in own.items()
            if value != OPTIONS[name].default or name == "workers"
        }

    def unlike(self) -> list[str]:
        """Say what cannot be as it was: versions, modules beside the program, and variables."""
        record = self._record
        folder = record.folder or Path()
        changed = record.changed_modules()
        gone = [name for name in changed if not (folder / name).exists()]
        was = record.part("versions")
        now = versions([name for name in was if name not in ("python", "mwmagic")])
        differ = {name: (one, now.get(name)) for name, one in was.items() if one != now.get(name)}
        changed = [one for one in changed if one not in gone]
        lines = unlike_words(record.number, differ, changed, gone)
        return lines + inherited_words(record.number, self._read(), record.inherited, os.environ)

    def _read(self) -> list[str]:
        """Return the variables that the programs read and that are given neither then nor now."""
        found: dict[str, None] = {}
        for part in self._parts:
            env = settings(part.source, self._params, part.args, part.env).env
            found |= dict.fromkeys(
                one.variable
                for one in parameters(part.source)
                if one.variable and not one.refusal and one.variable not in {*part.env, *env}
            )
        return list(found)

    def check(self, cluster: Cluster) -> None:
        """Refuse a cluster of another shape."""
        asked, there = self.options.members, cluster.tasks
        if asked != there:
            raise ClusterError(
                f"run {self._record.number} needs {counted(len(asked), 'task')} "
                f"({asked[0]} to {asked[-1]}), and this cluster has {len(there)}: declare such a "
                f"cluster with `%mw_cluster {self.options.workers}`, or repeat the run on this one "
                f"with --workers {cluster.options.workers}"
            )

    def launch(self, cluster: Cluster, *, answered: bool = False) -> Run:
        """Launch it on a cluster."""
        run: Run | None = None
        for part in self._parts:
            for task in part.tasks or (None,):
                run = cluster.run(
                    part.script,
                    source=part.source,
                    args=part.args,
                    env=part.env,
                    cwd=part.cwd,
                    params=self._params,
                    task=task,
                    restarts=self.options.restarts,
                    answered=answered,
                )
        if run is None:
            raise NoRun(f"the record of run {self._record.number} does not say what was launched")
        return run


def _without(part: _Part, params: Mapping[str, Any]) -> _Part:
    """Leave out the arguments and variables that set parameters to what they were."""
    args, env = unset(part.source, params, part.args, part.env)
    settings(part.source, params, args, env)
    return replace(part, args=args, env=env)


def _parts(record: Record, launches: Mapping[str, Mapping[str, Any]]) -> list[_Part]:
    """Return what the tasks ran; those that ran the same are together."""
    found: list[_Part] = []
    groups: list[tuple[Mapping[str, Any], list[str]]] = []
    for task, launch in launches.items():
        same = next((tasks for one, tasks in groups if one == launch), None)
        if same is None:
            groups.append((launch, [task]))
        else:
            same.append(task)
    for launch, tasks in groups:
        name, cwd = str(launch.get("source", "")), str(launch.get("cwd", ""))
        if not Path(cwd).is_dir():
            raise NoRun(f"the folder {cwd or '?'} that run {record.number} ran in is gone")
        try:
            text = program_text(record.path / Path(name).name)
        except OSError:
            raise NoRun(
                f"the code of run {record.number} is gone from {record.path}; launch it from its "
                "cell or file"
            ) from None
        args, given = launch.get("args"), launch.get("given")
        found.append(
            _Part(
                tuple(tasks) if len(groups) > 1 else (),
                str(launch.get("script", name)),
                text,
                tuple(map(str, args)) if isinstance(args, list) else (),
                {str(key): str(one) for key, one in given.items()}
                if isinstance(given, dict)
                else {},
                cwd,
            )
        )
    return found
