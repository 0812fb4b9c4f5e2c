"""From an array to an emulator, and the same by the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fixtures
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.pde.emulator import FieldShape
from jaxrl_rollouts.pde.files import from_arrays, read
from jaxrl_rollouts.pde.fitting import Fitted, fit
from jaxrl_rollouts.pde.objectives import Mse
from jaxrl_rollouts.pde.operators import Drift, Fno, Resnet, Unet
from jaxrl_rollouts.pde.saved import load_emulator
from jaxrl_rollouts.pde.trained import TrainedEmulator
from jaxrl_rollouts.pde.training import Training, training_of
from jaxrl_rollouts.pde.training_fields import hold_fields
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.report import load_report

N = 16
NET = Resnet(width=12, blocks=1, dilations=(1, 2, 1), embedding=8)
QUICK = Training(lr=3e-3, warmup=50, average=0.99)


def waves(count: int = 24, frames: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Waves of 300 and of 0.01 units that move `way` points a frame: `[N, T, 2, X]`, `[N]`."""
    wave, way = fixtures.waves(count, frames, (N,), ways=True)
    return fixtures.two_units(wave), way


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    u, way = waves()
    fields = from_arrays(u, dt=0.5, conditions={"way": way, "same": 1.0})
    return fit("mse", fields, network=NET, steps=500, seeds=2, key=3, training=QUICK)


def test_an_emulator_learns_in_the_datas_own_units(fitted: Fitted) -> None:
    u, way = waves()
    assert list(fitted.emulator.conditions) == ["way"] and fitted.emulator.dt == 0.5
    scales = fitted.emulator.scale
    assert isinstance(scales, tuple) and all(0.1 < scale < 1.0 for scale in scales)  # standardised
    rolled = fitted.roll(u[:, 0], 7, conditions={"way": way}, seed=1)
    assert rolled.shape == (7, 24, 2, N)
    error = np.abs(rolled - np.swapaxes(u[:, 1:], 0, 1)).mean((0, 1, 3))
    assert error[0] < 0.2 * 50 and error[1] < 0.2 * 0.01
    with pytest.raises(ConfigError, match="way"):
        fitted.roll(u[:, 0], 2)
    assert len(repr(fitted)) < 1500 and "array(" not in repr(fitted).lower()


def test_on_another_grid_a_convolution_keeps_its_spacing(fitted: Fitted) -> None:
    """Twice the domain holding the field twice: each half is what the small domain gives."""
    u, way = waves()
    small = fitted.roll(u[:4, 0], 3, conditions={"way": way[:4]})
    own = replace(fitted.emulator, extent=((2.0, 3.0),))
    wide = own.on_grid(2 * N)
    both = wide.roll(np.tile(u[:4, 0], 2), 3, conditions={"way": way[:4]})
    np.testing.assert_allclose(both, np.tile(small, 2), rtol=1e-3, atol=1e-4 * np.abs(small).max())
    assert wide.extent == ((4.0, 6.0),) and wide.on_grid(N).extent == own.extent
    with pytest.raises(ConfigError, match="points: found .*, expected points of 1 axes"):
        own.on_grid((N, N))
    with pytest.raises(ConfigError, match="network: found 'Drift', expected Fno, Resnet"):
        replace(own, network=Drift()).on_grid(N)
    with pytest.raises(ConfigError, match="a multiple of 8"):
        replace(own, network=Unet()).on_grid(20)


def test_on_another_grid_an_fno_keeps_its_domain() -> None:
    """A linear network of three wavenumbers: points that both grids have get the same values."""
    network = Fno(width=1, layers=1, modes=4, embedding=4)
    params = jax.tree.map(jnp.zeros_like, network.make(FieldShape(1, N)).init(jax.random.key(0)))
    params["Dense_0"]["kernel"] = jnp.array([[1.0], [0.0]])
    params["SpectralConv_0"]["real"] = jnp.array([0.0, 0.5, -0.3, -0.8])[:, None, None]
    params["Dense_3"]["kernel"] = jnp.array([[1.0, -1.0]])  # gelu(x) - gelu(-x) = x
    params["Dense_4"]["kernel"] = jnp.array([[1.0], [-1.0]])
    params = jax.tree.map(lambda leaf: leaf[None], params)
    own = TrainedEmulator(network, Mse(), 1.0, params, 1, N, extent=((1.0, 1.0),))
    x = 2 * np.pi * np.arange(3 * N) / (3 * N)
    fine = (np.sin(x) + np.cos(2 * x) + np.sin(3 * x))[None]
    want = 1.5**2 * np.sin(x) + 0.7**2 * np.cos(2 * x) + 0.2**2 * np.sin(3 * x)
    wide = own.on_grid(3 * N)
    assert wide.extent == own.extent
    np.testing.assert_allclose(wide.roll(fine, 2)[1, 0], want, atol=1e-5)
    np.testing.assert_allclose(own.roll(fine[:, ::3], 2)[1, 0], want[::3], atol=1e-5)


def test_it_starts_from_a_file_and_is_saved(fitted: Fitted, tmp_path: Path) -> None:
    u, way = waves()
    fields = from_arrays(u, conditions={"way": way})
    rolled = fitted.roll(fields, 3)
    np.testing.assert_array_equal(rolled, fitted.roll(u[:, 0], 3, conditions={"way": way}))
    fitted.save(tmp_path / "emulator")
    again = load_emulator(tmp_path / "emulator").roll(u[:, 0], 3, conditions={"way": way})
    np.testing.assert_array_equal(again, rolled)


