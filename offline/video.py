"""One episode of a policy as a film: GIF by pillow, MP4 by imageio where it has a codec.

Gymnasium's environments draw themselves (`rgb_array`); the embedded ones are drawn with matplotlib.
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
from .environments.plane import GOAL
from .environments.spaces import flatten, plain_array
from .policy import Policy

FORMATS = (".gif", ".mp4")
FPS = 25
GL = (
    "MUJOCO_GL=egl (Debian: libegl1) and MUJOCO_GL=osmesa (libosmesa6) draw without a display; "
    "Gymnasium's own need: pip install 'gymnasium[classic-control]'"
)
Lines = list[np.ndarray]  # each `[points, 2]`


def check_video(file: Path, env: Environment) -> None:
    """Refuse what cannot be written or drawn, before anything is played."""
    if file.suffix not in FORMATS or not file.parent.is_dir():
        expected = f"a file that ends in {' or '.join(FORMATS)}, in an existing folder"
        raise ConfigError("--video", str(file), expected)
    if env.name not in DRAWINGS and not (_id(env) or env.another):
        expected = f"one of Gymnasium's, or {', '.join(DRAWINGS)}"
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
        file: to write.
        seed: of the start state.

    Returns:
        The episode's return.
    """
    shown = _embedded(policy, env, seed) if env.name in DRAWINGS else _gymnasium(policy, env, seed)
    frames, rewards = zip(*shown, strict=True)
    try:
        _write(file, frames)
    except OSError as error:
        raise DataError(file, "video", one_line(error), "a file that can be written") from None
    return float(sum(rewards))


def _write(file: Path, frames: Sequence[np.ndarray]) -> None:
    if file.suffix == ".gif":
        from jaxrl_rollouts.reports.pictures import save_gif

        save_gif(frames, file, per_second=FPS, colours=256)
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
    # What an environment declares it can draw is asked of it: training factories name no mode.
    if made.render_mode is None and "rgb_array" in made.metadata.get("render_modes", ()):
        made.unwrapped.render_mode = "rgb_array"
    if made.render_mode != "rgb_array":
        hint = "have its factory make it with render_mode='rgb_array'"
        raise ConfigError("--video", f"render_mode {made.render_mode!r}", "'rgb_array'", hint)
    return made


def _embedded(policy: Policy, env: Environment, seed: int) -> Iterator[tuple[np.ndarray, float]]:
    """Frames and rewards of one episode of an embedded environment."""
    step, key = jax.jit(env.step), as_key(seed, "seed")
    state = env.reset(key, 1)
    half = 0.5 * (policy.action_high - policy.action_low)
    middle = 0.5 * (policy.action_high + policy.action_low)
    policy.reset()
    reward, over = None, False
    paint = painter(env.name)
    while not over:
        observation = np.asarray(env.observe(state))
        action = (policy(observation, reward) - middle) / half  # `step` takes [-1, 1]
        state, out = step(key, state, action)
        reward = np.asarray(out.reward)
        over = bool(out.terminated[0] | out.truncated[0])
        yield paint(observation[0]), float(reward[0])


def _pendulum(observation: np.ndarray) -> Lines:
    cosine, sine, _ = observation
    return [np.array([[0, 0], [sine, cosine]])]


def _acrobot(observation: np.ndarray) -> Lines:
    cosine, sine, second_cosine, second_sine = observation[:4]
    elbow = np.array([sine, -cosine])
    both = np.arctan2(sine, cosine) + np.arctan2(second_sine, second_cosine)
    return [np.array([[0, 0], elbow, elbow + [np.sin(both), -np.cos(both)]])]


def _runner(observation: np.ndarray) -> Lines:
    speed, angle, _ = observation
    cart = np.array([[-0.3, 0], [0.3, 0]])
    ahead = np.array([[0, -0.3], [speed / 2, -0.3]])  # how fast, and which way
    return [cart, np.array([[0, 0], [np.sin(angle), np.cos(angle)]]), ahead]


def _plane(observation: np.ndarray) -> Lines:
    goal = np.array(GOAL)
    cross = [np.array([goal - d, goal + d]) for d in (np.array([0.4, 0.4]), np.array([0.4, -0.4]))]
    return [*cross, observation + 0.2 * np.array([[-1, 0], [0, 1], [1, 0], [0, -1], [-1, 0]])]


def _ks(observation: np.ndarray) -> Lines:
    x = np.linspace(-1.2, 1.2, len(observation))
    return [np.stack([x, observation / 4], 1)]  # fields lie within +-4


# Name -> lines of an observation, and the square that is shown.
DRAWINGS: dict[str, tuple[Callable[[np.ndarray], Lines], tuple[float, float]]] = {
    "pendulum": (_pendulum, (-1.2, 1.2)),
    "acrobot": (_acrobot, (-2.2, 2.2)),
    "runner": (_runner, (-1.2, 1.2)),
    "runner-hidden": (_runner, (-1.2, 1.2)),
    "runner-wired": (_runner, (-1.2, 1.2)),
    "plane": (_plane, (-4.0, 10.0)),
    "ks_control": (_ks, (-1.2, 1.2)),
    "ks_control-eight": (_ks, (-1.2, 1.2)),
    "ks_control-wide": (_ks, (-1.2, 1.2)),
}


def painter(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """`observation -> frame [H, W, 3]`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines_of, limits = DRAWINGS[name]
    figure = Figure(figsize=(3, 3), dpi=80)
    canvas, ax = FigureCanvasAgg(figure), figure.add_axes((0, 0, 1, 1))

    def paint(observation: np.ndarray) -> np.ndarray:
        ax.clear()
        ax.set(xlim=limits, ylim=limits, xticks=[], yticks=[], aspect="equal")
        for line in lines_of(observation):
            ax.plot(*line.T, "o-", color="black", linewidth=3, markersize=4)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()

    return paint
