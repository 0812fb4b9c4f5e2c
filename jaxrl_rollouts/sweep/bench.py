"""`jaxrl-rollouts bench`: run what is missing of a suite, count it, build its page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import tyro

from ..cli import parsing
from ..cli.options import PROG
from ..configs import Range
from ..cores import cores
from ..errors import ConfigError, Interrupted, StorageError, UserError
from ..plugins import announced
from ..record.files import write_atomically
from ..record.lock import FolderLock
from . import BENCH
from .here import run_here
from .on_ray import Resources, run_on_ray
from .plan import Plan, write_plan
from .suite import Cell, Suite, read_suite
from .table import Row, curves_of, has_cell, merged, read_table, rows_of, write_table
from .tasks import FINISHED, finished_report, read_status, run_folder
from .watch import Watch

SCORES = "jaxrl_rollouts.scores"  # entry-point group of functions (dataset, return) -> score
SUITES = Path("experiments/suites")
# Of the working directory, then of a checkout that is installed (`pip install -e`).
PLACES = (Path(), SUITES, Path(__file__).parents[1] / SUITES)
POLICY = "policy/policy.json"  # that of the last step; policy-best was chosen by its return


def find_suite(name: str) -> Path:
    """The file of a suite: a path, or the name of one in experiments/suites."""
    for place in PLACES:
        for path in (place / name, place / f"{name}.toml"):
            if path.is_file():
                return path
    known = sorted({path.stem for place in PLACES[1:] for path in place.glob("*.toml")})
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
    cpus: float | None = None,
    slurm: Path | None = None,
    trust: tuple[str, ...] = (),
) -> None:
    """Run the cells that the table lacks, and add the rows of each as it is finished.

    A cell is one dataset and one method with all seeds. Stopped with Ctrl-C, the same command goes
    on where it was. A dataset or method of yours needs no entry in the suite: name it here.

    Args:
        suite: a file, or a name in experiments/suites.
        datasets: only these rows.
        methods: only these columns.
        out: folder of the runs.
        table: the CSV file; left out, experiments/evidence/SUITE.csv.
        address: a Ray cluster: auto, or HOST:PORT.
        ray: run cells on Ray (extra `sweep`).
        cpus: cores of a cell; cells run side by side while cores last. Left out, a cell has all
            cores that the process may use, or one on Ray or SLURM.
        slurm: write this script for sbatch, and run nothing.
        trust: code that the runs may import, package.module:factory.
    """
    if cpus is not None:
        Range(above=0).check("--cpus", cpus)
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
                _hand_over(folder, plan, slurm, trust, cpus or 1.0, suite)
                return
            cluster = ray or bool(address)
            given = cpus or (1.0 if cluster else float(cores()))
            with Watch(folder, tasks) as watch:
                rows = _Rows(folder, missing, place, asked, watch)
                go = run_on_ray if cluster else run_here
                stopped = go(folder, tasks, trust, Resources(address, given), rows)
            if stopped:
                raise Interrupted("stopped; the same command resumes")
    except OSError as error:
        raise StorageError(folder, error, "once that is corrected, run it again") from error
    _complain(folder, missing)


class _Rows:
    """At each call: shows the state of the cells, and adds the rows of those that have finished."""

    def __init__(
        self, folder: Path, cells: Sequence[Cell], table: Path, suite: Suite, watch: Watch
    ) -> None:
        self._open = {cell.task(Path.cwd()).name: cell for cell in cells}
        self._folder, self._table, self._suite, self._watch = folder, table, suite, watch

    def __call__(self) -> None:
        self._watch()
        new: list[Row] = []
        for name, cell in list(self._open.items()):
            if read_status(self._folder / name).state != FINISHED:
                continue
            new += rows_of(self._folder / name, cell, score, self._suite)
            del self._open[name]
        if new:
            self._table.parent.mkdir(parents=True, exist_ok=True)
            write_table(self._table, merged(read_table(self._table), new))


def score(dataset: str, value: float) -> float | None:
    """The normalised score of a return, by the first announced function that has one."""
    for function in announced(SCORES, "score").values():
        found = function(dataset, value)
        if found is not None:
            return float(found)
    return None


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
    """Print which cells the table has: datasets down, methods across; x, or the number of seeds."""
    from . import bench_page

    path = find_suite(suite)
    asked = read_suite(path)
    rows = read_table(table or place_of(path, "evidence", ".csv"))
    found = curves_of(rows, asked)
    cells = {k: c for k, c in found.items() if c.settings == asked.cell(*k).settings}
    width = max(map(len, asked.datasets))
    print(f"{'':{width}}  " + "  ".join(asked.columns))
    for dataset in asked.datasets:
        line = f"{dataset:{width}}"
        for method in asked.columns:
            seeds = cells[dataset, method].seeds if (dataset, method) in cells else "."
            mark = "x" if seeds == asked.seeds else seeds
            line += f"  {mark if asked.has(dataset, method) else '':^{len(method)}}"
        print(line)
    print(f"{bench_page.counted(asked, cells)} cells")


def table(
    suite: tyro.conf.Positional[str],
    table: Path | None = None,
    beside: tuple[Path, ...] = (),
    page: Path | None = None,
) -> None:
    """Build the page and the performance profile from the table.

    Args:
        suite: a file, or a name in experiments/suites.
        table: the CSV file; left out, experiments/evidence/SUITE.csv.
        beside: CSV files of yours, whose cells are shown beside those of the table.
        page: the Markdown file; left out, experiments/results/SUITE.md, or with tables of yours
            SUITE.md in the working directory.
    """
    from . import bench_page, ranks_page

    path = find_suite(suite)
    asked = read_suite(path)
    rows = read_table(table or place_of(path, "evidence", ".csv"))
    for file in beside:
        if not file.is_file():
            raise ConfigError("--beside", str(file), "a table that `bench run` wrote")
        rows = merged(rows, read_table(file))
    place = page or (Path(f"{path.stem}.md") if beside else place_of(path, "results", ".md"))
    cells = curves_of(rows, asked)
    if asked.metrics:
        text = ranks_page.page(asked, path.stem, cells)
    else:
        picture = place.with_name(f"{place.stem}-profile.png")
        drawn = bench_page.draw_profile(picture, asked, cells)
        text = bench_page.page(asked, path.stem, cells, picture.name if drawn else "")
    write_atomically(place, text)
    print(f"page: {place}")


def keep(
    suite: tyro.conf.Positional[str],
    out: Path = Path("runs/bench"),
    policies: Path | None = None,
) -> None:
    """Copy the policies of finished cells, all seeds of each, as safetensors (extra `hub`).

    They are those of the last step: none was selected by its return. With the true returns of the
    table they are a testbed for off-policy evaluation. `offline.load_policy`, `evaluate` and
    `choose --data DATASET` take the folders.

    Args:
        suite: a file, or a name in experiments/suites.
        out: folder of the runs.
        policies: output folder; left out, one beside the table.
    """
    # It loads jax, which `bench --help` should not wait for.
    from ..hub import stage

    path = find_suite(suite)
    place = policies or place_of(path, "evidence", "")
    kept = 0
    for cell in read_suite(path).cells():
        name = cell.task(Path.cwd()).name
        folder = out / path.stem / name
        if finished_report(folder) is None or (place / name).exists():
            continue
        for found in (run_folder(folder) or folder).rglob(POLICY):
            stage(found.parent, place / name)
            kept += 1
    print(f"{kept} cells' policies are new in {place}")


def main(arguments: Sequence[str], prog: str) -> None:
    """Run `bench ...`; raises `UserError` for bad input."""
    parsing.call(
        {"run": run, "status": status, "table": table, "keep": keep}, arguments, prog, BENCH.summary
    )
