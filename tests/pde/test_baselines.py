"""Baselines that are exact where they should be, and measures of flows with known answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_solving import TURN, plane

from jaxrl_rollouts import pde
from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.pde import metrics
from jaxrl_rollouts.pde.baselines import (
    fit_linear,
    low_pass_cut,
    make_linear,
    make_low_pass,
    make_solver,
)
from jaxrl_rollouts.pde.emulator import persistence
from jaxrl_rollouts.pde.equations import equation
from jaxrl_rollouts.pde.field import roll_emulator
from jaxrl_rollouts.pde.fieldset import Scaling
from jaxrl_rollouts.pde.files import from_arrays, read
from jaxrl_rollouts.pde.fitting import fit
from jaxrl_rollouts.pde.flows import Flow, find_flow, flow_errors, to_velocity
from jaxrl_rollouts.pde.spectral import lengths, resampled
from jaxrl_rollouts.pde.training import Training
from jaxrl_rollouts.reports.report import load_report

KEY = jax.random.key(0)


def drifting(grid: tuple[int, ...], frames: int = 12, count: int = 30) -> np.ndarray:
    """Two channels, of which the second follows the first: `[N, T, 2, *grid]`, every wave by a
    factor of its own and along the first axis."""
    rng = np.random.default_rng(1)
    axes = tuple(range(-len(grid), 0))
    modes = np.fft.rfftn(rng.normal(size=(count, 2, *grid)), axes=axes)
    first = np.fft.fftfreq(grid[0], 1 / grid[0]) if len(grid) > 1 else np.arange(modes.shape[-1])
    turn = np.exp(-0.3j * first - 0.02 * first**2).reshape(-1, *(1,) * (len(grid) - 1))
    fields = []
    for _ in range(frames):
        fields.append(np.fft.irfftn(modes, s=grid, axes=axes))
        a, b = modes[:, 0], modes[:, 1]
        modes = np.stack([turn * a, 0.5 * a + 0.4 * b], 1)
        modes = np.fft.rfftn(np.fft.irfftn(modes, s=grid, axes=axes), axes=axes)
    return np.stack(fields, 1)


@pytest.mark.parametrize(("grid", "every"), [((16,), 1), ((8, 12), 1), ((8, 12), 3)])
def test_the_linear_map_of_linear_fields_is_found(grid: tuple[int, ...], every: int) -> None:
    u = drifting(grid)
    params = jnp.asarray(fit_linear([u[:20], u[20:25]], stride=every))
    start = jnp.asarray(u[25:, 0], jnp.float32)
    rolled = roll_emulator(make_linear(len(grid)), params, start, jnp.zeros((5, 0)), KEY, 3)
    truth = np.swapaxes(u[25:, every : 4 * every : every], 0, 1)
    np.testing.assert_allclose(rolled, truth, atol=2e-3)


def test_two_frames_make_a_wave_linear() -> None:
    """u_{t+1} = 2 cos(w k) u_t - u_{t-1}: of one frame nobody knows where a wave goes."""
    rng, x = np.random.default_rng(0), np.arange(16) / 16 * TURN
    k = np.arange(1, 6)
    amplitude, phase = rng.normal(size=(2, 40, 5)), rng.uniform(0, TURN, (40, 5))
    time = np.arange(9)
    swing = np.cos(0.4 * k * time[:, None] + phase[:, None])
    waves = np.stack([np.cos(k[:, None] * x), np.sin(k[:, None] * x)])
    u = np.einsum("jnk,ntk,jkx->ntx", amplitude, swing, waves)[:, :, None]
    errors = []
    for history in (1, 2):
        params = jnp.asarray(fit_linear([u], history))
        start = jnp.asarray(u[:, :history, 0], jnp.float32)
        rolled = roll_emulator(make_linear(1, history), params, start, jnp.zeros((40, 0)), KEY, 3)
        errors.append(np.abs(rolled - np.swapaxes(u[:, history : history + 3], 0, 1)).max())
    assert errors[0] > 0.5 and errors[1] < 5e-3


def test_a_cut_is_where_the_error_exceeds_the_field() -> None:
    assert low_pass_cut(np.array([9.0, 1, 1, 3, 1]), np.array([1.0, 5, 4, 2, 9])) == 3
    assert low_pass_cut(np.ones(4), np.full(4, 2.0)) == 4


def test_what_is_cut_off_is_gone_and_the_rest_is_as_it_was() -> None:
    u = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4, 8, 8)), jnp.float32)
    gain = jnp.asarray(lengths((8, 8)) < 2.5)
    emulator = make_low_pass(persistence(2), 2)
    rolled = roll_emulator(emulator, ((), gain), u, jnp.zeros((3, 0)), KEY, 2)
    modes, before = (np.fft.rfft2(np.asarray(x)) for x in (rolled[-1], u[:, 2:]))
    np.testing.assert_allclose(modes, before * np.asarray(gain), atol=1e-4)


def test_the_solver_steps_every_trajectory_as_it_was_made() -> None:
    made = pde.Simulation(
        "burgers_2d", trajectories=3, frames=3, points=16, chunk=4,
        extent=(5.0, 7.0), dt=(0.03, 0.06), parameter_range=(0.05, 0.2),
    )  # fmt: skip
    fields = pde.solve(made)
    u = fields.read(slice(None), slice(None))
    units = (Scaling(0.1, 2.0), Scaling(-0.2, 0.5))
    shift, factor = (np.reshape(c, (2, 1, 1)) for c in zip(*units, strict=True))
    solver = make_solver(equation("burgers_2d"), 16, units, made.substeps)
    told = np.stack([fields.extent[:, 0], fields.dt, fields.parameters["diffusivity"]], 1)
    start = jnp.asarray((u[:, 0] - shift) * factor, jnp.float32)
    rolled = roll_emulator(solver, (), start, jnp.asarray(told, jnp.float32), KEY, 2)
    np.testing.assert_allclose(rolled / factor + shift, np.swapaxes(u[:, 1:], 0, 1), atol=1e-5)


def test_relative_l1_is_the_mean_of_the_channels() -> None:
    rng = np.random.default_rng(0)
    p, t = rng.normal(size=(2, 4, 3, 2, 5, 6))
    expected = np.abs(p - t).sum((-1, -2)) / np.abs(t).sum((-1, -2))
    np.testing.assert_allclose(metrics.relative_l1(p, t), expected.mean(-1), rtol=1e-5)


def test_a_wave_has_the_structure_function_of_a_wave() -> None:
    """<|sin(k (x + r)) - sin(k x)|^2> = 1 - cos(k r) along its axis, nothing across."""
    x, _ = plane(24)
    wave = jnp.broadcast_to(jnp.sin(3 * x), (2, 24, 24))
    found = metrics.structure_function(wave, 2)
    r = np.arange(1, 13) * TURN / 24
    np.testing.assert_allclose(found, 2 * (1 - np.cos(3 * r)) / 2, atol=1e-5)


def test_flows_are_known_by_their_channels() -> None:
    u = np.random.default_rng(0).normal(size=(2, 3, 3, 8, 8))
    names = ("pressure", "velocity_x", "velocity_y")
    assert find_flow(from_arrays(u, names=names)) == Flow((1, 2))
    assert find_flow(from_arrays(u[:, :, :1], names=("vorticity",))) == Flow((0,))
    assert find_flow(from_arrays(u, names=names, boundaries=("wall", "periodic"))) is None
    assert find_flow(from_arrays(u[..., :6], names=names)) is None
    assert find_flow(from_arrays(u)) is None
    assert find_flow(from_arrays(u, names=names, dx=(0.5, 0.5))) == Flow((1, 2))
    assert find_flow(from_arrays(u, names=names, dx=(0.5, 1.0))) is None  # no square


def test_a_flow_is_judged_alike_by_vorticity_and_by_velocity() -> None:
    """Taylor-Green of half the amplitude: the same vorticity pattern, a quarter of the energy."""
    (x, y), k = plane(16), 2
    w = jnp.broadcast_to(jnp.cos(k * x) * jnp.cos(k * y), (4, 2, 1, 16, 16))
    v = to_velocity(w, 1.0)
    for flow, fields in ((Flow((0,)), w), (Flow((0, 1)), v)):
        found = flow_errors(flow, fields / 2, fields)
        np.testing.assert_allclose(found.vorticity, 1.0, atol=1e-5)
        np.testing.assert_allclose(found.energy, -0.75, atol=1e-5)
        np.testing.assert_allclose(found.enstrophy, -0.75, atol=1e-5)
        np.testing.assert_allclose(found.structure, 0.75, atol=1e-4)
        only = np.where(np.arange(9) == 3, 0.25, np.nan)  # |k| = 2.8
        np.testing.assert_allclose(found.energy_spectrum, only, atol=1e-5)


@pytest.mark.parametrize(("grid", "extent"), [((16,), ()), ((12, 16), (3.0, 2.0)), ((8, 6, 5), ())])
def test_energies_of_all_wavenumbers_add_up(grid: tuple[int, ...], extent: Sequence[float]) -> None:
    """Parseval, for a field without modes in the corners; a wave is in the shell of its length."""
    axes, random = len(grid), np.random.default_rng(0)
    v = random.normal(size=(3, axes, *grid))
    number, count = metrics.shells(grid, extent)
    v = jnp.fft.irfftn(jnp.fft.rfftn(v, axes=range(-axes, 0)) * (number < count), s=grid)
    found = metrics.energy_spectrum(v, axes, extent)
    assert found.shape == (3, count)
    np.testing.assert_allclose(found.sum(-1), metrics.energy(v, axes), rtol=1e-5)
    x = np.indices(grid)[0] / grid[0]
    wave = jnp.broadcast_to(jnp.cos(2 * 2 * np.pi * x), (axes, *grid))
    longest = max(extent or grid) / (extent or grid)[0]
    want = np.where(np.arange(count) == round(2 * longest), axes / 4, 0.0)
    np.testing.assert_allclose(metrics.energy_spectrum(wave, axes, extent), want, atol=1e-6)


@pytest.mark.parametrize(("old", "new"), [(32, 12), (12, 32)])
def test_a_band_limited_field_is_the_same_on_another_grid(old: int, new: int) -> None:
    """And striding one that is not is aliased, which cutting off is not."""

    def wave(points: int, k: int) -> jax.Array:
        x, y = plane(points)
        return jnp.cos(k * x - 2 * y) + jnp.sin(3 * y)

    np.testing.assert_allclose(resampled(wave(old, 5), new, 2), wave(new, 5), atol=1e-5)
    if old > new:
        cut = resampled(wave(old, 7), new, 2)
        np.testing.assert_allclose(cut, jnp.sin(3 * plane(new)[1]) + 0 * cut, atol=1e-5)


SHORT = "--network fno --network.width 4 --network.layers 1 --network.modes 2 --steps 10 --batch 4"


@pytest.fixture(scope="module")
def forced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("flow") / "forced.hdf5"
    few = "--trajectories 5 --frames 6 --burn-in 2 --points 16 --substeps 4 --no-progress"
    cli.dispatch(
        ["pde", "generate", "--equation", "kolmogorov_2d", "--out", str(file), *few.split()]
    )
    return file


@pytest.mark.slow
def test_a_file_says_its_equation_and_where_it_is_forced(forced: Path) -> None:
    found = read(forced)
    assert found.equation == "kolmogorov_2d"
    quick = Training(batch=4)
    net = pde.Fno(width=4, layers=1, modes=2, embedding=8)
    arms = [
        fit("mse", found, network=net, steps=2, training=training)
        for training in (quick, Training(batch=4, shift_axes=(0,)))
    ]
    same = jax.tree.map(np.array_equal, *(arm.params for arm in arms))
    assert all(jax.tree.leaves(same))
    everywhere = fit("mse", found._replace(equation=""), network=net, steps=2, training=quick)
    other = jax.tree.map(np.array_equal, arms[0].params, everywhere.params)
    assert not all(jax.tree.leaves(other))


@pytest.mark.slow
def test_a_report_lays_everything_that_is_free_beside(forced: Path, tmp_path: Path) -> None:
    cli.dispatch(
        ["pde", "train", str(forced), "--out", str(tmp_path), "--no-progress", *SHORT.split()]
    )
    (folder,) = tmp_path.iterdir()
    tables = load_report(folder).tables
    names = [row[""] for row in tables["as others measure it"]]
    assert names == ["refiner", "mse", "mse, low-pass", "linear", "solver", "persistence"]
    solver = tables["as others measure it"][4]
    assert solver["relative L1 at the end, %"].iqm < 0.01
    assert solver["kinetic energy at the end, % off"].iqm < 0.01
    assert tables["on trajectories it has not seen"][4]["T(0.8), mean curve, time"].iqm > 0.7


def test_a_solver_needs_the_parameter(forced: Path, tmp_path: Path) -> None:
    file = tmp_path / "flow.npz"
    found = read(forced)
    np.savez(file, u=found.read(slice(None), slice(None)), dt=0.2, dx=TURN / 16)
    command = ["pde", "train", str(file), "--out", str(tmp_path / "runs"), "--no-progress"]
    with pytest.raises(
        DataError, match="no parameters, expected viscosity, for .*--baselines linear"
    ):
        cli.dispatch([*command, "--equation", "kolmogorov_2d", *SHORT.split()])
    assert not (tmp_path / "runs").exists()  # said before anything is trained
