"""Pictures of the embedded environments: lines of the last observation, or a field over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxrl_rollouts.errors import ConfigError

from .ks_control import EIGHT, FOUR, WIDE, KsControl
from .plane import GOAL

Lines = list[np.ndarray]  # each `[points, 2]`
Paint = Callable[[Sequence[np.ndarray]], np.ndarray]


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


# Name -> lines of an observation, and the square that is shown.
LINES: dict[str, tuple[Callable[[np.ndarray], Lines], tuple[float, float]]] = {
    "pendulum": (_pendulum, (-1.2, 1.2)),
    "acrobot": (_acrobot, (-2.2, 2.2)),
    "runner": (_runner, (-1.2, 1.2)),
    "runner-hidden": (_runner, (-1.2, 1.2)),
    "runner-wired": (_runner, (-1.2, 1.2)),
    "plane": (_plane, (-4.0, 10.0)),
}
FIELDS: dict[str, KsControl] = {settings.name: settings for settings in (FOUR, EIGHT, WIDE)}
DRAWN = (*LINES, *FIELDS)


def painter(name: str, beside: np.ndarray | None = None) -> Paint:
    """Rendering of an environment.

    Args:
        name: name of an embedded environment.
        beside: `[T, S]`, a field without control that is drawn above, as far as the episode.

    Returns:
        `observations of an episode so far, [t, S] -> frame [H, W, 3]` uint8. Fields are drawn over
        time, `t` up to the time limit; of the others the last observation is drawn.

    Raises:
        ConfigError: an environment without a drawing.
    """
    if name in FIELDS:
        return _field_painter(FIELDS[name], beside)
    if name not in LINES:
        raise ConfigError("environment", name, f"one of {', '.join(DRAWN)}", "others have none")
    return _line_painter(*LINES[name])


def _frame(figure: Any) -> np.ndarray:
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()


def _line_painter(lines_of: Callable[[np.ndarray], Lines], limits: tuple[float, float]) -> Paint:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3, 3), dpi=80)
    FigureCanvasAgg(figure)
    ax = figure.add_axes((0, 0, 1, 1))

    def paint(observations: Sequence[np.ndarray]) -> np.ndarray:
        ax.clear()
        ax.set(xlim=limits, ylim=limits, xticks=[], yticks=[], aspect="equal")
        for line in lines_of(observations[-1]):
            ax.plot(*line.T, "o-", color="black", linewidth=3, markersize=4)
        return _frame(figure)

    return paint


def _field_painter(settings: KsControl, beside: np.ndarray | None) -> Paint:
    from jaxrl_rollouts.reports.pictures import figure

    steps, hold = settings.max_episode_steps, settings.dt * settings.substeps
    titles = [settings.name] if beside is None else ["without control", "controlled"]
    made, axes = figure(len(titles), width=4.8, height=1.7, titles=titles, sharex=True)
    made.set_dpi(80)
    empty = np.full((settings.points, steps + 1), np.nan)
    box = (0.0, (steps + 1) * hold, 0.0, settings.extent)
    show: Any = {"extent": box, "aspect": "auto", "cmap": "RdBu_r", "vmin": -3, "vmax": 3}
    images = [ax.imshow(empty, origin="lower", **show) for ax in axes]
    axes[-1].set_xlabel("time")
    for ax in axes:
        ax.set_ylabel("x")
        ax.grid(visible=False)

    def paint(observations: Sequence[np.ndarray]) -> np.ndarray:
        observations = observations[-steps - 1 :]  # an episode may be played past its limit
        now = len(observations)
        fields = [np.asarray(observations)] if beside is None else [beside[:now], observations]
        for image, field in zip(images, fields, strict=True):
            shown = empty.copy()
            shown[:, :now] = np.transpose(field)
            image.set_data(shown)
        return _frame(made)

    return paint
