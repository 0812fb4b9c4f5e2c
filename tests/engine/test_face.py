"""The public names: there, documented, typed, and loaded when they are used."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxrl_rollouts as jr
from jaxrl_rollouts.errors import CheckpointError, ConfigError, DataError, StorageError
from jaxrl_rollouts.fitted import fit_ensemble
from jaxrl_rollouts.record.run import Run

FACES = (
    "jaxrl_rollouts",
    "jaxrl_rollouts.offline",
    "jaxrl_rollouts.pde",
    "jaxrl_rollouts.diffusion",
)
NAMES = [(face, name) for face in FACES for name in importlib.import_module(face).__all__]
LOADED = """
import json, sys
before = set(sys.modules)
import jaxrl_rollouts as jr
jr.__version__, dir(jr)
import jaxrl_rollouts.offline, jaxrl_rollouts.pde
dir(jaxrl_rollouts.offline)
print(json.dumps([m for m in ("jax", "numpy", "flax", "h5py", "matplotlib") if m in sys.modules]))
"""


@pytest.mark.parametrize(("face", "name"), NAMES, ids=lambda part: part.rpartition(".")[2])
def test_every_public_name_is_there_and_documented(face: str, name: str) -> None:
    module = importlib.import_module(face)
    assert name in dir(module)
    value = getattr(module, name)
    if name in ("__version__", "METHODS"):
        assert value
        return
    text = inspect.getdoc(value) or ""
    assert text and not text.startswith(f"{name}("), "a dataclass's own signature is no docstring"
    if inspect.isfunction(value) and inspect.signature(value).parameters:
        assert "Args:" in text or "`" in text, "what is it given, in which shapes?"


@pytest.mark.parametrize("face", FACES)
def test_a_public_name_is_that_of_its_definition(face: str) -> None:
    """In an installed package type checkers take `import a as b` for private."""
    text = Path(str(importlib.import_module(face).__file__)).read_text("utf-8")
    lines = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    names = [alias for line in lines for alias in line.names if alias.asname is not None]
    assert names and not [alias.name for alias in names if alias.asname != alias.name]


def test_importing_loads_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_a_mistyped_name_is_told() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rolout'; did you mean rollout?"):
        jr.rolout  # noqa: B018
    assert jr.__version__ == importlib.metadata.version("jaxrl-rollouts")


def test_an_ensemble_in_one_call() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(200, 3, (600, 2))
    y = np.stack([1e-3 * x[:, 0], 500 * (x[:, 1] > 200)], 1) + rng.normal(size=(600, 2)) * [1e-4, 1]
    config = jr.EnsembleConfig(
        members=3,
        elites=2,
        hidden_dims=(32,),
        weight_decay=(0.0,),
        batch_size=32,
        max_epochs=40,
        patience=40,
        lr=1e-2,
    )
    fitted = fit_ensemble(x, y, config, seeds=2, key=jax.random.key(1))
    prediction = fitted.predict(x[:50], seed=1)
    assert prediction.mean.shape == prediction.std.shape == (2, 50, 2)
    error = np.abs(np.asarray(prediction.mean) - y[:50]).mean((0, 1))
    assert error[0] < 0.2 * y[:, 0].std() and error[1] < 0.5 * y[:, 1].std()
    with pytest.raises(DataError, match="inputs: found .* in row 7, expected finite"):
        fit_ensemble(np.where(np.arange(600)[:, None] == 7, np.nan, x), y, config)
    with pytest.raises(DataError, match=r"\[600, 2\], \[5, 2\]"):
        fit_ensemble(x, y[:5], config)


def test_a_run_folder_resumes(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(100, 1))
    config = jr.EnsembleConfig(
        members=1, elites=1, hidden_dims=(4,), weight_decay=(0.0,), max_epochs=2
    )
    curves = []
    for _ in range(2):
        with Run.open(tmp_path / "mine", progress=False, loggers=("csv",)) as run:
            assert run.folder.experiment == "mine"
            fitted = fit_ensemble(x, x, config, context=run)
            curves.append(fitted.trained.history.curve("holdout_mse")[1])
            report = jr.Report.of(run, seeds=1)
            report.number("x", [1.0])
            report.save(run.folder.path)
    np.testing.assert_array_equal(*curves)
    assert fitted.trained.run_seconds > 0  # the first session's: nothing was trained again
    assert len((tmp_path / "mine" / "metrics.csv").read_text().splitlines()) > 1
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot make a run folder"):
        Run.open(tmp_path / "file")
    with (
        Run.open(tmp_path / "mine"),
        pytest.raises(CheckpointError, match=f"in use by process {os.getpid()} on "),
        Run.open(tmp_path / "mine"),
    ):
        pass
    with pytest.raises(ConfigError, match="logger"):
        Run.open(tmp_path / "other", loggers=("cvs",))


HERE = Path(__file__).parent / "typing"


@pytest.fixture(scope="module")
def found() -> dict[str, set[int]]:
    """Lines with an error, counted from 1, by file."""
    pytest.importorskip("pyright")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    files = [str(HERE / name) for name in ("mistakes.py", "right.py")]
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    report = json.loads(done.stdout)
    lines: dict[str, set[int]] = {"mistakes.py": set(), "right.py": set()}
    for one in report["generalDiagnostics"]:
        if one["severity"] == "error":
            lines[Path(one["file"]).name].add(one["range"]["start"]["line"] + 1)
    assert report["summary"]["filesAnalyzed"] == 2
    return lines


def test_every_mistake_is_seen_and_nothing_else(found: dict[str, set[int]]) -> None:
    lines = (HERE / "mistakes.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, start=1) if "  # " in line}
    assert len(wrong) == 13
    assert found["mistakes.py"] == wrong
    assert found["right.py"] == set()
