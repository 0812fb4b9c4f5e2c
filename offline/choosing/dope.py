"""Policies as DOPE and D4RL publish them (Fu et al. 2021, arXiv:2103.16596): weights by name.

    fc0/weight [H, S]  fc0/bias [H]  fc1/weight [H, H]  fc1/bias [H]
    last_fc/weight, last_fc_log_std/weight [A, H]  last_fc/bias, last_fc_log_std/bias [A]
    nonlinearity: relu or tanh      output_distribution: tanh_gaussian or gaussian

Read from an `.npz` with these names, or from `metadata/policy` of a D4RL file in HDF5, whose
behaviour it is. DOPE's own files are pickles, which run code when they are read: they are never
opened here, and the error says how to convert those that are trusted.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.hdf5 import open_hdf5, read_array
from jaxrl_rollouts.numpy_files import read_npz
from jaxrl_rollouts.trees import PyTree

from ..agents.actors import INSIDE, log_prob
from ..method import Agent
from ..saved_policies import SavedPolicy
from .policies import no_training

ENDINGS = (".npz", ".hdf5", ".h5", ".pkl", ".pickle")
LAYERS = ("fc0", "fc1", "last_fc", "last_fc_log_std")
PARTS = {"weight": 2, "bias": 1}  # axes
GROUP = "metadata/policy"
CONVERT = 'numpy.savez("policy.npz", **pickle.load(open("policy.pkl", "rb"))), of files you trust'


def read_dope_policy(file: str | Path) -> SavedPolicy:
    """A published policy for `choose`: actions are drawn or mean ones, and have a density.

    Args:
        file: `.npz`, or a D4RL file in HDF5.

    Raises:
        DataError: a pickle, weights that are missing or do not fit, another nonlinearity.
    """
    path = Path(file)
    if path.suffix in (".pkl", ".pickle"):
        raise DataError(path, "policy", "a pickle, which runs code when read", "an .npz", CONVERT)
    found = read_npz(path) if path.suffix == ".npz" else _of_hdf5(path)
    weights = {
        layer: {
            part: _numbers(path, found, f"{layer}/{part}", axes) for part, axes in PARTS.items()
        }
        for layer in LAYERS
    }
    width, size = weights["fc0"]["weight"].shape
    acts = len(weights["last_fc"]["weight"])
    for layer, shape in zip(
        LAYERS, ((width, size), (width, width), *[(acts, width)] * 2), strict=True
    ):
        for part, expected in (("weight", shape), ("bias", shape[:1])):
            if (here := weights[layer][part].shape) != expected:
                raise DataError(path, f"{layer}/{part}", f"shape {here}", f"{expected}")
    kinds = (
        _text(path, found, "nonlinearity", ("relu", "tanh")),
        _text(path, found, "output_distribution", ("tanh_gaussian", "gaussian")),
    )
    facts: dict[str, Any] = {"method": path.stem, "agent": {"discount": None}, "seeds": 1}
    facts |= {"observation_size": size, "action_size": acts, "environment": None}
    actors = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32)[None], weights)
    return SavedPolicy(_agent(*kinds), actors, facts)


def _of_hdf5(path: Path) -> dict[str, np.ndarray]:
    names = [f"{layer}/{part}" for layer in LAYERS for part in PARTS]
    with open_hdf5(path) as file:
        every = [*names, "nonlinearity", "output_distribution"]
        return {name: read_array(path, file, f"{GROUP}/{name}") for name in every}


def _numbers(path: Path, found: dict[str, np.ndarray], name: str, axes: int) -> np.ndarray:
    values = found.get(name)
    if values is None:
        raise DataError(path, name, f"only {', '.join(sorted(found)[:8])}", "a policy's weights")
    if values.ndim != axes or values.dtype.kind != "f" or not np.isfinite(values).all():
        expected = f"finite numbers on {axes} axes"
        raise DataError(path, name, f"{values.dtype} of shape {values.shape}", expected)
    return values


def _text(path: Path, found: dict[str, np.ndarray], name: str, known: tuple[str, ...]) -> Any:
    value = np.asarray(found.get(name, "")).reshape(-1)
    word = value[0].decode() if len(value) and isinstance(value[0], bytes) else str(*value[:1])
    if word not in known:
        raise DataError(path, name, repr(word), f"one of {', '.join(known)}")
    return word


@functools.lru_cache(maxsize=4)
def _agent(kind: Literal["relu", "tanh"], output: Literal["tanh_gaussian", "gaussian"]) -> Agent:
    """`a = tanh(mean + exp(log_std) n)`, or without the tanh."""
    bend, squash = jax.nn.relu if kind == "relu" else jnp.tanh, output == "tanh_gaussian"

    def heads(actor: PyTree, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
        def layer(name: str, x: jax.Array) -> jax.Array:
            return x @ actor[name]["weight"].T + actor[name]["bias"]

        x = bend(layer("fc1", bend(layer("fc0", seen))))
        return layer("last_fc", x), layer("last_fc_log_std", x)

    def shown(action: jax.Array) -> jax.Array:
        return jnp.tanh(action) if squash else action

    def greedy(actor: PyTree, key: jax.Array, seen: jax.Array, memory: PyTree) -> tuple:
        return shown(heads(actor, seen)[0]), memory

    def policy(actor: PyTree, key: jax.Array, seen: jax.Array, memory: PyTree) -> tuple:
        mean, log_std = heads(actor, seen)
        return shown(mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape)), memory

    def density(actor: PyTree, seen: jax.Array, actions: jax.Array) -> jax.Array:
        mean, log_std = heads(actor, seen)
        if squash:
            return log_prob(jnp.clip(actions, -INSIDE, INSIDE), mean, log_std, "exact")
        return jax.scipy.stats.norm.logpdf(actions, mean, jnp.exp(log_std)).sum(-1)

    return Agent(no_training, no_training, policy, greedy, density=density)
