"""The commands about runs: start one, resume one, show its report.

Only what a command needs is imported: jax is loaded once its words are understood.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from .. import plugins as plugins
from ..errors import (
    ConfigError,
    DataError,
    SimulatorError,
    StorageError,
    UserError,
    one_line,
    printable,
)
from ..plugins import Experiment, ExperimentInfo
from ..record.context import RunContext
from ..record.folder import RunFolder
from ..record.interrupts import StopFlag
from ..record.lock import FolderLock
from ..record.provenance import current_versions
from ..starting import prepare
from . import before
from .before import words
from .options import PROG, as_typed, check_choices, check_options, parse_run

DATA = ("dataset", "file")  # settings of experiments that name their data

if TYPE_CHECKING:
    from ..reports.report import Report


def begin(arguments: list[str]) -> None:
    """`run EXPERIMENT ...`: train, evaluate, report."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: {PROG} run EXPERIMENT [--preset NAME] [options] [settings]\n")
        print("Trains, evaluates and writes a report with pictures into a folder under runs/.")
        print(f"`{PROG} run EXPERIMENT --help` shows all settings of one. Experiments:\n")
        show_experiments()
        return
    if arguments[0].startswith("-"):
        raise ConfigError("run", arguments[0], "the name of an experiment before any option")
    if listing := plugins.listings().get(arguments[0]):  # before anything heavy is imported
        check_choices(listing, arguments[1:])
    experiment = plugins.load_experiment(arguments[0])
    options, config, command = parse_run(experiment, arguments[1:])
    check_options(config)
    from .. import processes  # jax is loaded by now

    loggers = _loggers(options.logger)
    before.check_places(options.out, options.publish)
    _prepare(experiment, options.preset, config)
    folder = RunFolder.create(
        processes.root(options.out),
        experiment.name,
        options.preset,
        config,
        command,
        loggers,
        experiment.title(config),
    )
    processes.follow(folder.path)
    execute(experiment, config, folder, options.progress, options.publish)


def _prepare(experiment: Experiment, preset: str, config: Any) -> None:
    """Check what the run needs, and say what it should be known before it starts."""
    prepare(cache=experiment.caches)
    try:
        facts = experiment.facts(config)
    except ConfigError as error:
        raise as_typed(error, config) from None
    for line in (*facts, before.duration(experiment, preset, config)):
        print(f"note: {printable(line)}", file=sys.stderr, flush=True)


def _loggers(text: str) -> list[str]:
    from ..record.loggers import check_loggers

    return check_loggers(name.strip() for name in text.split(",") if name.strip())


def execute(
    experiment: Experiment,
    config: Any,
    folder: RunFolder,
    progress: bool = True,
    publish_to: Path | None = None,
) -> Report:
    """Run an experiment in a folder, save its report there and print it.

    Called again on the same folder it resumes: each finished stage finds its own checkpoint.
    """
    from .. import processes
    from ..record.loggers import make_loggers
    from ..record.provenance import Clock
    from ..reports.pictures import formats
    from ..reports.report import publish
    from ..reports.text import write_pages
    from .longer import advice

    formats()  # a wrong one is named before the training
    first = processes.first()
    progress, publish_to = progress and first, publish_to if first else None
    with _holding(folder):
        print(f"run folder: {folder.path}", file=sys.stderr, flush=True)
        opened, clock = make_loggers(folder.loggers if first else (), folder.path), Clock()

        def spend() -> dict[str, float]:
            seconds = {"wall_seconds": clock.wall_seconds, "compile_seconds": clock.compile_seconds}
            return folder.spend(**seconds)

        try:
            with StopFlag() as stop, clock, ExitStack() as closing:
                for logger in opened:
                    closing.callback(logger.close)
                context = RunContext(folder, progress, opened, folder.command, stop)
                result = experiment.run(config, context)
        except BaseException:
            with suppress(OSError):  # the first cause is what counts
                folder.discard_if_unused()
                if folder.path.is_dir():
                    spend()
            raise
        for name, value in spend().items():
            setattr(result, name, value)
        for name, facts in folder.data.items():
            known = ", ".join(f"{key} {value}" for key, value in facts.items())
            result.note(f"Data {name}: {known}.")
        result.save(folder.path)
        write_pages(result, folder.path)
    _show(result, folder.path)
    if line := advice(experiment, config, result, folder):
        print(line)
    if publish_to is not None:
        print(f"published: {publish(folder.path, publish_to)}")
    return result


@contextmanager
def _holding(folder: RunFolder) -> Iterator[None]:
    """Hold a run's folder; what the system or a simulator refuses is one line."""
    try:
        with FolderLock(folder.path):
            folder.tidy()
            yield
    except BrokenPipeError:
        raise
    except (OSError, SimulatorError) as error:
        hint = f"once that is corrected, resume with: {folder.resume}"
        if isinstance(error, OSError):
            raise StorageError(folder.path, error, hint) from error
        raise (error.hinted(hint) if folder.path.is_dir() else error) from error


