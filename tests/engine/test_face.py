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
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, str]]:
    """What a type checker says, by file and by line, counted from 1."""
    pytest.importorskip("pyright")
    names = tmp_path_factory.mktemp("typing") / "names.py"
    lines = [f"import {face}" for face in FACES]
    names.write_text("\n".join([*lines, *(f"reveal_type({face}.{name})" for face, name in NAMES)]))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    files = [*(str(HERE / name) for name in ("mistakes.py", "right.py")), str(names)]
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    report = json.loads(done.stdout)
    said: dict[str, dict[int, str]] = {"mistakes.py": {}, "right.py": {}, "names.py": {}}
    for one in report["generalDiagnostics"]:
        line = one["range"]["start"]["line"] + 1
        said[Path(one["file"]).name][line] = f"{one['severity']}: {one['message']}"
    assert report["summary"]["filesAnalyzed"] == 3
    return said


def test_no_public_name_is_any(found: dict[str, dict[int, str]]) -> None:
    types = list(found["names.py"].values())
    assert len(types) == len(NAMES)
    known = [text for text in types if text.startswith("information: Type of ")]
    assert len(known) == len(types), set(types) - set(known)
    assert not [text for text in known if text.endswith(('is "Any"', 'is "Unknown"'))]


def test_every_mistake_is_seen_and_nothing_else(found: dict[str, dict[int, str]]) -> None:
    lines = (HERE / "mistakes.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, start=1) if "  # " in line}
    assert len(wrong) == 13
    assert set(found["mistakes.py"]) == wrong
    assert found["right.py"] == {}
