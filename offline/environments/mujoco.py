"""Gymnasium's MuJoCo environments: copies on the host that share one compiled model."""

from __future__ import annotations

import copy
import importlib.metadata
import re
import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError, MissingExtraError

from .base import Environment, EnvironmentState, rescale, unknown_name
from .host import Copies, enter, host_environment
from .terminations import PLACED, family, known_rule, never

# Observations that are (qpos without `skipped` leading entries, qvel) unclipped: they determine
# the state up to a translation the dynamics do not see.
SKIPPED_POSITIONS = {"ant": 2, "halfcheetah": 1, "invertedpendulum": 0, "swimmer": 2}
# The same, with velocities clipped to +-VELOCITY_LIMIT.
CLIPPED = {"hopper": 1, "walker2d": 1}
VELOCITY_LIMIT = 10.0
ENDLESS = "terminate_when_unhealthy=false"


class Simulators(Copies):
    """Copies of a MuJoCo environment; they may begin from any positions and velocities."""

    def __init__(self, env: Any, max_episode_steps: int) -> None:
        super().__init__(env, self._twin, max_episode_steps)
        self.apart: Any = None  # the copy that `transition` steps, made at its first use

    def _twin(self) -> Any:
        import mujoco

        twin = copy.copy(self.copies[0])  # shares the compiled model, which is constant
        twin.data = mujoco.MjData(twin.model)  # pyright: ignore[reportAttributeAccessIssue]
        return twin

    def reset_to(self, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Observations and stamps of episodes from given positions and velocities."""
        import mujoco

        qpos, qvel = np.asarray(qpos, np.float64), np.asarray(qvel, np.float64)
        observations = []
        for env, position, velocity in zip(self.rows(len(qpos)), qpos, qvel, strict=True):
            mujoco.mj_resetData(env.model, env.data)  # pyright: ignore[reportAttributeAccessIssue]
            env.set_state(position, velocity)
            observations.append(env._get_obs())
        return self.start(observations)

    def transition(
        self, qpos: np.ndarray, qvel: np.ndarray, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One step from each of `[..., Q]` positions and `[..., V]` velocities: observations
        `[..., S]`, rewards and terminations `[...]`. No episode is touched by it."""
        import mujoco

        if self.apart is None:
            self.apart = self._twin()
        env, rows = self.apart, qpos.shape[:-1]
        arrays = (np.asarray(x, np.float64).reshape(-1, x.shape[-1]) for x in (qpos, qvel, actions))
        found, count = [], int(np.prod(rows))
        rewards, terminated = np.zeros(count, np.float32), np.zeros(count, bool)
        for row, (position, velocity, action) in enumerate(zip(*arrays, strict=True)):
            mujoco.mj_resetData(env.model, env.data)  # pyright: ignore[reportAttributeAccessIssue]
            env.set_state(position, velocity)
            seen, rewards[row], terminated[row], *_ = env.step(action)
            found.append(seen)
        seen = np.asarray(found, np.float32).reshape(*rows, -1)
        return seen, rewards.reshape(rows), terminated.reshape(rows)


def _say(message: str) -> None:
    # Left to itself MuJoCo repeats each warning for every model and keeps a MUJOCO_LOG.TXT in the
    # user's folder. What an XML file of Gymnasium's calls deprecated is nothing a user can change.
    if "deprecated" not in message:
        print(f"warning: MuJoCo: {message}", file=sys.stderr, flush=True)


def make_gymnasium(name: str, **options: Any) -> Any:
    """Gymnasium's own environment of this id, or of the version that took its place."""
    try:
        import gymnasium
        import mujoco
    except ImportError as error:
        raise MissingExtraError(
            "MuJoCo environments", error.name or "gymnasium", "mujoco"
        ) from error
    mujoco.set_mju_user_warning(_say)  # pyright: ignore[reportAttributeAccessIssue]
    known = mujoco_ids(gymnasium.registry)
    stem, _, version = name.rpartition("-v")
    # What D4RL calls v2 (its v0 to v2 data) runs on mujoco-py, which Gymnasium has no more; version
    # 4 has the same observations, rewards and endings. Later Gymnasiums may drop that, too.
    wanted = {"2": "4", "3": "4"}.get(version, version)
    for candidate in (f"{stem}-v{wanted}", f"{stem}-v5" if wanted == "4" else name):
        if candidate in known:
            break
    else:
        raise unknown_name(f"mujoco/{name}", [f"mujoco/{k}" for k in known if k[-1] in "45"])
    # Ant's 111 observations (84 of them contact forces) are 27 in version 4 unless requested.
    forces = stem == "Ant" and version in ("2", "3") and candidate.endswith("v4")
    options |= {"use_contact_forces": True} if forces else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # version 4 is what D4RL-like data come from
            return gymnasium.make(candidate, disable_env_checker=True, **options)
    except ImportError as error:
        found = str(error).splitlines()[0]
        raise ConfigError(f"environment mujoco/{name}", found, "version 4 or 5") from error
    except TypeError as error:
        if not options:
            raise
        raise ConfigError(f"environment mujoco/{name}", [*options], "no options") from error


def label_of(made: Any, name: str) -> tuple[str, str]:
    """The name that finds a made environment again, and its versions; `name` is what it was."""
    found = made.spec.id
    packages = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in ("gymnasium", "mujoco"))
    instead = "" if found == name else f" in place of {name}"
    forces = made.spec.kwargs.get("use_contact_forces", False)
    instead = " with contact forces" * forces + instead
    label = f"mujoco/{name if forces else found}"
    options = []
    if not made.spec.kwargs.get("terminate_when_unhealthy", True):
        options.append(ENDLESS)
        instead += ", where a fall ends nothing"
    if not made.spec.kwargs.get("exclude_current_positions_from_observation", True):
        options.append(PLACED)
        instead += ", with the positions along the floor"
    return "?".join(
        [label, *(["&".join(options)] * bool(options))]
    ), f"{found}{instead}, {packages}"


