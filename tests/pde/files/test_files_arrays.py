"""Trajectories that are arrays: what is taken, what is refused, and plain files of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.pde.fieldset import check_trainable, condition_values, take_trajectories
from jaxrl_rollouts.pde.files import complete, from_arrays, read, read_arrays
from jaxrl_rollouts.pde.streaming import all_fields

RNG = np.random.default_rng(0)
U = RNG.normal(size=(3, 5, 8)).astype("f4")
ALL = slice(None)


def test_an_array_without_channels_gets_one() -> None:
    found = from_arrays(U, dt=0.1, dx=[0.5, 0.25, 0.125], conditions={"nu": [1, 2, 3], "c": 2})
    assert found.shape == (3, 5, 1, 8) and found.channels == ("u",)
    np.testing.assert_array_equal(found.read([2, 0], slice(1, 3))[:, :, 0], U[[2, 0], 1:3])
    np.testing.assert_array_equal(found.read(1, ALL)[0, :, 0], U[1])
    np.testing.assert_allclose(found.extent[:, 0], [4.0, 2.0, 1.0])
    np.testing.assert_array_equal(found.parameters["c"], [2, 2, 2])
    np.testing.assert_allclose(condition_values(found, "nu")[:, 0], [1, 2, 3])


def test_up_to_three_axes_are_kept_and_trained_on() -> None:
    plane = from_arrays(U.reshape(3, 5, 1, 2, 4), dx=(0.5, 1.0), boundaries=("periodic", "wall"))
    assert plane.shape == (3, 5, 1, 2, 4)
    np.testing.assert_allclose(plane.extent[0], [1.0, 4.0])
    check_trainable(plane)
    check_trainable(from_arrays(U, boundaries=""))
    assert from_arrays(U.reshape(3, 5, 2, 4), axes=2).shape == (3, 5, 1, 2, 4)
    assert from_arrays(U.reshape(3, 5, 2, 4)).channels == ("u_0", "u_1")
    with pytest.raises(DataError, match="frames: found 1, expected at least 2"):
        check_trainable(from_arrays(U[:, :1]))


def spoilt(value: float) -> np.ndarray:
    u = np.repeat(U[:, :, None], 2, 2)
    u[2, 3, 1, 5] = value
    return u


REFUSED: dict[str, tuple[Any, dict, str]] = {
    "nan": (spoilt(np.nan), {}, r"found nan in trajectory 2, frame 3, channel 1 \(u_1\)"),
    "inf": (spoilt(-np.inf), {"names": "ab"}, r"found -inf in .* channel 1 \(b\)"),
    "two axes": (U[0], {}, r"shape \[5, 8\], expected \[N, T, X\]"),
    "nothing": (U[:0], {}, "not empty"),
    "words": (np.array([[["a"]]]), {}, "expected real numbers"),
    "complex": (U * 1j, {}, "found complex64, expected real numbers"),
    "an image": (np.zeros((2, 3, 32, 32)), {}, "may be channels or space; axes=1 .* axes=2 .*"),
    "dt of another length": (U, {"dt": [1.0, 2.0]}, r"dt: found shape \[2\].* \[3\]"),
    "ragged": ([[np.zeros(8)] * 5, [np.zeros(8)] * 6], {}, "u: found lists of several lengths"),
    "ragged dx": (U, {"dx": [[1.0], [1.0, 2.0]]}, "dx: found lists of several lengths"),
    "masked": (np.ma.masked_greater(U, 0.9), {}, "u: found .* masked entries, expected none"),
    "masked dt": (U, {"dt": np.ma.masked_equal([1.0, 2.0, 3.0], 2.0)}, "dt: found 1 masked"),
    "no names": (U, {"names": 3}, "names: found 3, expected texts"),
    "no boundaries": (U, {"boundaries": 3}, "boundaries: found 3, expected texts"),
    "no time": (U, {"dt": 0.0}, "dt: found 0.0, expected above 0"),
    "nan dx": (U, {"dx": np.nan}, "dx: found a value that is not finite"),
    "names": (U, {"names": ("u", "v")}, "names: found 2 names, expected 1"),
    "a boundary": (
        U,
        {"boundaries": "walls"},
        "boundaries: found walls, expected 1: periodic, or wall",
    ),
    "a parameter": (U, {"conditions": {"nu": [1, 2]}}, "nu: found shape"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    u, options, message = REFUSED[what]
    with pytest.raises(DataError, match=message) as caught:
        from_arrays(u, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "options", "taken"),
    [
        ((2, 3, 32, 32, 2), {}, "last axis"),
        ((2, 3, 32, 32, 1), {}, "last axis"),
        ((2, 3, 16, 16, 16, 3), {}, "last axis"),
        ((2, 3, 16, 3), {}, "last axis"),
        ((2, 3, 64, 4), {"axes": 1}, "last axis"),
        ((2, 3, 16, 16), {}, "axes=1 .* axes=2"),
        ((2, 3, 20, 20, 20), {}, "axes=2 .* axes=3"),
        ((2, 3, 6, 8), {}, "axes=1 .* axes=2"),
        ((2, 3, 2, 24, 4), {}, (2, 24, 4)),
        ((2, 3, 2, 32, 32), {}, (2, 32, 32)),
        ((2, 3, 3, 16), {}, (3, 16)),
        ((2, 3, 16, 16), {"axes": 1}, (16, 16)),
        ((2, 3, 16, 16), {"axes": 2}, (1, 16, 16)),
        ((2, 3, 12, 12, 12), {"axes": 3}, (1, 12, 12, 12)),
        ((2, 3, 12, 2), {"names": tuple("abcdefghijkl")}, (12, 2)),
        ((2, 3, 64, 4), {"axes": 2}, (1, 64, 4)),
    ],
)
def test_axes_are_not_guessed(
    tmp_path: Path, shape: tuple[int, ...], options: dict[str, Any], taken: Any
) -> None:
    """Two readings are refused, in memory and in a file; what is said settles it."""
    u = RNG.normal(size=shape).astype("f4")
    renamed = {"channels" if key == "names" else key: value for key, value in options.items()}
    np.savez(tmp_path / "u.npz", u=u, **renamed)
    for found in (lambda: from_arrays(u, **options), lambda: read(tmp_path / "u.npz")):
        if isinstance(taken, str):
            with pytest.raises(DataError, match=rf"u: found shape.*{taken}"):
                found()
        else:
            assert found().shape == (2, 3, *taken)


def test_axes_of_a_file_are_asked_for(tmp_path: Path) -> None:
    u = RNG.normal(size=(2, 3, 16, 16))
    np.save(tmp_path / "u.npy", u)
    np.savez(tmp_path / "u.npz", u=u, axes=2)
    assert read(tmp_path / "u.npy", 2).shape == read(tmp_path / "u.npz").shape == (2, 3, 1, 16, 16)
    with pytest.raises(DataError, match="axes: found 2, expected 1, as was given"):
        read(tmp_path / "u.npz", 1)
    np.savez(tmp_path / "u.npz", u=u, axes=1.5)
    with pytest.raises(DataError, match="axes: found 1.5, expected a whole number"):
        read(tmp_path / "u.npz")


def test_plain_files_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "u.npy", U)
    found = read(tmp_path / "u.npy")
    assert found.shape == (3, 5, 1, 8) and found.boundaries == ("",) and np.isnan(found.dt).all()
    rest = {"boundaries": np.asarray("periodic"), "nu": np.arange(3.0)}
    np.savez(tmp_path / "u.npz", u=U, dt=0.1, channels=np.array(["height"]), **rest)
    found = read(tmp_path / "u.npz")
    assert found.boundaries == ("periodic",) and found.channels == ("height",)
    np.testing.assert_array_equal(found.parameters["nu"], [0, 1, 2])
    np.savez(tmp_path / "two.npz", a=U, b=U)
    with pytest.raises(DataError, match="two.npz: arrays: found a, b, expected u"):
        read(tmp_path / "two.npz")
    (tmp_path / "torn.npz").write_bytes((tmp_path / "u.npz").read_bytes()[:200])
    with pytest.raises(DataError, match="torn.npz: array"):
        read(tmp_path / "torn.npz")


def test_some_trajectories_are_a_set() -> None:
    part = take_trajectories(
        from_arrays(U, dt=[1, 2, 3], conditions={"nu": U[:, 0, 0]}), slice(1, 3)
    )
    assert part.shape[0] == 2
    np.testing.assert_array_equal(part.read([1], ALL)[0, :, 0], U[2])
    np.testing.assert_array_equal(part.read(ALL, 0)[:, 0, 0], U[1:, 0])
    np.testing.assert_array_equal(part.dt, [2, 3])
    np.testing.assert_array_equal(part.parameters["nu"], U[1:, 0, 0])


def test_what_nobody_wrote_is_not_learned_from() -> None:
    """A trajectory of zeros; a channel of zeros, or frames, may be meant."""
    u = np.stack([U, U], 2)
    u[1, :, 0], u[2, :2] = 0, 0
    assert all_fields(from_arrays(u, dt=0.1), "never") is not None
    u[1] = 0
    for stream in ("never", "always"):
        with pytest.raises(DataError, match="trajectory 1: found zero throughout, as 1 of 3 are"):
            all_fields(from_arrays(u, dt=0.1), stream)


def test_what_a_file_does_not_say_can_be_said_and_not_denied(tmp_path: Path) -> None:
    np.savez(tmp_path / "plane.npz", u=np.ones((2, 3, 1, 4, 8)))
    plain = read_arrays(tmp_path / "plane.npz")
    said = complete(plain, ("wall", "periodic"), 0.5, (0.25,))
    assert said.boundaries == ("wall", "periodic") and said.dt.tolist() == [0.5, 0.5]
    assert said.extent.tolist() == [[1.0, 2.0]] * 2
    assert complete(plain, ("open",)).boundaries == ("open", "open")
    assert complete(said, ("wall", "periodic"), 0.5, (0.25, 0.25)).extent.tolist() == [[1, 2]] * 2
    with pytest.raises(ConfigError, match="boundaries.*expected what plane.npz has: wall, per"):
        complete(said, ("open",))
    with pytest.raises(ConfigError, match="dt: found 0.1, expected what plane.npz has: 0.5"):
        complete(said, dt=0.1)
    with pytest.raises(ConfigError, match=r"dx.*expected what plane.npz has: \[0.25, 0.25\]"):
        complete(said, dx=(0.5, 0.25))
    with pytest.raises(ConfigError, match="boundaries.*expected one, or 2: one for each axis"):
        complete(plain, ("wall",) * 3)


@pytest.mark.parametrize(("name", "ours"), [("t", "dt"), ("x", "dx"), ("boundary", "boundaries")])
def test_a_name_of_others_is_no_parameter(tmp_path: Path, name: str, ours: str) -> None:
    np.savez(tmp_path / "a.npz", u=np.ones((2, 3, 4)), **{name: np.zeros(2)})
    with pytest.raises(DataError, match=f"arrays: found {name}, expected u.*is it {ours}"):
        read_arrays(tmp_path / "a.npz")


@pytest.mark.parametrize("axes", [0, 4, True, "x", 1.5])
def test_axes_of_space_are_one_to_three(axes: Any) -> None:
    with pytest.raises(ConfigError, match=f"axes: found {axes!r}, expected 1, 2 or 3"):
        from_arrays(U, axes=axes)
