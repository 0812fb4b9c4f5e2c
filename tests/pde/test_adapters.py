"""Networks, objectives and layouts of one's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts import pde, registry
from jaxrl_rollouts.errors import CheckpointError, ConfigError, DataError
from jaxrl_rollouts.networks import Network
from jaxrl_rollouts.pde.adapters import built
from jaxrl_rollouts.pde.emulator import Emulator, FieldNetwork, FieldShape, Scale
from jaxrl_rollouts.pde.fieldset import FieldSet
from jaxrl_rollouts.pde.registries import LAYOUTS, NETWORKS, OBJECTIVES

N = 8
QUICK = pde.Training(steps=2, batch=2, warmup=0, per_iteration=1)
ALL = slice(None)


def waves() -> np.ndarray:
    """Two channels `[4, 6, 2, 8]` that move a point a frame."""
    x = np.arange(N) - np.arange(6)[:, None] + np.arange(4)[:, None, None]
    both = np.stack([np.sin(2 * np.pi * x / N), np.cos(4 * np.pi * x / N)], 2)
    return both.astype(np.float32)


class Mixed(nn.Module):
    """Channels last: two layers at every point and its neighbours."""

    channels: int = 2

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        assert x.shape == (N, 2 * 2 + 1 + 1)  # frame, second input, one condition, index
        x = jnp.concatenate([x, jnp.roll(x, 1, 0), jnp.roll(x, -1, 0)], -1)
        return nn.Dense(self.channels)(nn.tanh(nn.Dense(16)(x)))


def equinox() -> Network:
    eqx = pytest.importorskip("equinox")

    class Net(eqx.Module):
        layer: Any

        def __init__(self, key: jax.Array) -> None:
            self.layer = eqx.nn.Conv1d(6, 2, 3, padding=1, padding_mode="CIRCULAR", key=key)

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.layer(x)

    return pde.from_equinox(Net)


def functions() -> Network:
    def init(key: jax.Array) -> Any:
        return jax.random.normal(key, (6, 2)) / 3

    return Network(init, lambda params, x: x @ params)


def field_network() -> FieldNetwork:
    def apply(params: Any, u: Any, noised: Any, index: Any, conditions: Any) -> jax.Array:
        return params * u + noised + conditions[0]

    return FieldNetwork(lambda key: jax.random.normal(key, ()), apply)


OWN = {"linen": Mixed, "equinox": equinox, "functions": functions, "field": field_network}


@pytest.mark.parametrize(
    ("name", "objective"), [*((name, "mse") for name in OWN), ("linen", "refiner")]
)
def test_a_network_of_ones_own_trains_rolls_saves_and_loads(
    name: str, objective: str, tmp_path: Path
) -> None:
    network, u = OWN[name](), waves()
    fields = pde.from_arrays(u, dt=0.5, conditions={"nu": np.linspace(1, 2, 4)})
    given: Any = tuple(network) if name == "functions" else network
    fitted = pde.fit(objective, fields, network=given, training=QUICK, seeds=2)
    before = pde.fit(objective, fields, network=given, training=QUICK, seeds=2, key=1).params
    moved = [
        (a != b).any() for a, b in zip(*map(jax.tree.leaves, (fitted.params, before)), strict=True)
    ]
    assert all(moved)
    rolled = fitted.roll(fields, 3, seed=1)
    assert rolled.shape == (3, 4, 2, N) and np.isfinite(rolled).all()
    folder = fitted.save(tmp_path / "emulator")
    assert list(json.loads((folder / "emulator.json").read_text())["network"]) == ["custom"]
    with pytest.raises(CheckpointError, match=r"network: found .*load_emulator\(folder, network="):
        pde.load_emulator(folder)
    again = pde.load_emulator(folder, network=given)
    np.testing.assert_array_equal(again.roll(fields, 3, seed=1), rolled)


def test_a_module_sees_planes_of_conditions_and_index() -> None:
    net = built(Network(lambda key: {}, lambda params, x: x[..., -2:]), FieldShape(2, (2, 3), 1))
    u = jnp.zeros((2, 2, 3))
    out = net.apply({}, u, u, 500.0, jnp.array([7.0]))
    np.testing.assert_array_equal(out[0], 7.0)
    np.testing.assert_array_equal(out[1], 0.5)


class Running(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.BatchNorm(use_running_average=True)(x)[..., :2]


class Listed(nn.Module):
    widths: Any = ()

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(2)(x)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (3, "network: found 'int', expected a name, settings"),
        (Mixed, "found 'Mixed', expected .*network=MyNetwork()"),
        (Mixed(channels=1), r"output \[8, 1\]', expected \[8, 2\]"),
        (Running(), "variables batch_stats', expected parameters only"),
        (Listed(np.zeros(2)), "expected one whose attributes are hashable"),
        ("uunet", "did you mean unet"),
    ],
)
def test_what_is_no_network_is_refused_in_one_line(network: Any, words: str) -> None:
    fields = pde.from_arrays(waves(), conditions={"nu": np.linspace(1, 2, 4)})
    with pytest.raises(ConfigError, match=words) as error:
        pde.fit("mse", fields, network=network, training=QUICK)
    assert "\n" not in str(error.value)


def test_what_is_no_objective_or_field_is_refused_in_one_line() -> None:
    for objective, words in ((3, "found 'int'"), (pde.Mse, r"give an object of it: Mse\(\)")):
        with pytest.raises(ConfigError, match=words):
            pde.fit(objective, waves(), training=QUICK)  # type: ignore[arg-type]
    rows: Any = SimpleNamespace(transitions=())
    with pytest.raises(ConfigError, match=r"fields: found .*expected fields: pde.read"):
        pde.fit("mse", rows, training=QUICK)


@dataclass(frozen=True)
class Line:
    """A network of another package: a number times the field."""

    factor: float = 0.5

    def make(self, shape: FieldShape) -> FieldNetwork:
        factor = self.factor

        def apply(params: Any, u: Any, noised: Any, index: Any, conditions: Any) -> jax.Array:
            return factor * params * u[-shape.channels :]

        return FieldNetwork(lambda key: jax.random.normal(key, ()), apply, shape.history)


@dataclass(frozen=True)
class Absolute:
    """An objective of another package: the mean absolute error."""

    def make(self, net: FieldNetwork, scale: Scale) -> Emulator:
        one = pde.Mse().make(net, scale)

        def loss(params: Any, key: Any, window: Any, conditions: Any) -> Any:
            step = one.step(params, key, window[0], conditions)
            return jnp.abs(step - window[1]).mean(), {}

        return one._replace(loss=loss)


class Text:
    """A layout of another package: numbers of one trajectory, a frame a line."""

    @staticmethod
    def matches(path: Path, file: Any) -> bool:
        return file is None and path.suffix == ".frames"

    @staticmethod
    def read(path: Path) -> FieldSet:
        lines = np.loadtxt(path)
        return pde.from_arrays(lines[None], dt=0.5, source=path)


def test_other_packages_bring_networks_objectives_and_layouts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = {
        NETWORKS.group: {"line": "Line"},
        OBJECTIVES.group: {"absolute": "Absolute"},
        LAYOUTS.group: {"text": "Text", "broken": "Nowhere"},
    }

    def entries(group: str) -> dict[str, metadata.EntryPoint]:
        return {
            name: metadata.EntryPoint(name, f"{__name__}:{kind}", group)
            for name, kind in found[group].items()
        }

    file = tmp_path / "one.frames"
    np.savetxt(file, waves()[0, :, 0])
    with pytest.raises(DataError, match="layout: found .*a file that begins"):
        pde.read(file)
    monkeypatch.setattr(registry, "entries", entries)
    fields = pde.read(file)
    assert fields.shape == (1, 6, 1, N)
    fitted = pde.fit("absolute", file, network="line", training=QUICK)
    rolled = fitted.roll(fields, 2)
    facts = json.loads((fitted.save(tmp_path / "emulator") / "emulator.json").read_text())
    assert facts["network"] == {"line": {"factor": 0.5}} and facts["objective"] == {"absolute": {}}
    np.testing.assert_array_equal(pde.load_emulator(tmp_path).roll(fields, 2), rolled)
    with pytest.raises(ConfigError, match="layout broken: found .*Nowhere.*a class to import"):
        pde.read(Path(__file__))


def test_no_public_function_has_the_name_of_a_module() -> None:
    """Importing the module would put it in the function's place."""
    folder = Path(pde.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")}
    hidden = [name for name in pde.__all__ if name in modules and callable(getattr(pde, name))]
    assert not hidden
