"""Emulators on disk: what comes back rolls as what was saved, and damage is named."""

from __future__ import annotations

import functools
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import tiny

from jaxrl_rollouts.errors import CheckpointError, ConfigError, DataError, UserError
from jaxrl_rollouts.pde.field import roll_emulator
from jaxrl_rollouts.pde.fieldset import Scaling
from jaxrl_rollouts.pde.files import from_arrays
from jaxrl_rollouts.pde.objectives import Mse, Refiner
from jaxrl_rollouts.pde.operators import Fno, Unet
from jaxrl_rollouts.pde.saved import load_emulator
from jaxrl_rollouts.pde.trained import TrainedEmulator

N, SEEDS = 8, 2
RESNET = tiny()
FNO = Fno(width=4, layers=1, modes=3, embedding=4)
ONE_STEP = Mse()
REFINER = Refiner(refinements=1)


def trained(network: Any, objective: Any, **more: Any) -> TrainedEmulator:
    """Two seeds of made-up weights, which need no compiling."""
    empty = TrainedEmulator(network, objective, 0.5, None, 1, N, **more)
    keys, rng = jax.random.split(jax.random.key(0), SEEDS), np.random.default_rng(1)
    shapes = jax.eval_shape(jax.vmap(empty.emulator.init), keys)
    params = jax.tree.map(lambda x: jnp.asarray(rng.normal(0, 0.3, x.shape), x.dtype), shapes)
    return replace(empty, params=params)


VISCOSITY = Scaling(0.5, 100.0)


def start(*lead: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(*lead, 1, N)).astype(np.float32)


@pytest.fixture(scope="module")
def seeing() -> TrainedEmulator:
    """One that sees a viscosity, of two seeds."""
    return trained(FNO, ONE_STEP, conditions={"viscosity": VISCOSITY}, dt=0.2)


@pytest.fixture
def folder(seeing: TrainedEmulator, tmp_path: Path) -> Path:
    return seeing.save(tmp_path / "run" / "emulator")


def test_a_loaded_emulator_rolls_as_the_saved_one(seeing: TrainedEmulator, folder: Path) -> None:
    loaded = load_emulator(folder.parent)
    assert (loaded.network, loaded.objective, loaded.dt) == (FNO, ONE_STEP, 0.2)
    options: Any = {"steps": 2, "key": 3, "conditions": {"viscosity": 0.53}, "seed": 1}
    rolled = loaded.roll(start(3), **options)
    np.testing.assert_array_equal(rolled, seeing.roll(start(3), **options))
    other = loaded.roll(start(3), **{**options, "seed": 0})
    assert rolled.shape == (2, 3, 1, N) and (rolled != other).any()
    # As they lie in an array of one channel, `[B, N]`, which what `fit` returns takes as well.
    np.testing.assert_array_equal(loaded.roll(start(3)[:, 0], **options), rolled)


def test_rolling_scales_conditions_as_training_does(seeing: TrainedEmulator) -> None:
    table = VISCOSITY(np.array([[0.51], [0.58]]))
    params = jax.tree.map(lambda x: x[0], seeing.params)
    roll = jax.jit(functools.partial(roll_emulator, seeing.emulator), static_argnums=4)
    expected = roll(params, start(2), jnp.asarray(table, jnp.float32), jax.random.key(0), 1)
    rolled = seeing.roll(start(2), 1, conditions={"viscosity": [0.51, 0.58]})
    np.testing.assert_allclose(rolled, expected, rtol=1e-5)


def test_trajectories_have_their_own_conditions(seeing: TrainedEmulator) -> None:
    fields = from_arrays(start(2, 3), conditions={"viscosity": [0.51, 0.58]})
    own = seeing.roll(fields, 1)
    given = {"viscosity": 0.55}
    with pytest.raises(ConfigError, match=r"conditions: found \['viscosity'\], expected none") as e:
        seeing.roll(fields, 1, conditions=given)
    assert "roll(emulator.start(fields)[0], ...)" in str(e.value)  # what to do instead
    assert (seeing.roll(seeing.start(fields)[0], 1, conditions=given) != own).any()


