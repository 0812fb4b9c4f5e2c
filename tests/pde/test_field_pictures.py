"""Colours of pictures of rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl_rollouts.pde import pictures, rolling
from jaxrl_rollouts.pde.evaluation import Holdout
from jaxrl_rollouts.pde.fieldset import Fields
from jaxrl_rollouts.pde.pictures import draw_rollouts, moving_frames
from jaxrl_rollouts.pde.trained import TrainedEmulator

RED, BLUE = (103, 0, 31), (5, 48, 97)  # the ends of RdBu_r


def test_a_small_error_has_a_colour_scale_of_its_own() -> None:
    """A thousandth of the field is seen, from end to end of the colours, in the last panel only."""
    rng = np.random.default_rng(0)
    truth = rng.uniform(-0.5, 0.5, (4, 8, 8))
    truth[0, 0, 0] = 1.0  # no other entry reaches the end of the scale
    error = np.zeros_like(truth)
    error[2, 3, 3], error[2, 4, 4] = 1e-3, -1e-3
    frames = moving_frames({"truth": truth, "rollout": truth + error, "error": error}, 1.0, "time")
    third = np.array_split(frames[2], 3, axis=1)
    for panel, expected in zip(third, (False, False, True), strict=True):
        seen = {tuple(colour) for colour in panel.reshape(-1, 3).tolist()}
        assert ({RED, BLUE} <= seen) == expected


@pytest.mark.parametrize("grid", [(16,), (8, 8)])
def test_a_report_draws_errors_on_their_own_scale(
    monkeypatch: pytest.MonkeyPatch, grid: tuple[int, ...]
) -> None:
    drawn: list[tuple[float, float]] = []

    class Report:
        def picture(self, name: str, figure: Any, caption: str) -> None:
            for ax in figure.axes:
                drawn.extend(image.get_clim() for image in ax.images)
            assert "scale of its own" in caption

        def animation(self, name: str, frames: Any, caption: str) -> None:
            assert "scale of its own" in caption

    u = np.random.default_rng(0).uniform(-1, 1, (1, 7, 1, *grid)).astype(np.float32)
    test: Any = Holdout(Fields(u, np.zeros((1, 0))), 6, extent=(2.0,) * len(grid))  # type: ignore[arg-type]
    truth = u[0, 1:, 0]
    report: Any = Report()
    draw_rollouts(report, test, {"mse": truth + 1e-3})
    limits = {round(high, 6) for _, high in drawn}
    assert limits == {round(float(np.abs(truth).max()), 6), 0.001}
    assert pictures.largest(np.zeros(3)) > 0


def test_a_rolled_picture_has_an_error_panel_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits = []

    def saved(figure: Any, out: Path) -> None:
        limits.extend(image.get_clim()[1] for ax in figure.axes for image in ax.images)

    monkeypatch.setattr(rolling, "save_png", saved)
    own: Any = TrainedEmulator(None, None, 1.0, None, 1, 16)  # type: ignore[arg-type]
    truth = np.random.default_rng(0).uniform(-1, 1, (1, 5, 1, 16))
    fields = np.concatenate([truth[:, :1], truth + 1e-3], 1)
    rolling.compare(fields, truth, own, tmp_path / "a.png")
    assert limits[:3] == pytest.approx([np.abs(truth).max(), np.abs(truth).max(), 1e-3])
