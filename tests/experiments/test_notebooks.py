"""Every notebook under `experiments/notebooks` runs from top to bottom at smoke size."""

from __future__ import annotations

import ast
import base64
import importlib
import os
import struct
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("exponax")
pytest.importorskip("mujoco")

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "notebooks"
NOTEBOOKS = sorted(FOLDER.rglob("*.ipynb"))
PNG = b"\x89PNG\r\n\x1a\n"
SECONDS_PER_CELL = 900  # of a machine that does other things too; a hang is longer
MOST_BYTES = 1_000_000  # eight pictures at 150 dpi

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
LONG = {
    "control",
    "flows",
    "few_steps",
    "pde_refiner",
    "policy_guided_diffusion",
    "neubay_bandit",
}  # what they do has tests of its own


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def code(notebook: Any) -> list[str]:
    """Sources of the code cells."""
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def execute(notebook: Any, folder: Path) -> Any:
    """Run a notebook in `folder` at smoke size, in a kernel of this very interpreter."""
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_core.utils import run_sync

    # Without folders there is one kernel only: ipykernel started by sys.executable. An installed
    # specification of the same name may start another environment's python.
    manager = AsyncKernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    client = nbclient.NotebookClient(
        notebook,
        km=manager,
        timeout=SECONDS_PER_CELL,
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    settings = {"JAXRL_ROLLOUTS_SMOKE": "1", "JAX_PLATFORMS": "cpu", "IPYTHONDIR": str(folder)}
    try:
        return client.execute(env=os.environ | settings)
    finally:  # nbclient leaves a manager that it was given running, with all its memory
        run_sync(manager.shutdown_kernel)(now=True)


def pictures(notebook: Any) -> Iterator[bytes]:
    """PNGs among the outputs."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                yield base64.b64decode(output["data"]["image/png"])


def private_names(source: str) -> set[str]:
    """Names with a leading underscore that a cell imports or reaches into."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.name for alias in node.names}
            found |= {node.module or ""} if isinstance(node, ast.ImportFrom) else set()
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return {name for name in found if any(part.startswith("_") for part in name.split("."))}


def imported(source: str) -> Iterator[tuple[str, str]]:
    """Module and name of all that a cell imports from the library."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jaxrl_rollouts"):
            yield from ((str(node.module), alias.name) for alias in node.names)


def test_there_are_notebooks() -> None:
    assert "pde_refiner" in {path.stem for path in NOTEBOOKS}


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=[pytest.mark.slow] * (p.stem in LONG)) for p in NOTEBOOKS],
    ids=lambda p: p.stem,
)
def test_it_runs_and_draws(path: Path, tmp_path: Path) -> None:
    notebook = read(path)
    for cell in notebook.cells:  # nothing committed may pass for something that was drawn now
        cell.pop("outputs", None)
        cell.update({"outputs": []} if cell.cell_type == "code" else {})
    done = execute(notebook, tmp_path)
    ran = [cell.execution_count for cell in done.cells if cell.cell_type == "code"]
    assert ran == list(range(1, len(ran) + 1))
    outputs = [o for cell in done.cells for o in cell.get("outputs", [])]
    assert not [o for o in outputs if o.output_type == "error"]
    drawn = list(pictures(done))
    assert drawn
    for picture in drawn:
        width, height = struct.unpack(">II", picture[16:24])
        assert picture.startswith(PNG) and width > 100 and height > 100 and len(picture) > 2000


def test_a_failing_cell_is_seen_and_the_kernel_is_this_interpreter(tmp_path: Path) -> None:
    """The two things the test above relies on."""
    new = nbformat.v4
    report = "import os, sys; print(sys.prefix, os.environ['JAXRL_ROLLOUTS_SMOKE'], os.getcwd())"
    good = new.new_notebook(cells=[new.new_code_cell(report)])
    (output,) = execute(good, tmp_path).cells[0].outputs
    assert output.text.split() == [sys.prefix, "1", str(tmp_path)]
    bad = new.new_notebook(cells=[new.new_code_cell("1 / 0")])
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="ZeroDivisionError"):
        execute(bad, tmp_path)


@every_notebook
def test_it_is_a_valid_notebook_and_no_large_one(path: Path) -> None:
    nbformat.validate(read(path))
    assert path.stat().st_size < MOST_BYTES


@every_notebook
def test_its_outputs_are_of_one_run_or_absent(path: Path) -> None:
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in cells]
    ran = any(cell.outputs for cell in cells)
    assert counts == (list(range(1, len(cells) + 1)) if ran else [None] * len(cells))
    outputs = [o for cell in cells for o in cell.outputs]
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]


@every_notebook
def test_it_names_no_machine(path: Path) -> None:
    """In a cell or in an output; pictures are base64 and may hold any letters."""
    notebook = read(path)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("image/png", None)
    text = nbformat.writes(notebook)
    words = ["/" + "work/", "/" + "tmp/", "/" + "root/", "/" + "home/", "/" + "Users/", ":\\\\"]
    assert not [word for word in words if word in text]


@every_notebook
def test_cells_parse_and_use_public_names_only(path: Path) -> None:
    sources = code(read(path))
    assert not [(source, found) for source in sources if (found := private_names(source))]
    names = [name for source in sources for name in imported(source)]
    assert names
    for module, name in names:
        home = importlib.import_module(module)
        assert hasattr(home, name) or importlib.import_module(f"{module}.{name}")


@pytest.mark.parametrize(
    ("source", "private"),
    [
        ("from jaxrl_rollouts._inner import x", {"jaxrl_rollouts._inner"}),
        ("import jaxrl_rollouts.a._b as c", {"jaxrl_rollouts.a._b"}),
        ("from jaxrl_rollouts.loop import _compiled", {"_compiled"}),
        ("loop._compiled(update, 1)", {"_compiled"}),
        ("from jaxrl_rollouts.loop import train_loop\nfor _ in range(2): x.y", set()),
    ],
)
def test_private_names_are_seen(source: str, private: set[str]) -> None:
    assert private_names(source) == private


REPOSITORY = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text())["project"]["urls"][
    "Repository"
]


@every_notebook
def test_it_says_how_to_open_and_install_it(path: Path) -> None:
    """One line to edit, and one address for all, from `pyproject.toml`."""
    notebook = read(path)
    words = notebook.cells[0].source
    assert notebook.cells[0].cell_type == "markdown" and "Colab" in words
    place = f"{REPOSITORY.removeprefix('https://github.com/')}/blob/main/experiments/notebooks"
    assert f"colab.research.google.com/github/{place}/{path.name})" in words
    first, second = code(notebook)[:2]
    assert f'SOURCE = "git+{REPOSITORY}"' in first and "find_spec" in first
    assert second.startswith("import os\n") and "SMOKE = False" in second


def test_the_first_cell_is_the_same_in_all() -> None:
    firsts = {
        "\n".join(x for x in code(read(path))[0].splitlines() if not x.startswith("EXTRAS"))
        for path in NOTEBOOKS
    }
    assert len(firsts) == 1


def test_the_first_cell_installs_from_a_checkout_and_says_what_went_wrong(tmp_path: Path) -> None:
    """Run by an interpreter that has nothing but pip: it asks pip for what SOURCE says."""
    pip = tmp_path / "pip"
    pip.mkdir()
    (pip / "__init__.py").touch()
    (pip / "__main__.py").write_text(
        "import sys; print(sys.argv[1:]); sys.exit('nothing' in sys.argv[4])"
    )
    for source, asked in (
        ("/a/checkout", "jaxrl-rollouts @ file:///a/checkout"),
        ("jaxrl-rollouts", "'jaxrl-rollouts'"),
        ("git+https://x.org/y", "jaxrl-rollouts @ git+https://x.org/y"),
        ("git+https://x.org/nothing", "nothing"),
    ):
        cell = code(read(FOLDER / "neubay_bandit.ipynb"))[0]
        cell = cell.replace(f"git+{REPOSITORY}", source)
        command = [sys.executable, "-S", "-c", cell]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert run.returncode == 0 and asked in run.stdout, run
        said = "did not work" if "nothing" in source else "Ready."
        assert said in run.stdout, run