def mujoco_ids(registry: Any) -> list[str]:
    """Those of Gymnasium's registry that are its own MuJoCo environments."""
    own = re.compile(r"gymnasium\.envs\.mujoco[.:]")
    return [key for key, spec in registry.items() if own.match(str(spec.entry_point))]


def _switched_off(name: str, **options: str | bool) -> dict[str, bool]:
    """Those of an environment's options that are false."""
    for option, value in options.items():
        if str(value).lower() not in ("true", "false"):
            raise ConfigError(f"environment {name}: {option}", value, "true or false")
    return {key: False for key, value in options.items() if str(value).lower() == "false"}


def mujoco_environment(
    name: str,
    terminate_when_unhealthy: str | bool = True,
    exclude_current_positions_from_observation: str | bool = True,
) -> Environment:
    """`mujoco/<name>` as a host `Environment`: version 4 for 2 and 3, and 5 where 4 is gone.

    `Ant-v2` and `Ant-v3` see the contact forces, as D4RL's data do, and keep their name.

    Each call has simulators of its own. One batch is alive at a time: a reset ends the last.

    Args:
        terminate_when_unhealthy: false (as a query: `Hopper-v4?terminate_when_unhealthy=false`)
            lets episodes continue after a fall, where there is no reward for being upright.
        exclude_current_positions_from_observation: false puts the positions along the floor first,
            as NeoRL's observations have them.
    """
    off = _switched_off(
        name,
        terminate_when_unhealthy=terminate_when_unhealthy,
        exclude_current_positions_from_observation=exclude_current_positions_from_observation,
    )
    endless = "terminate_when_unhealthy" in off
    made = make_gymnasium(name, **off)
    found, env = made.spec.id, made.unwrapped
    size = env.observation_space.shape[0]
    host = Simulators(env, made.spec.max_episode_steps)

    def reset_to(qpos: jax.Array, qvel: jax.Array) -> EnvironmentState:
        return enter(host.reset_to, size, qpos.shape[0], qpos, qvel)

    kind = family(found.rsplit("-", 1)[0])
    placed = "exclude_current_positions_from_observation" in off
    skipped = 0 if placed else SKIPPED_POSITIONS.get(kind, CLIPPED.get(kind, 0))
    bare = size == env.model.nq - skipped + env.model.nv  # Ant may show contact forces, too
    hides, determined = kind in CLIPPED, kind in SKIPPED_POSITIONS and bare

    def positions(observation: jax.Array) -> tuple[jax.Array, jax.Array]:
        origin = jnp.zeros((observation.shape[0], skipped), observation.dtype)
        split = env.model.nq - skipped
        return jnp.concatenate([origin, observation[:, :split]], 1), observation[:, split:]

    def set_observation(observation: jax.Array) -> EnvironmentState:
        return reset_to(*positions(observation))

    low, high = env.action_space.low, env.action_space.high

    def transition(observation: jax.Array, action: jax.Array) -> tuple:
        flat = observation.shape[:1]
        shapes = ((*flat, size), jnp.float32), (flat, jnp.float32), (flat, bool)
        result = tuple(jax.ShapeDtypeStruct(*each) for each in shapes)
        scaled = jnp.clip(rescale(action, jnp.asarray(low), jnp.asarray(high)), low, high)
        return jax.pure_callback(
            host.transition, result, *positions(observation), scaled, vmap_method="broadcast_all"
        )

    label, version = label_of(made, name)
    return host_environment(
        host,
        label,
        size,
        low,
        high,
        version,
        termination=never if endless else known_rule(kind, size),
        reset_to=reset_to,
        set_observation=set_observation if determined else None,
        transition=transition if determined else None,
        clipped_transition=transition if hides else None,
    )