def resume(
    run: tyro.conf.Positional[Path],
    publish: Path | None = None,
    logger: str = "",
    trust: tuple[str, ...] = (),
    progress: bool = True,
    longer: int = 1,
    dataset: Path | None = None,
) -> None:
    """Resume an interrupted run from its newest checkpoints, or train a finished one longer.

    On CPU and with the same versions the result is bitwise that of the uninterrupted run.

    Args:
        run: the run folder.
        publish: also copy report and pictures to this folder.
        logger: loggers of metrics (jsonl, csv, tensorboard, wandb), if they change.
        trust: code that the run may import, package.module:factory, since folders can name any.
        progress: show progress.
        longer: multiply the planned length of the training and the number of evaluations; continues
            from the last checkpoint, with the result of a run started with this length.
        dataset: new path of the data file, if it was moved; its content has to be the same.
    """
    folder = RunFolder.open(run)
    plugins.trust(*trust)
    try:
        plugins.check_trusted(f"{run / 'run.json'}: config", folder.code)
    except ConfigError as error:
        hint = f"if you trust it, resume with: {folder.resume}"
        raise ConfigError(error.setting, error.found, error.expected, hint) from None
    experiment = plugins.load_experiment(folder.experiment)
    config = _with_data(folder, folder.config_as(experiment.config_type), dataset)
    changed = {k: v for k, v in current_versions().items() if folder.versions.get(k) != v}
    for name, version in changed.items():
        was = printable(str(folder.versions.get(name)))
        print(f"note: {name} was {was}, is {version}: last bits may differ", file=sys.stderr)
    from .. import processes
    from .longer import lengthen

    before.check_places(run, publish)
    folder = replace(folder, loggers=tuple(_loggers(logger or ",".join(folder.loggers))))
    folder = replace(folder, path=processes.own(folder.path))
    prepare(cache=experiment.caches)
    try:
        if longer > 1:  # data that are missing must not leave a folder lengthened
            experiment.facts(config)
        folder, config = lengthen(experiment, folder, config, longer)
        execute(experiment, config, folder, progress, publish)
    except DataError as error:
        missing = error.found == "nothing" and error.key == "file" and dataset is None
        if not missing or error.hint:
            raise
        hint = f"if it was moved: {folder.resume} --dataset PLACE"
        raise DataError(error.source, error.key, error.found, error.expected, hint) from None


def _with_data(folder: RunFolder, config: Any, moved: Path | None) -> Any:
    """The configuration with its data file where it lies now."""
    name = next((n for n in DATA if isinstance(getattr(config, n, None), str)), None)
    if name is None:
        if moved is None:
            return config
        raise ConfigError("--dataset", str(moved), f"none for {folder.experiment}")
    was = getattr(config, name)
    if moved is None:
        return replace(config, **{name: folder.find(was)})
    if moved.name != Path(was).name:
        raise ConfigError("--dataset", str(moved), f"a file named {Path(was).name}, as in the run")
    if not moved.exists():
        raise ConfigError("--dataset", str(moved), "a file that exists")
    return replace(config, **{name: str(moved)})


def report(run: tyro.conf.Positional[Path], publish: Path | None = None) -> None:
    """Print the report of a finished run.

    Args:
        run: the run folder, or a folder with a report.json.
        publish: also copy report and pictures to this folder, under the experiment's name.
    """
    from ..reports import report as reports

    _show(reports.load_report(run), run if run.is_dir() else run.parent)
    if publish is not None:
        print(f"published: {reports.publish(run if run.is_dir() else run.parent, publish)}")


def _show(result: Report, folder: Path) -> None:
    from ..reports.text import print_report

    print_report(result)
    for picture in result.pictures.values():
        print(f"picture: {folder / picture.file}  {picture.caption}")
    page = folder / "report.html"
    print(f"report:  {page if page.is_file() else folder / 'report.json'}")


WIDTH = 100
SMOKE = "smoke"


def show_experiments() -> None:
    """List the experiments: what they need, their presets, about how long each takes."""
    known = plugins.listings()
    names = plugins.names(plugins.EXPERIMENTS)
    width = max(map(len, names), default=0)
    # The main job first, then in the order of the alphabet.
    for name in sorted(names, key=lambda n: (not (n in known and known[n].main), n)):
        if name not in known:
            try:
                known[name] = plugins.load_experiment(name)
            except (ImportError, AttributeError, UserError) as error:
                print(f"{name:{width}}  cannot be loaded: {one_line(error)}")
                continue
        print(f"{name:{width}}  {'START HERE: ' if known[name].main else ''}{known[name].summary}")
        for line in _facts(known[name]):
            text = textwrap.fill(line, WIDTH - width, break_on_hyphens=False)
            print(textwrap.indent(text, " " * (width + 2)))
    print("\nTimes are rough, on two CPU cores. smoke only shows that everything runs, in minutes;")
    print("paper and gpu presets are meant for a GPU.")


def _facts(listing: ExperimentInfo) -> list[str]:
    presets = listing.presets if isinstance(listing, Experiment) else listing.minutes
    shown = (name + _time(name, listing.minutes.get(name)) for name in presets)
    facts = [listing.source, f"presets: {', '.join(shown)}"]
    for needs in dict.fromkeys(listing.needs.values()):
        who = [name for name in listing.needs if listing.needs[name] == needs]
        facts.append(f"{', '.join(who)} need{'s' * (len(who) == 1)} {', '.join(needs)}")
    return [fact for fact in facts if fact]


def _time(preset: str, minutes: float | None) -> str:
    if minutes:
        return f" ({words(minutes)})"
    return "" if preset == SMOKE else " (not measured)"  # what smoke presets take is printed below