def test_a_second_fit_compiles_nothing(programs: Callable[[], int]) -> None:
    """Of equal settings, its rollouts included; with a constant channel, between walls."""
    u, net = waves(4, 4)[0], fixtures.tiny()
    u[:, :, 1] = u[:, :1, 1]
    fields = from_arrays(u, boundaries="wall")._replace(constant=(1,))
    first = fit("refiner", fields, network=net, steps=2).roll(fields, 2)
    before = programs()
    np.testing.assert_array_equal(
        fit("refiner", fields, network=net, steps=2).roll(fields, 2), first
    )
    assert programs() == before


def test_what_cannot_be_trained_is_refused_by_name() -> None:
    u, _ = waves(2, 3)
    with pytest.raises(DataError, match="u_0: found no change from step to step"):
        fit("mse", u[:, :1].repeat(3, 1), steps=1)
    with pytest.raises(DataError, match="frames: found 3, expected at least 5 for a window"):
        fit("mse", u, stride=2, history=2, steps=1)
    with pytest.raises(ConfigError, match="objective.*did you mean refiner"):
        fit("refine", u, steps=1)
    with pytest.raises(ConfigError, match="network.*did you mean unet"):
        fit("mse", u, network="uunet", steps=1)
    with pytest.raises(DataError, match="u: found nan in trajectory 1, frame 2, channel 0"):
        fit("mse", np.where(np.arange(6).reshape(2, 3, 1, 1) == 5, np.nan, u), steps=1)


def test_windows_are_moved_along_axes_that_are_circles_or_said_to_be() -> None:
    u, _ = waves(2, 6)

    def taken(axes: tuple[int, ...] | None, boundaries: str) -> Training:
        return training_of(
            Training(shift_axes=axes), 1, 1, from_arrays(u, None, None, None, boundaries)
        )

    assert taken(None, "periodic").shift_axes == (0,)
    assert not taken(None, "").random_shift
    assert not taken((), "periodic").random_shift
    assert taken((0,), "").random_shift and taken((0,), "").shift_axes == (0,)  # the caller's word
    for axes in ((1,), (-1,)):
        with pytest.raises(ConfigError, match="shift_axes: .*expected .*axes of space: 0"):
            taken(axes, "periodic")
    with pytest.raises(ConfigError, match="expected periodic axes; array has axis 0: wall"):
        taken((0,), "wall")


def test_a_network_knows_its_grid() -> None:
    net = NET.make(FieldShape(1, N, conditions=1))
    params, given = net.init(jax.random.key(0)), jnp.zeros((1,))

    def apply(*shape: int) -> jax.Array:
        return net.apply(params, jnp.zeros(shape), jnp.zeros(shape), 0.0, given)

    assert apply(1, N).shape == (1, N)
    with pytest.raises(ConfigError, match=r"on 16 x 16 points', expected 1 channels .* on 16 p"):
        apply(1, N, N)
    with pytest.raises(ConfigError, match="on 8 points', expected 1 channels .* on 16 points"):
        apply(1, N // 2)
    with pytest.raises(ConfigError, match="2 channels"):
        apply(2, N)
    with pytest.raises(ConfigError, match="conditions: found '\\[0\\]', expected \\[1\\]"):
        net.apply(params, jnp.zeros((1, N)), jnp.zeros((1, N)), 0.0, jnp.zeros((0,)))
    assert Unet().hidden


def test_from_a_file_to_a_report_and_a_long_rollout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    u, way = waves()
    file, out = tmp_path / "waves.npz", tmp_path / "runs"
    np.savez(file, u=u[:, :, :1], dt=0.5, way=way, boundaries=np.asarray("periodic"))
    sizes = "--network.width 8 --network.blocks 1 --network.dilations 1 2 --network.embedding 8"
    short = "--objective mse --steps 20 --batch 8"
    cli.dispatch(
        ["pde", "train", str(file), "--out", str(out), "--no-progress", "--history", "2"]
        + sizes.split()
        + short.split()
    )
    (folder,) = out.iterdir()
    report = load_report(folder)
    rows = report.tables["on trajectories it has not seen"]
    assert [row[""] for row in rows] == ["mse", "mse, low-pass", "linear", "persistence"]
    assert rows[0]["one-step MSE"].seeds == 2
    assert set(report.pictures) == {"rollouts", "correlation", "spectra", "validation"}
    rolled, picture = tmp_path / "rolled.h5", tmp_path / "rolled.png"
    capsys.readouterr()
    cli.dispatch(
        ["pde", "roll", str(folder), str(file), "--steps", "30", "--rows", "3"]
        + ["--out", str(rolled), "--picture", str(picture)]
    )
    assert "stays above 0.8" in capsys.readouterr().out and picture.stat().st_size
    found = read(rolled)
    assert found.shape == (3, 31, 1, N) and found.dt[0] == 0.5
    np.testing.assert_allclose(found.read(ALL, 0)[:, 0, 0], u[:3, 1, 0], rtol=1e-6)
    before = load_report(folder).to_json()["tables"]
    cli.dispatch(["resume", str(folder), "--no-progress"])
    assert load_report(folder).to_json()["tables"] == before


ALL = slice(None)


def test_a_run_goes_on_with_the_fields_it_began_with(tmp_path: Path) -> None:
    context = RunContext(RunFolder.at(tmp_path / "run", "waves"), progress=False)
    u = waves()[0]
    fields = from_arrays(u, dt=0.5)
    for part, values in (("training", u), ("test", u[:3]), ("training", u)):
        hold_fields(fields, values, part, context)
    with pytest.raises(DataError, match=r"run.json: data.*training.*sha256: found .*new run"):
        fit("mse", from_arrays(-u, dt=0.5), stage="training", network=NET, context=context)
    hold_fields(fields, -u, "training", None)