def test_conditions_outside_the_training_are_warned_about(seeing: TrainedEmulator) -> None:
    """PDE-Refiner's scaling takes viscosities from 0.5 to 0.6 to 0 to 10, and 1 to 50."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seeing.roll(start(2), 1, conditions={"viscosity": [0.5, 0.6]})
    named = (
        r"conditions.viscosity: found 0.55 to 1, expected 0.5 to 0.6, which networks get as 0 to 10"
    )
    with pytest.warns(UserWarning, match=named):
        seeing.roll(start(2), 1, conditions={"viscosity": [0.55, 1.0]})
    with pytest.warns(UserWarning, match="viscosity: found 0.2, expected 0.5 to 0.6"):
        seeing.roll(start(2), 1, conditions={"viscosity": 0.2})


@pytest.mark.parametrize(
    ("network", "objective"),
    [(RESNET, REFINER), (Unet(hidden=8, multipliers=(1,), blocks=1), ONE_STEP)],
)
def test_every_network_comes_back(network: Any, objective: Any, tmp_path: Path) -> None:
    saved = trained(network, objective)
    loaded = load_emulator(saved.save(tmp_path / "emulator"))
    assert (loaded.network, loaded.objective, loaded.dt) == (network, objective, None)
    for ours, theirs in zip(
        jax.tree.leaves(saved.params), jax.tree.leaves(loaded.params), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_one_field_and_a_history(tmp_path: Path) -> None:
    emulator = trained(FNO, ONE_STEP, history=2)
    loaded = load_emulator(emulator.save(tmp_path))
    one, many = loaded.roll(start(2), 2), loaded.roll(start(1, 2), 2)
    assert one.shape == (2, 1, N)
    np.testing.assert_array_equal(one, many[:, 0])


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("format", 7, "format: found 7, expected 2"),
        ("points", "8", "points: found '8', expected int or tuple"),
        ("seeds", 3, "does not fit"),
        ("network", {"transformer": {}}, "network: found ['transformer'], expected one of resnet"),
        ("network", {"fno": {"width": 4, "wide": 1}}, "wide: found 'an unknown setting'"),
        ("objective", None, "objective: found None, expected one of mse, pushforward"),
        (
            "conditions",
            {"viscosity": ["a", 1]},
            "conditions.viscosity[0]: found 'a', expected float",
        ),
        ("dt", "fast", "dt: found 'fast', expected float or null"),
        ("scale", [0.5, 0], "scale: found 0.0, expected above 0"),
        ("network", {"custom": "mine.Net"}, "expected it: load_emulator(folder, network=...)"),
        ("parameters", {"nu": 1}, "parameters.nu: found 1, expected tuple"),
        ("network", "a", ""),
        *((name, 3, "") for name in ("boundaries", "units", "constant")),
        *(("constant", wrong, "con") for wrong in ({"2": [0, 1]}, {"-1": [0, 1]}, {"0": "x"}, [1])),
        ("units", {"a": 1}, ""),
        *((name, 10**9, "") for name in ("channels", "history", "seeds")),
    ],
)
def test_damage_is_named(folder: Path, key: str, value: Any, words: str) -> None:
    file = folder / "emulator.json"
    facts = json.loads(file.read_text())
    file.write_text(json.dumps({**facts, key: value}))
    with pytest.raises(CheckpointError, match="damaged"):
        load_emulator(folder)
    del facts["digest"]
    file.write_text(json.dumps({**facts, key: value}))
    with pytest.raises(UserError) as error:
        load_emulator(folder)
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("initial", "options", "words"),
    [
        (start(3)[..., :4], {}, "shape: found [3, 1, 4], expected [1, 8] or [B, 1, 8]"),
        (np.full((1, N), np.nan), {}, "entry [0, 0]: found nan"),
        (start(), {"steps": 0}, "steps: found 0"),
        (start(), {"seed": 2}, "training seed: found 2, expected 0 to 1"),
        (start(), {"conditions": {}}, "conditions: found [], expected ['viscosity']"),
        (start(), {"conditions": {"viscosity": [1, 2]}}, "conditions.viscosity: found [1.0, 2.0]"),
    ],
)
def test_what_cannot_be_rolled(
    seeing: TrainedEmulator, initial: Any, options: Any, words: str
) -> None:
    given: Any = {"steps": 1, "conditions": {"viscosity": 0.5}, **options}
    with pytest.raises(UserError) as error:
        seeing.roll(initial, **given)
    assert words in str(error.value)


def test_scaling_is_the_savers(folder: Path) -> None:
    """A folder says how its conditions are scaled; a later library may scale others."""
    file = folder / "emulator.json"
    facts = json.loads(file.read_text())
    del facts["digest"]
    assert facts["conditions"] == {"viscosity": [0.5, 100.0]}
    file.write_text(json.dumps({**facts, "conditions": {"viscosity": [0.0, 1.0]}}))
    assert load_emulator(folder).conditions == {"viscosity": Scaling(0.0, 1.0)}


def test_more_steps_than_the_memory_holds_are_refused(seeing: TrainedEmulator) -> None:
    with pytest.raises(DataError, match=r"roll: 2,000,000,000 steps: .*expected at most"):
        seeing.roll(start(8), 2_000_000_000, conditions={"viscosity": 0.5})
