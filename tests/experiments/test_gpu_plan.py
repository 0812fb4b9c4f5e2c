"""What the tour of a GPU says of its stops: that they are runs, and how much memory they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxrl_rollouts.cli.options import check_options, parse_run
from jaxrl_rollouts.compare.costs import planned_bytes
from jaxrl_rollouts.configs import settings
from jaxrl_rollouts.diffusion import make_denoiser
from jaxrl_rollouts.diffusion.networks import make_residual_mlp
from jaxrl_rollouts.diffusion.training import make_denoiser_training
from jaxrl_rollouts.diffusion.unet import make_temporal_unet
from jaxrl_rollouts.experiments.catalogue import LISTINGS
from jaxrl_rollouts.experiments.gpu_plan import EXTRAS, PRESET, STOPS, Stop, stops_markdown
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.data import CATALOGUE, MADE_DATASETS, Transitions
from jaxrl_rollouts.offline.neubay.config import Sizes, ring_bytes
from jaxrl_rollouts.pde.fieldset import Fields
from jaxrl_rollouts.pde.study.train import make_emulator
from jaxrl_rollouts.pde.training import make_training
from jaxrl_rollouts.plugins import load_experiment

BY_NAME = {stop.name: stop for stop in STOPS}


def config_of(name: str) -> Any:
    return load_experiment(name).preset(PRESET)


def per_seed(training: Any, seeds: int, data: Any) -> int:
    """Bytes of a gradient step of all seeds, by XLA's plan on this machine."""
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), seeds))
    state = jax.eval_shape(jax.vmap(training.init, (0, None)), keys, data)
    update = jax.jit(jax.vmap(training.update, (0, None)), donate_argnums=0)
    return planned_bytes(update.lower(state, data).compile())


