"""`jaxrl-rollouts sweep`: plan, start or resume, submit to SLURM, collect."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import tyro

from .. import plugins
from ..cli import parsing
from ..cli.before import check_places
from ..cli.options import PROG, check_options
from ..cli.shown import options, shown
from ..configs import did_you_mean, number
from ..errors import ConfigError, Interrupted, StorageError, UserError
from ..record.interrupts import StopFlag
from ..record.lock import FolderLock
from ..reports.report import Report, publish
from ..reports.text import print_report
from .collect import collect as collected
from .here import run_here
from .on_ray import Resources, run_on_ray
from .plan import Plan, joined, make_plan, read_plan, varied, write_plan
from .slurm import write_slurm
from .tasks import (
    DIVERGED,
    FAILED,
    FINISHED,
    KILLED,
    KilledError,
    finished_report,
    read_status,
    run_task,
)
from .watch import Watch

DESCRIPTION = (
    "Run every dataset with every method, setting and seed, as tasks on this machine, on Ray or as "
    "a SLURM job array, and collect one report. Each task is an ordinary run in a folder of its "
    "own; the same command resumes the missing ones. Other options are those of "
    f"`{PROG} run EXPERIMENT`, for every task. `{PROG} sweep collect FOLDER` makes the report "
    f"anew, `{PROG} sweep task FOLDER NUMBER` runs one task here."
)


@dataclass(frozen=True)
class SweepOptions:
    """Options of `sweep` that are not options of its runs.

    Attributes:
        datasets: Values of the setting `dataset` (of `pde_train`: `file`).
        methods: Values of the setting `method` (of `pde_train`: `objective`).
        seeds: Values of the setting `seed`. Each task trains one seed, or as many as are set.
        vary: Other settings and their values, `expectile=0.7,0.9 agent.tau=0.005,0.01`; a method
            without such a setting is run once.
        out: Folder of the sweep, by default runs/EXPERIMENT-sweep; an existing one is resumed or
            grows.
        publish: Also copy report and pictures to this folder, under the name EXPERIMENT-sweep.
        address: A Ray cluster that runs: auto, or HOST:PORT. Left empty: Ray on this machine.
        here: Run on this machine without Ray, which is also what happens where Ray is not
            installed.
        cpus: Cores per task.
        gpus: GPUs per task, also a share of one: 0.25 puts four tasks on each.
        retries: How often a task starts again whose process or machine died.
        slurm: Write this script for sbatch, and a file with the tasks' commands, and run nothing.
        progress: Show how the tasks go.
    """

    datasets: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    vary: tuple[str, ...] = ()
    out: Path | None = None
    publish: Path | None = None
    address: str = ""
    here: bool = False
    cpus: float = number(1.0, above=0)
    gpus: float = number(0.0, least=0)
    retries: int = number(3, least=0)
    slurm: Path | None = None
    progress: bool = True


def main(arguments: Sequence[str], prog: str) -> None:
    """Run the subcommand; raises `UserError` for anything a user can put right."""
    own = {"collect": collect, "task": task}
    arguments = list(arguments) or ["--help"]
    first = arguments[0]
    if first in own:
        parsing.call(own[first], arguments[1:], f"{prog} {first}")
        return
    if first.startswith("-") and first not in ("-h", "--help"):
        raise ConfigError("sweep", first, "the name of an experiment before any option")
    ours, theirs = split(arguments[not first.startswith("-") :], own_options())
    asked = parsing.read(
        lambda: tyro.cli(
            SweepOptions, args=ours, prog=f"{prog} EXPERIMENT", description=DESCRIPTION
        ),
        ours,
        prog,
    )
    check_options(asked)
    start(first, asked, theirs, shlex.join([PROG, "sweep", *arguments]))


def split(arguments: Sequence[str], own: Sequence[str]) -> tuple[list[str], list[str]]:
    """These options with their values, and what is left for the runs."""
    known = {"-h", "--help", *own}
    ours: list[str] = []
    theirs: list[str] = []
    place = theirs
    for argument in arguments:
        if parsing.is_option(argument):
            name = argument.partition("=")[0].replace("_", "-")
            place = ours if name in known else theirs
        place.append(argument)
    return ours, theirs


def own_options() -> list[str]:
    """The options of a sweep, as typed."""
    return list(options(shown(SweepOptions())))


def start(name: str, asked: SweepOptions, given: Sequence[str], command: str) -> None:
    """Plan, and run what is missing or hand it over."""
    experiment = plugins.load_experiment(name)
    swept = {"dataset": asked.datasets, "method": asked.methods, "seed": asked.seeds}
    try:
        vary = varied(asked.vary)
        plan, code = make_plan(experiment, swept, given, command, Path.cwd(), vary)
    except ConfigError as error:  # an unknown option may have been meant for the sweep
        hint = did_you_mean(str(error.found), own_options()) if error.setting == "option" else ""
        raise ConfigError(error.setting, error.found, error.expected, hint or error.hint) from None
    plugins.check_trusted("sweep", code)
    folder = (asked.out or Path("runs") / f"{experiment.name}-sweep").absolute()
    check_places(folder, asked.publish)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FolderLock(folder):
            whole = joined(folder, plan)
            write_plan(folder, whole)
            if asked.slurm is not None:
                _hand_over(folder, plan, whole, code, asked)
                return
            if _run(folder, plan, whole, code, asked):
                done = sum(finished_report(folder / task.name) is not None for task in plan.tasks)
                raise Interrupted(
                    f"stopped with {done} of {len(plan.tasks)} tasks finished; "
                    f"resume with: {command}"
                )
            report = collected(folder, whole)
    except OSError as error:
        hint = f"once that is corrected, resume with: {command}"
        raise StorageError(folder, error, hint) from error
    _show(folder, report, asked.publish)
    _complain(folder, plan, command)


def _run(folder: Path, plan: Plan, whole: Plan, code: Sequence[str], asked: SweepOptions) -> bool:
    """Run what is missing of `plan`; whether it was stopped on request."""
    there = {task.name: task for task in whole.tasks}
    missing = [
        there[task.name] for task in plan.tasks if finished_report(folder / task.name) is None
    ]
    print(f"sweep folder: {folder}", file=sys.stderr)
    print(f"{len(missing)} of {len(plan.tasks)} tasks are to be run", file=sys.stderr, flush=True)
    if not missing:
        return False
    resources = Resources(asked.address, asked.cpus, asked.gpus, asked.retries)
    here = asked.here or not (asked.address or find_spec("ray"))
    if here and not asked.here:
        print("Ray is not installed: the tasks run on this machine", file=sys.stderr, flush=True)
    with Watch(folder, plan.tasks, enabled=asked.progress) as watch:
        return (run_here if here else run_on_ray)(folder, missing, code, resources, watch)


def _hand_over(
    folder: Path, plan: Plan, whole: Plan, code: Sequence[str], asked: SweepOptions
) -> None:
    """Write the files for SLURM and say what to do with them."""
    assert asked.slurm is not None
    wanted = {task.name for task in plan.tasks}
    missing = [
        number
        for number, task in enumerate(whole.tasks, start=1)
        if task.name in wanted and finished_report(folder / task.name) is None
    ]
    if missing:
        lines = write_slurm(
            asked.slurm, folder, whole, missing, code, cpus=asked.cpus, gpus=asked.gpus
        )
        print(f"{len(missing)} tasks: {lines}")
        print(f"submit: sbatch {shlex.quote(str(asked.slurm))}  (more options go before the file)")
    else:
        print(f"all {len(plan.tasks)} tasks are finished")
    print(f"then:   {PROG} sweep collect {shlex.quote(str(folder))}")


def _complain(folder: Path, plan: Plan, command: str) -> None:
    """Raise `UserError` with the first of the tasks that failed, and its last line."""
    wrong = [
        (task, status)
        for task in plan.tasks
        if (status := read_status(folder / task.name)).state in (FAILED, DIVERGED, KILLED)
    ]
    if wrong:
        task, status = wrong[0]
        raise UserError(
            f"{len(wrong)} of {len(plan.tasks)} tasks did not finish, {task.name} among them "
            f"({status.state}: {status.last.removeprefix('error: ')}); to try them again: {command}"
        )


def collect(folder: tyro.conf.Positional[Path], publish: Path | None = None) -> None:
    """Collect the reports of a sweep's runs into one, also while some are running.

    Args:
        folder: folder of the sweep.
        publish: also copy report and pictures to this folder.
    """
    plan = read_plan(folder)
    _show(folder, collected(folder, plan), publish)


def task(
    folder: tyro.conf.Positional[Path],
    number: tyro.conf.Positional[int],
    trust: tuple[str, ...] = (),
) -> None:
    """Run or resume one task of a sweep; a finished one is left unchanged.

    Args:
        folder: folder of the sweep.
        number: number of the task, from 1.
        trust: code that the run may import, package.module:factory.
    """
    plan = read_plan(folder)
    if not 1 <= number <= len(plan.tasks):
        raise ConfigError("number", number, f"one from 1 to {len(plan.tasks)}")
    one = plan.tasks[number - 1]
    with StopFlag() as stop:
        try:
            status = run_task(str(folder.absolute()), one, trust, stop=stop)
        except KilledError as error:
            raise UserError(f"killed: {error}; the same command resumes it") from None
    if stop.requested and status.state != FINISHED:
        raise Interrupted(f"stopped {one.name}; the same command resumes it")
    print(f"{one.name}: {status.state}")
    if status.state != FINISHED:
        raise UserError(f"{one.name}: {status.state}: {status.last.removeprefix('error: ')}")


def _show(folder: Path, report: Report, publish_to: Path | None) -> None:
    print_report(report)
    print(f"report:  {folder / 'report.html'}")
    if publish_to is not None:
        print(f"published: {publish(folder, publish_to)}")
