"""Any Gymnasium environment of vectors: Box observations, bounded Box actions, on the host.

One environment, of which as many copies are made as there are episodes, or a vector environment.
"""

from __future__ import annotations

import copy
import importlib.metadata
import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from jaxrl_rollouts.errors import ConfigError, MissingExtraError, one_line

from .base import Environment, unknown_name
from .host import Copies, host_environment
from .spaces import SCOPE, UnsupportedSpaceError, column_names, is_flat
from .vectors import Row, Vectors, is_vector, singly


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
    are rescaled to its bounds. A copy is reset and stepped once here, so that errors
    occur before compilation. Reuse the result: each call has its own copies, for
    which everything is recompiled.

    A vector environment (`gymnasium.vector.VectorEnv`) of `N` rows plays `N` episodes at once, in
    all three autoreset modes of `metadata["autoreset_mode"]`; of `B` episodes `ceil(B / N)` vectors
    are made. A training in it (`train_online`, `finetune`) keeps the state of single
    sub-environments, which it makes with the functions that a `SyncVectorEnv` or an
    `AsyncVectorEnv` without wrappers was given; it does not take other vectors.

    Args:
        env: an id of Gymnasium, an environment, or a function of no arguments that makes
            one. Copies of an environment are made by its registered id, else by `copy.deepcopy`;
            of an `AsyncVectorEnv`, give the function.
        name: name to register; the default is `gymnasium/<id>`, else the name of its class.
        max_episode_steps: time limit; the default is that of its registration, or of a
            `gymnasium.wrappers.TimeLimit` around it.

    Raises:
        MissingExtraError: gymnasium is not installed.
        ConfigError: an unknown id, spaces of other kinds, no time limit, no autoreset mode of a
            vector, or an environment that cannot be copied.
        SimulatorError: its first reset or step raises, or gives what is none.
    """
    make = _maker(env)
    given = not (isinstance(env, str) or callable(env))
    first = cast(Any, env) if given else _called(make, name or env)
    vector = is_vector(first)
    known, another = _one_of(first) if vector else (first, make)
    unwrapped, spec = known.unwrapped, known.spec
    label = name or (f"gymnasium/{spec.id}" if spec is not None else type(unwrapped).__name__)
    row: Any = Row(first) if vector else first
    low, high = _check_spaces(label, row)
    limit = _time_limit(known) if max_episode_steps is None else max_episode_steps
    if limit is None:
        hint = f"give max_episode_steps, or in a name: {label}?max_episode_steps=200"
        raise NoTimeLimitError(f"environment {label}", "no time limit", "one", hint)
    if isinstance(limit, bool) or limit != (steps := int(limit)) or steps < 1:
        found = f"environment {label}: max_episode_steps"
        raise ConfigError(found, limit, "an integer from 1")
    module = type(unwrapped).__module__.split(".")[0]
    version = f"{label} of {module}, gymnasium {importlib.metadata.version('gymnasium')}"
    if given:
        first = _called(make, label, "one that can be copied, or a function that makes one")
    host = (Vectors if vector else Copies)(first, make, steps, label)
    names = column_names(row.observation_space)
    host.probe(np.asarray(0.5 * (low + high), row.action_space.dtype))
    columns = named(row if vector and another is None else known) or ()
    return host_environment(
        host, label, len(names), low, high, version, columns=columns, another=another
    )


def _one_of(vector: Any) -> tuple[Any, Callable[[], Any] | None]:
    """Of a vector environment one sub-environment, and what makes more of them.

    A vector itself stands for sub-environments that nothing makes. Those inside a vector wrapper
    do not show what the wrapper shows, so that nothing is to be trained in them.
    """
    inside = vector.unwrapped
    making = singly(inside, _maker)
    if making is None:
        return inside, None
    label = type(inside).__name__
    return _called(making, label), making if inside is vector else None


class NoTimeLimitError(ConfigError):
    """A Gymnasium environment without a time limit of its own."""


def _maker(env: Any) -> Callable[[], Any]:
    """A function that makes another environment like this."""
    try:
        import gymnasium
    except ImportError as error:
        missing = error.name or "gymnasium"
        raise MissingExtraError("Gymnasium environments", missing, "gymnasium") from error
    if callable(env):
        return env
    if not isinstance(env, str | gymnasium.Env | gymnasium.vector.VectorEnv):
        expected = "an id, a gymnasium.Env or vector environment, or a function that makes one"
        raise ConfigError("environment", type(env).__name__, expected)
    if isinstance(env, str) and env not in gymnasium.registry and ":" not in env:
        raise unknown_name(env, gymnasium.registry)
    vector = isinstance(env, gymnasium.vector.VectorEnv)
    # The registration of a vector does not include the wrappers around it.
    wrapped = vector and env.unwrapped is not env
    known = env if isinstance(env, str) else env.spec
    if known is None or wrapped:
        return lambda: copy.deepcopy(env)

    def again() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions, and of spaces that are checked here
            if vector:
                return gymnasium.make_vec(known)
            return gymnasium.make(known, disable_env_checker=True)

    return again


def _called(make: Callable[[], Any], label: Any, expected: str = "one that can be made") -> Any:
    import gymnasium

    try:
        made = make()
    except gymnasium.error.Error as error:
        raise ConfigError(f"environment {label}", one_line(error), expected) from error
    except (Exception, SystemExit) as error:  # whatever a user's own code raises
        found = f"{type(error).__name__}: {one_line(error)}"
        raise ConfigError(f"environment {label}", found, expected) from error
    if not isinstance(made, gymnasium.Env | gymnasium.vector.VectorEnv):
        expected = "a gymnasium.Env or gymnasium.vector.VectorEnv"
        raise ConfigError(f"environment {label}", type(made).__name__, expected)
    return made


def named(env: Any) -> tuple[str, ...] | None:
    """Names of the columns; None where nothing but one vector is known.

    Wrappers that flatten or leave observations as they are are looked through.
    """
    import gymnasium

    while is_flat(env.observation_space):
        if not isinstance(env, gymnasium.Wrapper):
            return None
        flattens = isinstance(env, gymnasium.wrappers.FlattenObservation)
        changes = env.observation_space is not env.env.observation_space
        if not flattens and (changes or isinstance(env, gymnasium.ObservationWrapper)):
            return None
        env = env.env
    return column_names(env.observation_space)


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
    try:
        acts, seen = env.action_space, env.observation_space
    except Exception as error:  # a user's own properties
        found = f"{type(error).__name__}: {one_line(error)}"
        raise ConfigError(setting, found, "spaces of actions and observations") from error
    try:
        names = column_names(seen)
    except UnsupportedSpaceError as error:
        hint = f"{SCOPE}; gymnasium.ObservationWrapper can make them of others"
        raise ConfigError(setting, f"observations: {error}", "vectors", hint) from None
    if not names:
        raise ConfigError(setting, "observations without an entry", "at least one", SCOPE)
    if not isinstance(acts, gymnasium.spaces.Box):
        raise ConfigError(setting, f"{type(acts).__name__} actions", "Box actions", SCOPE)
    if len(acts.shape) != 1 or 0 in acts.shape:
        raise ConfigError(setting, f"actions of shape {acts.shape}", "one axis", SCOPE)
    if acts.dtype.kind != "f":
        hint = f"{SCOPE}; gymnasium.ActionWrapper can round them"
        raise ConfigError(setting, f"Box actions of {acts.dtype}", "real numbers", hint)
    low, high = env.action_space.low, env.action_space.high
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        hint = "gymnasium.wrappers.RescaleAction and ClipAction can give it some"
        raise ConfigError(setting, "unbounded actions", "bounds", hint)
    return np.asarray(low, np.float32), np.asarray(high, np.float32)