def numbers(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def of_fields(name: str) -> float:
    """PDE-Refiner's gradient step, with a GPU's form of convolutions."""
    config = config_of(name)
    study = replace(config.study, resnet=replace(config.study.resnet, form="conv"))
    emulator = make_emulator("refiner", study, config.refiner)
    training = make_training(emulator, replace(study.training, every=study.every))
    solved = study.train
    data = Fields(
        numbers(solved.trajectories, solved.frames, 1, study.points),
        numbers(solved.trajectories, len(study.conditions)),
    )
    return per_seed(training, study.seeds, data)


def of_rows(name: str) -> float:
    """A gradient step of the denoisers, and all seeds' samples beside what they are made from."""
    config = config_of(name)
    features = 2 * 17 + 6 + 2
    denoiser = make_denoiser(make_residual_mlp(config.synther.network, features))
    training = make_denoiser_training(denoiser, config.synther.training)
    step = per_seed(training, config.seeds, numbers(100_000, features))
    return step + 2 * 4.0 * config.seeds * config.samples * features


def of_windows(name: str) -> float:
    """A gradient step of the U-Nets on half-cheetah's windows."""
    config = config_of(name)
    seeds, case, length = 1, config, getattr(config, "length", 32)
    if name == "pgd_vs_world_model":
        seeds, case, length = config.seeds, config.mujoco, config.horizon
    unet = replace(case.unet, convolution="native")
    training = case.training if name == "pgd_vs_world_model" else case.unet_training
    denoiser = make_denoiser(make_temporal_unet(unet, length, 17 + 6 + 2))
    windows = numbers(100_000 // 8, length, 25)
    return per_seed(make_denoiser_training(denoiser, training), seeds, windows)


def of_rings(name: str) -> float:
    """All seeds' token rings, twice: a ring is copied where it is not donated."""
    config = config_of(name)
    sizes = Sizes(17, 6, 1000, 1000)
    return 2.0 * config.study.seeds * ring_bytes(config.neubay.agent, sizes)


def of_critics(name: str) -> float:
    """Gradient steps of RAVL's critics on half-cheetah's rows, and all seeds' imagined rows, twice:
    the ring is copied where it is not donated."""
    config = config_of(name)
    agent, rollouts, seeds = config.free.agents.edac, config.study.rollouts, config.study.seeds
    learner = make_model_free(agent, 17, 6, updates_per_iteration=config.free.per_iteration)
    n = 100_000
    ends = jax.ShapeDtypeStruct((n,), jnp.bool_)
    rows = Transitions(numbers(n, 17), numbers(n, 6), numbers(n), numbers(n, 17), ends, ends)
    imagined = rollouts.epochs_retained * rollouts.rollouts_per_epoch * rollouts.horizon
    return per_seed(learner, seeds, rows) + 2 * 4.0 * seeds * imagined * (2 * 17 + 6 + 3)


PLANS: dict[str, Callable[[str], float]] = {
    "ks_refiner": of_fields,
    "ks_conditional": of_fields,
    "synther_small_data": of_rows,
    "pgd_vs_world_model": of_windows,
    "pgd_agents": of_windows,
    "neubay_mujoco": of_rings,
    "ravl_mujoco": of_critics,
}


def test_every_preset_for_a_gpu_is_a_stop() -> None:
    assert sorted(BY_NAME) == sorted(n for n, each in LISTINGS.items() if PRESET in each.minutes)
    assert len(BY_NAME) == len(STOPS)


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.name)
def test_a_stop_is_a_run_of_datasets_that_anyone_can_make(stop: Stop) -> None:
    _, name, *options = stop.arguments(PRESET)
    experiment = load_experiment(name)
    _, config, _ = parse_run(experiment, options)
    check_options(config)
    words = {word for value in settings(config).values() for word in words_of(value)}
    assert words & {*CATALOGUE} == set()
    assert words & set(MADE_DATASETS) == set(stop.datasets)
    assert settings(config).keys() == settings(experiment.preset(PRESET)).keys()
    assert {need for need in LISTINGS[name].needs.get(PRESET, ()) if " " in need} <= set(EXTRAS)


def words_of(value: Any) -> list[str]:
    if isinstance(value, tuple):
        return [word for item in value for word in words_of(item)]
    return [value] if isinstance(value, str) else []


def test_what_is_missing_is_named_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAXRL_ROLLOUTS_DATA", str(tmp_path))
    assert BY_NAME["ks_refiner"].missing(PRESET) == ""
    missing = BY_NAME["neubay_mujoco"].missing(PRESET)
    assert missing.count("make it with: jaxrl-rollouts data make ") == 4
    assert "hopper-random" in BY_NAME["neubay_mujoco"].missing("smoke"), "another preset's own"
    (tmp_path / "halfcheetah-mixed.hdf5").touch()
    assert BY_NAME["synther_small_data"].missing(PRESET) == ""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'jaxrl-rollouts[pde]'" in BY_NAME["ks_refiner"].missing(PRESET)
    assert "pip install 'jaxrl-rollouts[mujoco]'" in BY_NAME["synther_small_data"].missing(PRESET)


def test_choices_of_the_paper_hold_for_sets_of_the_same_kind() -> None:
    """NEUBAY's settings of a dataset are those of the one that stands in for it."""
    _, _, *options = BY_NAME["neubay_mujoco"].arguments(PRESET)
    _, config, _ = parse_run(load_experiment("neubay_mujoco"), options)
    for made, given in zip(config.datasets, config_of("neubay_mujoco").datasets, strict=True):
        assert config.arms(made)["neubay"] == config.arms(given)["neubay"]
    assert not config.arms("hopper-mixed")["neubay"].agent.learn_alpha


def test_the_page_has_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "pages" / "howto" / "gpu_tour.md"
    table = page.read_text().split("<!-- stops -->\n")[1].split("<!-- end -->")[0]
    assert table == stops_markdown()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PLANS))
def test_memory_is_that_of_the_plans_with_room(name: str) -> None:
    """With half as much again for rollouts and evaluations at least, and not six times as much
    where it is much at all."""
    planned = PLANS[name](name) / 1e9
    assert 1.5 * planned <= BY_NAME[name].gigabytes <= max(6 * planned, 8.0), planned
