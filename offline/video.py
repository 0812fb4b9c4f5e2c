"""One episode of a policy as a video: GIF by pillow, MP4 by imageio where it has a codec.

Gymnasium's environments draw themselves (`rgb_array`); the embedded ones are drawn with matplotlib.
Fields are drawn over time, above them the field from the same start without control; PNG is the
last frame.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import (
    ConfigError,
    DataError,
    MissingExtraError,
    foreign_code,
    one_line,
)

from .environments import Environment
from .environments.drawings import DRAWN, FIELDS, painter
from .environments.spaces import flatten, plain_array
from .policy import Policy

FORMATS = (".gif", ".mp4", ".png")
FPS = 25
GL = (
    "MUJOCO_GL=egl (Debian: libegl1) and MUJOCO_GL=osmesa (libosmesa6) draw without a display; "
    "Gymnasium's own need: pip install 'gymnasium[classic-control]'"
)


def check_video(file: Path, env: Environment) -> None:
    """Refuse what cannot be written or drawn, before anything is played."""
    if file.suffix not in FORMATS or not file.parent.is_dir():
        expected = f"a file that ends in {' or '.join(FORMATS)}, in an existing folder"
        raise ConfigError("--video", str(file), expected)
    if env.name not in DRAWN and not (_id(env) or env.another):
        expected = f"one of Gymnasium's, or {', '.join(DRAWN)}"
        raise ConfigError("--video", env.name, expected, "others cannot be drawn")
    if file.suffix == ".mp4":
        try:
            import imageio_ffmpeg  # noqa: F401
        except ImportError as error:
            raise MissingExtraError("MP4 video", "imageio-ffmpeg", "video") from error


def record(policy: Policy, env: Environment, file: Path, seed: int) -> float:
    """Play one episode and write it.

    Args:
        policy: begins a new episode.
        env: where; see `check_video`.
        file: output file.
        seed: seed of the start state.

    Returns:
        The episode's return.
    """
    if env.name in DRAWN:
        frames, rewards = _embedded(policy, env, seed, last=file.suffix == ".png")
    else:
        frames, rewards = zip(*_gymnasium(policy, env, seed), strict=True)
    try:
        _write(file, frames)
    except OSError as error:
        raise DataError(file, "video", one_line(error), "a file that can be written") from None
    return float(sum(rewards))


def _write(file: Path, frames: Sequence[np.ndarray]) -> None:
    if file.suffix in (".gif", ".png"):
        from jaxrl_rollouts.reports.pictures import save_frame, save_gif

        if file.suffix == ".gif":
            save_gif(frames, file, per_second=FPS, colours=256)
        else:
            save_frame(frames[-1], file)
        return
    import imageio.v2 as imageio

    imageio.mimwrite(file, list(frames), fps=FPS)


def _gymnasium(policy: Policy, env: Environment, seed: int) -> Iterator[tuple[np.ndarray, float]]:
    """Frames and rewards of one episode, played in Gymnasium itself."""
    import gymnasium

    name, limit = _id(env), env.max_episode_steps
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions
            if name:
                mode: Any = {"render_mode": "rgb_array", "disable_env_checker": True}
                made: Any = gymnasium.make(name, limit, **mode)
            else:
                made = gymnasium.wrappers.TimeLimit(_drawn(env), limit)
        observation, _ = made.reset(seed=seed)
        frame: Any = made.render()
    except ConfigError:
        raise
    except Exception as error:  # each backend has errors of its own
        raise ConfigError("--video", one_line(error), f"{env.name} to draw itself", GL) from None
    policy.reset()
    reward, over, space = 0.0, False, made.observation_space
    while not over:
        with foreign_code("--video", env.name, "an environment that plays an episode"):
            action = policy(flatten(space, observation), reward)
            observation, earned, terminated, truncated, _ = made.step(action)
            reward, over = float(plain_array(earned).reshape(())), terminated or truncated
            shown, frame = np.asarray(frame, np.uint8), made.render()
        yield shown, reward
    made.close()


def _id(env: Environment) -> str:
    """Gymnasium's id of an environment; "" of one that it does not have."""
    kind, _, rest = env.name.partition("/")
    return rest.partition("?")[0] if kind in ("mujoco", "gymnasium") else ""


def _drawn(env: Environment) -> Any:
    """One more copy of a user's environment; `ConfigError` where it makes no pictures."""
    assert env.another is not None
    made = env.another()
    # A declared render mode is requested: training factories name no mode.
    if made.render_mode is None and "rgb_array" in made.metadata.get("render_modes", ()):
        made.unwrapped.render_mode = "rgb_array"
    if made.render_mode != "rgb_array":
        hint = "have its factory make it with render_mode='rgb_array'"
        raise ConfigError("--video", f"render_mode {made.render_mode!r}", "'rgb_array'", hint)
    return made


def _embedded(
    policy: Policy, env: Environment, seed: int, last: bool
) -> tuple[list[np.ndarray], list[float]]:
    """Frames, or the last one alone, and rewards of one episode of an embedded environment."""
    half = 0.5 * (policy.action_high - policy.action_low)
    middle = 0.5 * (policy.action_high + policy.action_low)
    policy.reset()
    # `step` takes [-1, 1].
    seen, rewards = _played(env, lambda *given: (policy(*given) - middle) / half, seed)
    beside = None
    if env.name in FIELDS:
        still = np.zeros((1, env.action_size), np.float32)
        beside = np.stack(_played(env, lambda *_: still, seed)[0])
    paint = painter(env.name, beside)
    # A field's picture grows by a column a step, so that every fourth is enough.
    back = range(len(seen), len(seen) - 1 if last else 0, -4 if env.name in FIELDS else -1)
    return [paint(seen[:count]) for count in reversed(back)], rewards


def _played(
    env: Environment, act: Callable[[np.ndarray, Any], Any], seed: int
) -> tuple[list[np.ndarray], list[float]]:
    """Observations that actions answered, and rewards, of one episode from the seed's start."""
    step, key = jax.jit(env.step), as_key(seed, "seed")
    state = env.reset(key, 1)
    seen: list[np.ndarray] = []
    rewards: list[float] = []
    reward, over = None, False
    while not over:
        observation = np.asarray(env.observe(state))
        state, out = step(key, state, act(observation, reward))
        reward = np.asarray(out.reward)
        over = bool(out.terminated[0] | out.truncated[0])
        seen.append(observation[0])
        rewards.append(float(reward[0]))
    return seen, rewards
