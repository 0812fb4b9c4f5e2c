"""Environments by name: embedded ones, other packages' and one's own.

Another package announces its own in the entry-point group `jaxrl_rollouts.environments`, as
`name = "module:factory"`; `register_environment` does it for this process. A factory takes no
arguments and returns an `Environment`, a Gymnasium environment or the id of one.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from jaxrl_rollouts import plugins
from jaxrl_rollouts.errors import ConfigError, MissingExtraError, foreign_code

from .acrobot import ACROBOT
from .base import Environment, unknown_name
from .gymnasium_ import from_gymnasium, registry
from .ks_control import KS_CONTROL, KS_EIGHT, KS_WIDE
from .pendulum import PENDULUM
from .plane import PLANE
from .runner import HIDDEN_RUNNER, RUNNER, WIRED_RUNNER
from .terminations import family

GROUP = "jaxrl_rollouts.environments"
RUNNERS = (RUNNER, HIDDEN_RUNNER, WIRED_RUNNER)
KS = (KS_CONTROL, KS_EIGHT, KS_WIDE)
EMBEDDED = {env.name: env for env in (PENDULUM, PLANE, ACROBOT, *RUNNERS, *KS)}
REGISTERED: dict[str, Callable[[], Any]] = {}

# what a dataset of this family was collected in
ALIASES = {
    "ant": "mujoco/Ant-v4",
    "halfcheetah": "mujoco/HalfCheetah-v4",
    "hopper": "mujoco/Hopper-v4",
    "inverteddoublependulum": "mujoco/InvertedDoublePendulum-v4",
    "reacher": "mujoco/Reacher-v4",
    "swimmer": "mujoco/Swimmer-v4",
    "walker2d": "mujoco/Walker2d-v4",
    "kscontrol": KS_CONTROL.name,
    **{name: name for name in EMBEDDED},
}

VERSION = re.compile(r"[A-Z]\w*-v\d+")  # a Gymnasium id: this version and no other
D4RL_ANT = re.compile(r"ant-[a-z-]+-v[0-2]")

EXAMPLES = (
    "gymnax/Pendulum-v1",
    "gymnax/MountainCarContinuous-v0",
    "brax/inverted_pendulum",
    "brax/halfcheetah",
    *sorted(set(ALIASES.values())),
)
OPTIONS = {
    "brax": ("backend",),
    "playground": ("impl",),
    "gymnasium": ("max_episode_steps",),
    "mujoco": ("terminate_when_unhealthy", "exclude_current_positions_from_observation"),
}


def register_environment(name: str, factory: Callable[[], Any]) -> None:
    """Register your own environment for `make` and `--environment`, in this process.

    Args:
        name: name to register; registering again replaces it.
        factory: called without arguments each time it is made; returns an `Environment`, a
            Gymnasium environment or the id of one.

    Raises:
        ConfigError: the name is one of ours, or not callable.
    """
    if name in ALIASES or not name or "?" in name or ":" in name:
        raise ConfigError("register_environment", name, f"a name besides {', '.join(ALIASES)}")
    if not callable(factory):
        raise ConfigError("register_environment", factory, "a function that makes it")
    REGISTERED[name] = factory


def make(name: str | Any, **options: Any) -> Environment:
    """An environment by name.

    Reuse the result: outside the embedded ones each call makes new functions (and simulators on
    the host), for which everything is recompiled.

    Args:
        name: what was registered; `pendulum`, `plane`, `acrobot`, `runner`, `ks_control`
            (embedded);
            `gymnax/<name>`, `brax/<name>`, `playground/<name>` (MuJoCo Playground),
            `mujoco/<Gymnasium id>`, `gymnasium/<id>` (an id alone is looked for in this order:
            MuJoCo, gymnax, Gymnasium); `package.module:factory`, or
            `package.module:Tank-v0` where that module registers the id, if
            `jaxrl_rollouts.plugins.trust` was given it or the command line has it; a family
            (`halfcheetah`) or a dataset of it (`halfcheetah-medium-v2`). Options may follow as a
            query, `brax/halfcheetah?backend=mjx`. An `Environment` is handed back, a Gymnasium
            environment goes through `from_gymnasium`.
        options: `backend` of brax, `impl` of Playground (`jax`, or `warp` on NVIDIA GPUs),
            `max_episode_steps` of Gymnasium's, `terminate_when_unhealthy` (true, false) of
            MuJoCo's that end in falls: `Hopper-v4?terminate_when_unhealthy=false`,
            and `exclude_current_positions_from_observation` of those that move along a floor.

    Raises:
        ConfigError: an unknown name or option.
        MissingExtraError: the simulator's package is not installed.
    """
    if not isinstance(name, str):
        return name if isinstance(name, Environment) else from_gymnasium(name, **options)
    base, _, query = name.partition("?")
    options = {**dict(parse_qsl(query)), **options}
    factory = _factory(base)
    if factory is not None:
        return _made(factory, base, _steps(base, options))
    if base in EMBEDDED:
        _only(base, options, ())
        return EMBEDDED[base]
    kind, rest = _kind(base)
    if kind is None:
        place = _place(base)
        if place is None:
            raise unknown_name(name, _known())
        _only(base, options, ())
        return make(place)
    _only(base, options, OPTIONS.get(kind, ()))
    if is_robotics(rest) and not register_robotics():
        raise MissingExtraError(f"The environment {rest}", "gymnasium-robotics", "robotics")
    if kind == "gymnax":
        from .gymnax_ import gymnax_environment

        return gymnax_environment(rest)
    if kind == "brax":
        from .brax_ import brax_environment

        return brax_environment(rest, **options)
    if kind == "playground":
        from .playground_ import playground_environment

        return playground_environment(rest, **options)
    if kind == "mujoco":
        from .mujoco import mujoco_environment

        return mujoco_environment(rest, **options)
    limit = _steps(base, options)
    made = from_gymnasium(rest, max_episode_steps=limit)
    return made if limit is None else made._replace(name=f"{made.name}?max_episode_steps={limit}")


def make_named(name: str) -> Environment:
    """`make` for a name that stands in a file: a dataset's, or a trained policy's."""
    if ":" in name:
        hint = f"if you trust it, name it yourself: --environment {shlex.quote(name)}"
        raise ConfigError("environment", name, "a name for which no code is imported", hint)
    return make(name)


def is_known(name: str) -> bool:
    """Whether `make` would find something under this name; it is not made."""
    base = name.partition("?")[0]
    return (
        base in REGISTERED
        or base in plugins.names(GROUP)
        or _kind(base)[0] is not None
        or _place(base) is not None
    )


def _place(base: str) -> str | None:
    """Where a family or a dataset of it is from; None where it is unknown, as of other versions."""
    place = ALIASES.get(family(base))
    if place is not None and VERSION.fullmatch(base) and base != "Pendulum-v1":
        return f"mujoco/{base}" if place.startswith("mujoco/") else None
    # D4RL's ant data have 111 observations, which no later version has by itself.
    return "mujoco/Ant-v2" if D4RL_ANT.fullmatch(base) else place


def _kind(base: str) -> tuple[str | None, str]:
    """Which package a name is of, and what it is called there; None for a family or a dataset."""
    prefix, _, rest = base.partition("/")
    if prefix in ("gymnax", "brax", "playground", "mujoco", "gymnasium"):
        return prefix, rest
    if not re.fullmatch(r"[\w./-]+-\w+", base) or base == "Pendulum-v1":
        return None, base
    if is_robotics(base):
        return "gymnasium", base
    if _is_mujoco(base):
        return "mujoco", base
    if base in _gymnax_ids():
        return "gymnax", base
    return ("gymnasium", base) if base in registry() else (None, base)


def _is_mujoco(name: str) -> bool:
    if not re.fullmatch(r"[A-Z]\w*-v[2-5]", name):
        return False
    from .mujoco import mujoco_ids

    ids = [key.rpartition("-")[0] for key in mujoco_ids(registry())]
    return name.rpartition("-")[0] in ids


def _gymnax_ids() -> list[str]:
    try:
        from .gymnax_ import continuous_ids

        return continuous_ids()
    except MissingExtraError:
        return []


def _known() -> list[str]:
    """Every name there is, for suggestions."""
    from .mujoco import mujoco_ids

    mujoco = [f"mujoco/{key}" for key in mujoco_ids(registry())]
    others = [key for key in registry() if not key.startswith(("phys2d", "tabular"))]
    announced = plugins.names(GROUP)
    return [*REGISTERED, *announced, *ALIASES, *EXAMPLES, *mujoco, *_gymnax_ids(), *others]


def _factory(base: str) -> Callable[[], Any] | None:
    """What was registered, announced or is to be imported under this name, else None."""
    if base in REGISTERED:
        return REGISTERED[base]
    if base in plugins.names(GROUP):
        return plugins.announced(GROUP, "environment")[base]
    return plugins.import_trusted("environment", base) if ":" in base else None


def _made(factory: Callable[[], Any], name: str, limit: int | None) -> Environment:
    """What a factory makes, under the name that finds it again."""
    with foreign_code("environment", name, "a function that makes an environment"):
        made = factory()
    if isinstance(made, Environment):
        if limit is not None:
            raise ConfigError(f"environment {name}", "max_episode_steps", "no options")
        return made._replace(name=name)
    name += f"?max_episode_steps={limit}" if limit is not None else ""
    place = made if isinstance(made, str) else factory
    return from_gymnasium(place, name=name, max_episode_steps=limit)


def _steps(base: str, options: dict[str, Any]) -> int | None:
    _only(base, options, OPTIONS["gymnasium"])
    limit = options.get("max_episode_steps")
    if limit is None:
        return None
    if not str(limit).isdigit() or int(limit) < 1:
        raise ConfigError(f"environment {base}: max_episode_steps", limit, "at least 1")
    return int(limit)


def _only(base: str, options: dict[str, Any], allowed: tuple[str, ...]) -> None:
    unexpected = sorted(set(options) - set(allowed))
    if unexpected:
        expected = f"the option {' or '.join(allowed)}" if allowed else "no options"
        raise ConfigError(f"environment {base}", unexpected, expected)


# D4RL's tasks beyond locomotion; the package gymnasium-robotics has some of them.
ROBOTICS_PACKAGE = "gymnasium_robotics"
# D4RL's environment: the one with the same observations, actions and rewards.
ROBOTICS = {
    "pen-v0": "AdroitHandPen-v1",
    "door-v0": "AdroitHandDoor-v1",
    "hammer-v0": "AdroitHandHammer-v1",
    "relocate-v0": "AdroitHandRelocate-v1",
}
_D4RL = re.compile(r"(antmaze|maze2d|kitchen)-[a-z-]+-v[0-2]")
_IDS = re.compile(
    r"(AntMaze|PointMaze|AdroitHand|FrankaKitchen|Fetch|HandManipulate|HandReach)\w*(-[\w-]+)?-v\d+"
)


def is_robotics(name: str) -> bool:
    """Whether an id is one of gymnasium-robotics'."""
    return bool(_IDS.fullmatch(name))


def register_robotics() -> bool:
    """Let Gymnasium know the package's environments; False where it is not installed."""
    if importlib.util.find_spec(ROBOTICS_PACKAGE) is None:
        return False
    importlib.import_module(ROBOTICS_PACKAGE)
    return True


def absent_task(name: str) -> str:
    """Why there is no simulator for the environment of a dataset, in a sentence; "" otherwise."""
    if _D4RL.fullmatch(name):
        return (
            f"{name}: no package has this simulator as D4RL had it, so nothing is evaluated; "
            "environment= (--environment) names one of your own."
        )
    if (name in ROBOTICS or is_robotics(name)) and not register_robotics():
        return (
            f"{name}: its simulator is in gymnasium-robotics, which is not installed, so nothing "
            "is evaluated; run: pip install 'jaxrl-rollouts[robotics]'"
        )
    return ""
