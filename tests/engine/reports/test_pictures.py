from __future__ import annotations

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.image import imread

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.reports import pictures
from jaxrl_rollouts.reports.statistics import iqm, summarize


def test_curve_is_the_iqm_with_gaps_and_a_band() -> None:
    figure, (ax,) = pictures.figure(title="t", titles=["panel"])
    values = np.random.default_rng(0).normal(size=(8, 5))
    values[3, 2] = np.nan
    pictures.curve_with_band(ax, range(5), values, "RAVL")
    drawn = np.asarray(ax.lines[0].get_ydata())
    kept = [0, 1, 3, 4]
    np.testing.assert_allclose(drawn[kept], iqm(values[:, kept], axis=0))
    assert np.isnan(drawn[2])
    assert len(ax.collections) == 1
    pictures.curve_with_band(ax, range(5), values[:1], "single")
    assert len(ax.collections) == 1  # one seed has no band
    pictures.curve_with_band(ax, [10], [[1.0], [3.0]], "once")
    assert [line.get_marker() for line in ax.get_lines()][-2:] == ["", "o"]  # a lone point is seen
    with pytest.raises(ValueError, match=r"expected \[seeds, points\]"):
        pictures.curve_with_band(ax, range(4), np.zeros((2, 3)), "a")


def test_a_name_keeps_its_colour() -> None:
    assert pictures.colour("something new") == pictures.colour("something new")
    assert pictures.colour("something new") in pictures.PALETTE
    known = {"ravl": "#0072B2"}
    assert pictures.colour("RAVL (10 critics)", known) == "#0072B2"
    _, (ax,) = pictures.figure()
    pictures.curve_with_band(ax, range(3), np.eye(3), "RAVL", colours={"ravl": "#123456"})
    assert ax.lines[0].get_color() == "#123456"


def test_interval_bars_show_interval_and_divergence() -> None:
    _, (ax,) = pictures.figure()
    good = summarize(np.random.default_rng(1).normal(size=10))
    pictures.intervals(ax, {"ravl": good, "base": [1.0, np.inf, 2.0]}, xlabel="score")
    (bar,) = ax.patches
    low, high = good.interval
    assert bar.get_x() == pytest.approx(low)  # type: ignore[attr-defined]
    assert bar.get_width() == pytest.approx(high - low)  # type: ignore[attr-defined]
    assert [t.get_text() for t in ax.texts] == ["diverged"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["RAVL", "MBPO"]


def test_heavy_pictures_stay_small_and_same_figures_same_bytes(tmp_path: Path) -> None:
    def draw() -> pictures.Figure:
        figure, axes = pictures.figure(width=5, height=4)
        noise = np.random.default_rng(0).random((800, 800))
        for ax in axes:
            ax.imshow(noise, interpolation="nearest")
        return figure

    one, two = (pictures.save_png(draw(), tmp_path / n) for n in ("a.png", "b.png"))
    assert one.stat().st_size <= pictures.MAX_BYTES
    assert one.read_bytes() == two.read_bytes()
    picture = imread(one)
    assert picture.ndim == 3
    assert picture.shape[1] < 5 * pictures.DPI, "it was too heavy at first"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "b.png"]


def test_vector_files_beside_png_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw(name: str) -> Path:
        figure, (ax,) = pictures.figure()
        pictures.curve_with_band(ax, range(3), np.eye(3), "base")
        pictures.legend(figure, [ax])
        return pictures.save_png(figure, tmp_path / name / "a.png")

    for name in "one", "two":
        (tmp_path / name).mkdir()
    monkeypatch.setenv(pictures.FORMATS, "svg, pdf")
    one, two = draw("one").parent, draw("two").parent
    assert sorted(path.name for path in one.iterdir()) == ["a.pdf", "a.png", "a.svg"]
    assert "MBPO" in (one / "a.svg").read_text() and (one / "a.pdf").read_bytes()[:4] == b"%PDF"
    for path in one.iterdir():
        assert path.read_bytes() == (two / path.name).read_bytes()
    monkeypatch.setenv(pictures.FORMATS, "swg")
    with pytest.raises(ConfigError, match="JAXRL_ROLLOUTS_PICTURES: found 'swg'.*did you mean svg"):
        pictures.formats()


def test_names_that_would_share_a_colour_do_not_in_one_panel() -> None:
    names = ("plan loss", "inverse loss")
    assert len({pictures.colour(name) for name in names}) == 1
    _, (ax,) = pictures.figure()
    for name in (*names, names[0]):
        pictures.curve_with_band(ax, range(3), np.zeros((1, 3)), name)
    first, second, again = (line.get_color() for line in ax.get_lines())
    assert first == again == pictures.colour(names[0]) and second in set(pictures.PALETTE) - {first}
    # A colour that was asked for stays, and another style needs no other colour.
    pictures.curve_with_band(ax, range(3), np.zeros((1, 3)), "x", colour_name=first)
    pictures.curve_with_band(ax, range(3), np.zeros((1, 3)), "y", colours={"y": first})
    pictures.curve_with_band(ax, range(3), np.zeros((1, 3)), names[1], linestyle="--")
    assert {line.get_color() for line in ax.get_lines()[3:]} == {first}


def test_a_picture_that_is_a_little_too_heavy_loses_colours_before_pixels(tmp_path: Path) -> None:
    figure, (ax,) = pictures.figure(width=4.5, height=3)
    x = np.linspace(0, 60, 700)
    ax.imshow(
        np.sin(x)[:, None] * np.cos(1.3 * x) + 0.1 * np.sin(x[:, None] * x / 9), cmap="viridis"
    )
    image = imread(pictures.save_png(figure, tmp_path / "a.png"))
    assert (tmp_path / "a.png").stat().st_size <= pictures.MAX_BYTES
    assert image.shape[:2] == (3 * pictures.DPI, 4.5 * pictures.DPI)


def test_a_legend_names_each_once_and_leaves_the_curves_alone() -> None:
    figure, axes = pictures.figure(1, 2)
    for ax in axes:
        pictures.curve_with_band(ax, range(3), np.eye(3), "ravl")
    pictures.legend(figure, axes)
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["RAVL"]
    pictures.legend(figure, axes[:1])
    assert axes[0].get_legend() is not None
    figure, (ax,) = pictures.figure()
    for name in ("base", "mopo", "mobile", "ravl", "neubay"):
        pictures.curve_with_band(ax, range(3), np.eye(3), name)
    pictures.legend(figure, [ax])
    assert ax.get_legend() is None and len(figure.legends[0].get_texts()) == 5


@pytest.mark.parametrize("suffix", ["", ", then the solver until its end"])
def test_a_legend_is_no_wider_than_its_picture(suffix: str) -> None:
    figure, (ax,) = pictures.figure(width=5.6, height=3.0)
    for name in ("fno", "unet", "resnet", "drift", "linear", "persistence"):
        ax.plot([0, 1], label=name + suffix)
    pictures.legend(figure, [ax])
    (drawn,) = figure.legends
    assert drawn.get_window_extent().width <= figure.bbox.width
    assert (drawn._ncols < 5) == bool(suffix)


def test_no_global_state() -> None:
    pictures.figure(title="x")
    assert plt.get_fignums() == []
    ours, users = (
        {name: value for name, value in found.items() if not name.startswith("backend")}
        for found in (matplotlib.rcParams, matplotlib.rc_params())
    )
    assert ours == users
