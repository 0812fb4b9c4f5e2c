"""Any Gymnasium environment of vectors: Box observations, bounded Box actions, on the host."""

from __future__ import annotations

import copy
import importlib.metadata
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import ConfigError, MissingExtraError, one_line

from .base import Environment, unknown_name
from .host import Copies, host_environment

SCOPE = "only vectors of real numbers are supported, as observations and as actions"


def registry() -> dict[str, Any]:
    """Gymnasium's registered environments; none where it is not installed."""
    try:
        import gymnasium
    except ImportError:
        return {}
    return dict(gymnasium.registry)


def from_gymnasium(
    env: Any, *, name: str | None = None, max_episode_steps: int | None = None
) -> Environment:
    """A Gymnasium environment as a host `Environment`.

    Copies of it are stepped one after the other on the host, a batch at a time; actions in [-1, 1]
    are rescaled to its bounds. Keep what this returns: each call has copies of its own, for which
    everything compiles anew.

    Args:
        env: an id that Gymnasium knows, an environment, or a function of no arguments that makes
            one. Copies of an environment are made by its registered id, else by `copy.deepcopy`.
        name: to call it by; the default is `gymnasium/<id>`, else the name of its class.
        max_episode_steps: time limit; the default is that of its registration, or of a
            `gymnasium.wrappers.TimeLimit` around it.

    Raises:
        MissingExtraError: gymnasium is not installed.
        ConfigError: an unknown id, spaces of other kinds, or no time limit.
    """
    make = _maker(env)
    first = _called(make, name or env) if isinstance(env, str) or callable(env) else env
    unwrapped, spec = first.unwrapped, first.spec
    label = name or (f"gymnasium/{spec.id}" if spec is not None else type(unwrapped).__name__)
    low, high = _check_spaces(label, first)
    limit = max_episode_steps or _time_limit(first)
    if limit is None:
        hint = f"give max_episode_steps, or in a name: {label}?max_episode_steps=200"
        raise ConfigError(f"environment {label}", "no time limit", "one", hint)
    module = type(unwrapped).__module__.split(".")[0]
    version = f"{label} of {module}, gymnasium {importlib.metadata.version('gymnasium')}"
    host = Copies(first, make, int(limit))
    size = first.observation_space.shape[0]
    return host_environment(host, label, size, low, high, version)


def _maker(env: Any) -> Callable[[], Any]:
    """A function that makes another environment like this."""
    try:
        import gymnasium
    except ImportError as error:
        missing = error.name or "gymnasium"
        raise MissingExtraError("Gymnasium environments", missing, "gymnasium") from error
    if callable(env):
        return env
    if not isinstance(env, str | gymnasium.Env):
        expected = "an id, a gymnasium.Env, or a function that makes one"
        raise ConfigError("environment", type(env).__name__, expected)
    if isinstance(env, str) and env not in gymnasium.registry and ":" not in env:
        raise unknown_name(env, gymnasium.registry)
    known = env if isinstance(env, str) else env.spec
    if known is None:
        return lambda: copy.deepcopy(env)

    def again() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions, and of spaces that are checked here
            return gymnasium.make(known, disable_env_checker=True)

    return again


def _called(make: Callable[[], Any], label: Any) -> Any:
    from gymnasium.error import Error

    try:
        return make()
    except (ImportError, Error) as error:
        found = one_line(error)
        raise ConfigError(f"environment {label}", found, "one that can be made") from error


def _time_limit(env: Any) -> int | None:
    import gymnasium

    if env.spec is not None and env.spec.max_episode_steps is not None:
        return env.spec.max_episode_steps
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            return env._max_episode_steps
        env = env.env
    return None


def _check_spaces(name: str, env: Any) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of the actions, `[A]` each; `ConfigError` for what is not supported."""
    import gymnasium

    setting = f"environment {name}"
    for kind, space in (("observations", env.observation_space), ("actions", env.action_space)):
        if not isinstance(space, gymnasium.spaces.Box):
            hint = SCOPE
            if kind == "observations":
                hint += "; gymnasium.wrappers.FlattenObservation makes them of dictionaries"
            raise ConfigError(setting, f"{type(space).__name__} {kind}", f"Box {kind}", hint)
        if len(space.shape) != 1 or 0 in space.shape:
            raise ConfigError(setting, f"{kind} of shape {space.shape}", "one axis", SCOPE)
    low, high = env.action_space.low, env.action_space.high
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        hint = "gymnasium.wrappers.RescaleAction and ClipAction can give it some"
        raise ConfigError(setting, "unbounded actions", "bounds", hint)
    return np.asarray(low, np.float32), np.asarray(high, np.float32)
