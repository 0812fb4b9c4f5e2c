"""MuJoCo Playground's environments in MJX, vectorised inside the compiled program.

Zakka et al. 2025, arXiv:2502.08844. Those of the DeepMind control suite are in its package; robots
of `locomotion` and `manipulation` are downloaded by it, once.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

import jax

from jaxrl_rollouts.errors import ConfigError, MissingExtraError

from .base import Environment, unknown_name
from .brax_ import on_device

ENGINES = ("jax", "warp")


def playground_environment(name: str, impl: str = "jax") -> Environment:
    """`playground/<name>` as an `Environment`; its time limit is the one Playground gives it.

    Args:
        name: `CartpoleBalance`, `CheetahRun`, `Go1JoystickFlatTerrain`, ...
        impl: engine of MJX: `jax` runs anywhere, `warp` on NVIDIA GPUs.
    """
    if impl not in ENGINES:
        raise ConfigError("impl", impl, f"one of {', '.join(ENGINES)}")
    try:
        from mujoco_playground import registry
    except ImportError as error:
        what, package = "MuJoCo Playground's environments", error.name or "playground"
        raise MissingExtraError(what, package, "playground") from error
    if name not in registry.ALL_ENVS:
        raise unknown_name(f"playground/{name}", [f"playground/{x}" for x in registry.ALL_ENVS])
    simulator = registry.load(name, config_overrides={"impl": impl})
    version = f"playground {importlib.metadata.version('playground')}, mjx {impl}"
    limit = int(registry.get_default_config(name).episode_length)
    return on_device(f"playground/{name}", simulator, limit, version, seen=policy_sees)


def policy_sees(observations: Any) -> jax.Array:
    """`[..., S]`: of robots that show a critic more, what they show a policy."""
    return observations["state"] if isinstance(observations, dict) else observations
