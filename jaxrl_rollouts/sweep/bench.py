"""`jaxrl-rollouts bench`: run what is missing of a suite, count it, build its page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import tyro

from ..cli import parsing
from ..cli.options import PROG
from ..errors import ConfigError, Interrupted, StorageError, UserError
from ..plugins import announced
from ..record.files import write_atomically
from ..record.interrupts import StopFlag
from ..record.lock import FolderLock
from . import BENCH
from .plan import Plan, write_plan
from .suite import Cell, Suite, read_suite
from .table import Row, curves_of, has_cell, merged, read_table, rows_of, write_table
from .tasks import FINISHED, KilledError, finished_report, read_status, run_task

SCORES = "jaxrl_rollouts.scores"  # entry-point group of functions (dataset, return) -> score
PLACES = ("", "experiments/suites/")


def find_suite(name: str) -> Path:
    """The file of a suite: a path, or the name of one in experiments/suites."""
    for place in PLACES:
        for path in (Path(f"{place}{name}"), Path(f"{place}{name}.toml")):
            if path.is_file():
                return path
    known = sorted(path.stem for path in Path(PLACES[-1] or ".").glob("*.toml"))
    expected = "a suite's TOML file" + (f", or one of {', '.join(known)}" if known else "")
    raise ConfigError("bench", name, expected)


def place_of(suite: Path, kind: str, end: str) -> Path:
    """Where a suite's table or page is: in experiments/, else beside the suite's file."""
    shared = suite.parent.parent / kind
    return (shared if shared.is_dir() else suite.parent) / f"{suite.stem}{end}"


def run(
    suite: tyro.conf.Positional[str],
    datasets: tuple[str, ...] = (),
    methods: tuple[str, ...] = (),
    out: Path = Path("runs/bench"),
    table: Path | None = None,
    address: str = "",
    ray: bool = False,
    cpus: float = 1.0,
    slurm: Path | None = None,
    trust: tuple[str, ...] = (),
) -> None:
    """Run the cells that the table lacks, one after the other, and add their rows.

    A cell is one dataset and one method with all seeds. Stopped with Ctrl-C, the same command goes
    on where it was. A dataset or method of yours needs no entry in the suite: name it here.

    Args:
        suite: a file, or a name in experiments/suites.
        datasets: only these rows.
        methods: only these columns.
        out: folder of the runs.
        table: the CSV file; left out, experiments/evidence/SUITE.csv.
        address: a Ray cluster: auto, or HOST:PORT.
        ray: run cells side by side on Ray (extra `sweep`).
        cpus: cores of a cell on Ray or SLURM.
        slurm: write this script for sbatch, and run nothing.
        trust: code that the runs may import, package.module:factory.
    """
    path = find_suite(suite)
    asked = read_suite(path)
    place = table or place_of(path, "evidence", ".csv")
    folder = (out / path.stem).absolute()
    cells = list(asked.cells(datasets, methods))
    missing = [cell for cell in cells if not has_cell(read_table(place), cell)]
    print(f"{len(cells) - len(missing)} of {len(cells)} cells are in {place}", flush=True)
    if not missing:
        return
    tasks = tuple(cell.task(Path.cwd()) for cell in missing)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FolderLock(folder):
            plan = Plan(asked.job, (f"{PROG} bench run {suite}",), tasks)
            write_plan(folder, plan)
            if slurm is not None:
                _hand_over(folder, plan, slurm, trust, cpus, suite)
                return
            if ray or address:
                _on_ray(folder, plan, trust, address, cpus)
                _collect(folder, missing, place, asked)
            else:
                _here(folder, missing, place, trust, asked)
    except OSError as error:
        raise StorageError(folder, error, "once that is put right run it again") from error
    _complain(folder, missing)


def _here(
    folder: Path, cells: Sequence[Cell], table: Path, trust: Sequence[str], suite: Suite
) -> None:
    """One cell after the other; each adds its rows when it is finished."""
    with StopFlag() as stop:
        for number_, cell in enumerate(cells, start=1):
            task = cell.task(Path.cwd())
            print(f"{number_}/{len(cells)} {task.name}: {task.command}", flush=True)
            try:
                status = run_task(str(folder), task, trust, stop=stop)
            except KilledError as error:
                print(f"{task.name}: killed: {error}", file=sys.stderr)
                continue
            if stop.requested and status.state != FINISHED:
                raise Interrupted(f"stopped in {task.name}; the same command goes on with it")
            print(f"{number_}/{len(cells)} {task.name}: {status.state} {status.last}", flush=True)
            _collect(folder, [cell], table, suite)


def _collect(folder: Path, cells: Sequence[Cell], table: Path, suite: Suite) -> None:
    """Add the rows of finished cells to the table."""
    new: list[Row] = []
    for cell in cells:
        new += rows_of(folder / cell.task(Path.cwd()).name, cell, score, suite)
    if new:
        table.parent.mkdir(parents=True, exist_ok=True)
        write_table(table, merged(read_table(table), new))


def score(dataset: str, value: float) -> float | None:
    """The normalised score of a return, by the first announced function that has one."""
    for function in announced(SCORES, "score").values():
        found = function(dataset, value)
        if found is not None:
            return float(found)
    return None


def _on_ray(folder: Path, plan: Plan, trust: Sequence[str], address: str, cpus: float) -> None:
    from .on_ray import Resources, run_on_ray
    from .watch import Watch

    resources = Resources(address, cpus, 0.0, 3)
    with Watch(folder, plan.tasks, enabled=True) as watch:
        if run_on_ray(folder, list(plan.tasks), list(trust), resources, watch):
            raise Interrupted("stopped; the same command goes on")


def _hand_over(
    folder: Path, plan: Plan, script: Path, trust: Sequence[str], cpus: float, suite: str
) -> None:
    from .slurm import write_slurm

    numbers = range(1, len(plan.tasks) + 1)
    lines = write_slurm(script, folder, plan, numbers, trust, cpus=cpus, gpus=0)
    print(f"{len(plan.tasks)} cells: {lines}")
    print(f"submit: sbatch {shlex.quote(str(script))}")
    print(f"then:   {PROG} bench run {suite}  (adds the finished cells to the table)")


def _complain(folder: Path, cells: Sequence[Cell]) -> None:
    """Raise `UserError` where a cell did not finish."""
    wrong = [
        name
        for name in (cell.task(Path.cwd()).name for cell in cells)
        if finished_report(folder / name) is None
    ]
    if wrong:
        last = read_status(folder / wrong[0]).last.removeprefix("error: ")
        raise UserError(f"{len(wrong)} cells did not finish, {wrong[0]} among them: {last}")


def status(suite: tyro.conf.Positional[str], table: Path | None = None) -> None:
    """Print which cells the table has: datasets down, methods across, with their seeds."""
    path = find_suite(suite)
    asked = read_suite(path)
    rows = read_table(table or place_of(path, "evidence", ".csv"))
    cells = [asked.cell(d, m) for d in asked.datasets for m in asked.methods if asked.has(d, m)]
    done = {(cell.dataset, cell.method) for cell in cells if has_cell(rows, cell)}
    width = max(map(len, asked.datasets))
    print(f"{'':{width}}  " + "  ".join(asked.methods))
    for dataset in asked.datasets:
        marks = (
            "x" if (dataset, m) in done else "." if asked.has(dataset, m) else ""
            for m in asked.methods
        )
        shown = "  ".join(f"{mark:^{len(m)}}" for mark, m in zip(marks, asked.methods, strict=True))
        print(f"{dataset:{width}}  {shown}")
    print(f"{len(done)} of {len(cells)} cells")


def table(
    suite: tyro.conf.Positional[str], table: Path | None = None, page: Path | None = None
) -> None:
    """Build the page and the performance profile from the table.

    Args:
        suite: a file, or a name in experiments/suites.
        table: the CSV file; left out, experiments/evidence/SUITE.csv.
        page: the Markdown file; left out, experiments/results/SUITE.md.
    """
    from . import bench_page, ranks_page

    path = find_suite(suite)
    asked = read_suite(path)
    cells = curves_of(read_table(table or place_of(path, "evidence", ".csv")), asked)
    place = page or place_of(path, "results", ".md")
    if asked.metrics:
        text = ranks_page.page(asked, path.stem, cells)
    else:
        picture = place.with_name(f"{place.stem}-profile.png")
        drawn = bench_page.draw_profile(picture, asked, cells)
        text = bench_page.page(asked, path.stem, cells, picture.name if drawn else "")
    write_atomically(place, text)
    print(f"page: {place}")


def main(arguments: Sequence[str], prog: str) -> None:
    """Run `bench ...`; raises `UserError` for bad input."""
    parsing.call({"run": run, "status": status, "table": table}, arguments, prog, BENCH.summary)
