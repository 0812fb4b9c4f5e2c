"""Environments by name."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl

from jaxrl_rollouts.errors import ConfigError

from .acrobot import ACROBOT
from .base import Environment, unknown_name
from .pendulum import PENDULUM
from .plane import PLANE
from .runner import RUNNER
from .terminations import family

EMBEDDED = {env.name: env for env in (PENDULUM, PLANE, ACROBOT, RUNNER)}

# what a dataset of this family was collected in
ALIASES = {
    "ant": "mujoco/Ant-v4",
    "halfcheetah": "mujoco/HalfCheetah-v4",
    "hopper": "mujoco/Hopper-v4",
    "walker2d": "mujoco/Walker2d-v4",
    **{name: name for name in EMBEDDED},
}

EXAMPLES = (
    "gymnax/Pendulum-v1",
    "gymnax/MountainCarContinuous-v0",
    "brax/inverted_pendulum",
    "brax/halfcheetah",
    *sorted(set(ALIASES.values())),
)


def make(name: str, **options: Any) -> Environment:
    """An environment by name.

    Keep what it returns: outside the embedded ones each call makes new functions (and MuJoCo
    simulators), for which everything compiles anew.

    Args:
        name: `pendulum`, `plane`, `acrobot`, `runner` (embedded), `gymnax/<name>`, `brax/<name>`,
            `mujoco/<Gymnasium id>` (prefix optional), a family (`halfcheetah`) or a dataset of it
            (`halfcheetah-medium-v2`, `jr/hopper-mixed`). Options may follow as a query,
            `brax/halfcheetah?backend=mjx`.
        options: `backend` of brax.

    Raises:
        ConfigError: an unknown name or option.
        MissingExtraError: the simulator's package is not installed.
    """
    base, _, query = name.partition("?")
    options = {**dict(parse_qsl(query)), **options}
    prefix, _, rest = base.partition("/")
    if prefix != "brax" and options:
        raise ConfigError(f"environment {base}", sorted(options), "no options")
    if unexpected := sorted(set(options) - {"backend"}):
        raise ConfigError(f"environment {base}", unexpected, "the option backend")
    if base in EMBEDDED:
        return EMBEDDED[base]
    if prefix == "gymnax":
        from .gymnax_ import gymnax_environment

        return gymnax_environment(rest)
    if prefix == "brax":
        from .brax_ import brax_environment

        return brax_environment(rest, **options)
    gym_id = rest if prefix == "mujoco" else base
    if re.fullmatch(r"[A-Z]\w*-v\d+", gym_id) and family(gym_id) not in EMBEDDED:
        from .mujoco import mujoco_environment

        return mujoco_environment(gym_id)
    if family(base) in ALIASES:
        return make(ALIASES[family(base)])
    raise unknown_name(name, [*ALIASES, *EXAMPLES])
