"""Flows in the plane: exact solutions, balances, order in the step, signs, files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_solving import TURN, march, plane
from scipy import integrate

from jaxrl_rollouts import pde
from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.pde.comparison import solver_conditions
from jaxrl_rollouts.pde.equations import DRAG, EQUATIONS, KILL, WAVES
from jaxrl_rollouts.pde.files import read
from jaxrl_rollouts.pde.flows import to_velocity, to_vorticity
from jaxrl_rollouts.pde.generate_settings import SUITED
from jaxrl_rollouts.pde.starts import Domain, piecewise, ripples, shear_layer, squares, vortices

N = 32


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def turning(seed: int = 0, points: int = N) -> jax.Array:
    return vortices(jax.random.key(seed), Domain(points, TURN), peak=3.0, std=(1.0, 1.0))


@pytest.mark.parametrize("dt", [0.5, 0.05])
def test_taylor_green_keeps_its_shape_and_decays(dt: float) -> None:
    """w = 2 k cos(k x) cos(k y) exp(-2 viscosity k^2 t), whatever the step."""
    (x, y), k, nu, time = plane(N), 3, 0.02, 2.0
    start = (2 * k * jnp.cos(k * x) * jnp.cos(k * y))[None]
    solver = EQUATIONS["navier_stokes_2d"].solver(N, TURN, dt, nu)
    after = march(solver, start, round(time / dt))
    np.testing.assert_allclose(after, start * np.exp(-2 * nu * k**2 * time), atol=1e-8)


@pytest.mark.parametrize("extent", [TURN, 3.0])
def test_a_state_moves_with_its_velocity(extent: float) -> None:
    """One tiny step is w - dt (v . grad) w, with v of `to_velocity`."""
    w, dt = turning(), 1e-6
    solver = EQUATIONS["navier_stokes_2d"].solver(N, extent, dt, 0.0)
    change = (np.asarray(solver(w)) - w) / dt
    v, k = to_velocity(w, extent), np.fft.fftfreq(N, extent / N / TURN)
    gradient = [
        np.fft.ifft2(1j * axis * np.fft.fft2(np.asarray(w[0]))).real
        for axis in (k[:, None], k[None])
    ]
    expected = -(v[0] * gradient[0] + v[1] * gradient[1])
    # The solver drops what its products alias; the lowest waves are the same.
    low = np.fft.rfft2(np.stack([change[0], expected]))[:, :5, :5]
    np.testing.assert_allclose(low[0], low[1], atol=1e-3 * np.abs(low[1]).max())


def test_velocity_and_vorticity_are_each_others_inverse() -> None:
    w = jnp.stack([turning(0), turning(1)])
    v = to_velocity(w, 3.0)
    assert v.shape == (2, 2, N, N)
    np.testing.assert_allclose(to_vorticity(v, 3.0), w, atol=1e-9)
    k = np.fft.fftfreq(N, 3.0 / N / TURN)
    modes = np.fft.fft2(np.asarray(v))
    divergence = k[:, None] * modes[:, 0] + k[None] * modes[:, 1]
    assert np.abs(divergence).max() < 1e-9 * np.abs(modes).max() * np.abs(k).max()
    np.testing.assert_allclose(v.mean((-1, -2)), 0.0, atol=1e-12)
    with pytest.raises(DataError, match=r"shape: found .*expected \[..., 1, N, N\]"):
        to_velocity(v, 3.0)


@pytest.mark.parametrize("extent", [TURN, 4.0])
def test_the_laminar_kolmogorov_flow_stays(extent: float) -> None:
    """w = q / (viscosity q^2 + drag) cos(q y), q = 4 2 pi / L: the curl for a force -sin(q y)."""
    (_, y), nu = plane(N, extent), 0.5
    q = WAVES * TURN / extent
    laminar = jnp.broadcast_to(q / (nu * q**2 + DRAG) * jnp.cos(q * y), (1, N, N))
    # exponax has mode times amplitude in the place of q times amplitude; see `_kolmogorov`.
    solver = EQUATIONS["kolmogorov_2d"].solver(N, extent, 0.05, nu)
    np.testing.assert_allclose(march(solver, laminar, 40), laminar, atol=1e-9)
    away = march(solver, laminar + 1e-2 * turning(), 400)  # stable at so large a viscosity
    assert np.abs(away - laminar).max() < 1e-5


@pytest.mark.parametrize("name", ["navier_stokes_2d", "kolmogorov_2d", "ks_2d", "burgers_2d"])
def test_fourth_order_in_the_step(name: str) -> None:
    which = EQUATIONS[name]
    extent = SUITED[name]["extent"][0]
    value = {"ks_2d": 1.0}.get(name, 0.05)
    time = {"ks_2d": 4.0, "burgers_2d": 0.4}.get(name, 0.5)
    start = which.initial(jax.random.key(1), N)
    counts = (1280, 80, 160) if name == "ks_2d" else (640, 20, 40)  # stiff: later in its limit
    exact, coarse, fine = (
        march(which.solver(N, extent, time / steps, value), start, steps) for steps in counts
    )
    errors = [np.abs(found - exact).max() for found in (coarse, fine)]
    assert 3.6 < np.log2(errors[0] / errors[1]) < 4.6


def test_initial_fields_are_resolved_and_of_their_size() -> None:
    w = np.asarray(vortices(jax.random.key(3), Domain(48, TURN), std=(2.0, 2.0)))
    assert w.shape == (1, 48, 48)
    assert w.std() == pytest.approx(2.0) and abs(w.mean()) < 1e-12
    modes = np.abs(np.fft.rfft2(w[0]))
    assert modes[16:33].max() < 1e-9 * modes.max() and modes[:, 16:].max() < 1e-9 * modes.max()
    waves = np.asarray(ripples(jax.random.key(3), Domain(24, TURN, 2)))
    assert waves.shape == (2, 24, 24)
    assert np.abs(np.fft.rfft2(waves))[:, 3:-2].max() < 1e-9


def test_shear_layers_are_the_curl_of_their_velocities() -> None:
    """Two jumps of tanh along y, and a sine along x that pushes them."""
    points, extent = 128, 3.0
    key = jax.random.key(5)
    w = shear_layer(key, Domain(points, extent), sharpness=(12.0, 12.0), push=(0.05, 0.05), waves=2)
    first, second = np.asarray(to_velocity(w, extent))
    # Of y only, from -1 to 1 and back; without its mean, which is zero by symmetry.
    np.testing.assert_allclose(first, np.broadcast_to(first[:1], first.shape), atol=1e-9)
    y = np.arange(points) / points
    shapes = []
    for moved in np.linspace(0, 1, 8 * points, endpoint=False):
        z = (y + moved) % 1
        shapes.append(np.where(z <= 0.5, np.tanh(12 * (z - 0.25)), np.tanh(12 * (0.75 - z))))
    nearest = np.abs(np.stack(shapes) - first[0]).max(1).min()
    assert nearest < 0.02  # the shift is found to an eighth of a point
    np.testing.assert_allclose(second, np.broadcast_to(second[:, :1], second.shape), atol=1e-9)
    modes = np.abs(np.fft.rfft(second[:, 0])) * 2 / points
    assert modes.max() == pytest.approx(0.05) and modes.argmax() in (1, 2)
    assert np.sort(modes)[-2] < 1e-9


def test_a_board_of_vorticity_is_constant_on_its_fields() -> None:
    w = np.asarray(piecewise(jax.random.key(2), Domain(160, TURN), board=5, std=(3.0, 3.0)))[0]
    assert w.std() == pytest.approx(3.0) and abs(w.mean()) < 1e-9
    inner = w.reshape(5, 32, 5, 32)[:, 12:20, :, 12:20]
    # Cut off in Fourier space, so that some of the edges' ringing is left.
    assert inner.std((1, 3)).max() < 0.05 * w.std()
    assert len(np.unique(inner.mean((1, 3)).round(3))) == 25


def test_two_species_react_alike_everywhere_as_their_ordinary_equations_do() -> None:
    """Without differences in space: a' = f (1 - a) - a b^2, b' = a b^2 - (f + k) b."""
    feed, dt, steps = 0.035, 0.25, 80

    def rate(_: float, state: np.ndarray) -> list[float]:
        a, b = state
        return [feed * (1 - a) - a * b**2, a * b**2 - (feed + KILL) * b]

    exact = integrate.solve_ivp(rate, (0, dt * steps), [0.6, 0.3], rtol=1e-11, atol=1e-12).y[:, -1]
    start = jnp.broadcast_to(jnp.asarray([0.6, 0.3])[:, None, None], (2, 16, 16))
    found = march(EQUATIONS["gray_scott_2d"].solver(16, 1.0, dt, feed), start, steps)
    np.testing.assert_allclose(found, np.broadcast_to(exact[:, None, None], (2, 16, 16)), atol=1e-8)


def test_species_begin_in_squares() -> None:
    a, b = np.asarray(squares(jax.random.key(0), Domain(64, 1.0, 2), count=1, side=0.25))
    assert min(a.min(), b.min()) >= 0.0 and max(a.max(), b.max()) <= 1.0
    assert np.median(a) > 0.99 and np.median(b) < 0.01
    assert (b > 0.125).sum() == pytest.approx(16**2, rel=0.15)


@pytest.mark.slow
def test_flows_begin_with_what_is_asked_for(tmp_path: Path) -> None:
    short = {"trajectories": 2, "frames": 2, "points": 32, "chunk": 2, "substeps": 2}
    with jax.enable_x64(False):
        sets = {
            start: pde.solve(pde.Simulation("navier_stokes_2d", initial_condition=start, **short))
            for start in ("", "vortices", "shear_layer", "piecewise")
        }
        fields = {name: found.read(slice(None), slice(None)) for name, found in sets.items()}
    np.testing.assert_array_equal(fields[""], fields["vortices"])
    assert not np.allclose(fields["vortices"][:, 0], fields["piecewise"][:, 0])
    spread = fields["shear_layer"][:, 0, 0].std(1).mean(-1)  # along x: only the push
    assert (spread < 0.3 * fields["shear_layer"][:, 0, 0].std((1, 2))).all()
    with pytest.raises(ConfigError, match="start: found 'vortices', expected one of squares"):
        pde.solve(pde.Simulation("gray_scott_2d", initial_condition="vortices"))


def test_from_the_command_line_to_a_file_of_the_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flow.hdf5"
    command = [
        "pde",
        "generate",
        "--equation",
        "kolmogorov_2d",
        "--out",
        str(file),
        "--no-progress",
    ]
    few = "--trajectories 2 --frames 3 --burn-in 2 --points 32 --substeps 4"
    with jax.enable_x64(False):
        cli.dispatch(command + few.split())
    assert "2 trajectories of 3 frames" in capsys.readouterr().out
    found = read(file)
    assert found.shape == (2, 3, 1, 32, 32) and found.channels == ("vorticity",)
    assert found.boundaries == ("periodic", "periodic")
    np.testing.assert_allclose(found.extent, TURN)
    np.testing.assert_allclose(found.parameters["viscosity"], 0.025)
    with pytest.raises(ConfigError, match="--layout: .*well: apebench is of one axis"):
        cli.dispatch([*command, "--layout", "apebench"])


def test_from_the_command_line_to_a_file_of_pdearena(tmp_path: Path) -> None:
    file = tmp_path / "flow_train.h5"
    command = ["pde", "generate", "--no-progress", "--layout", "pdearena", "--out", str(file)]
    few = ["--trajectories", "2", "--frames", "3", "--points", "16", "--substeps", "4"]
    with jax.enable_x64(False):
        cli.dispatch([*command, "--equation", "navier_stokes_2d", *few])
        found = read(file)
        assert found.shape == (2, 3, 3, 16, 16) and found.channels == ("u", "vx", "vy")
        assert found.equation == "navier_stokes_2d" and set(found.parameters) == {"viscosity"}
        with pytest.raises(DataError, match="found 3 channel.*leave the solver out"):
            solver_conditions(found, 1)
        with pytest.raises(ConfigError, match="--layout: .*well: pdearena holds a vorticity"):
            cli.dispatch([*command, "--equation", "gray_scott_2d", *few])
