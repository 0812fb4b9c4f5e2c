"""Sets by name: made once from their seed, checked by digest, read like any file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts import pde
from jaxrl_rollouts.pde.files import problems
from jaxrl_rollouts.pde.files.problems import (
    PROBLEMS,
    Problem,
    digest,
    file_of,
    read_problem,
    varying,
)

SMALL = {"trajectories": 3, "points": 16, "frames": 4, "burn_in": 0}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JAXRL_ROLLOUTS_FIELDS", str(tmp_path / "made"))
    return tmp_path / "made"


def known(monkeypatch: pytest.MonkeyPatch, name: str, problem: Problem) -> None:
    monkeypatch.setitem(PROBLEMS, name, problem)


def test_it_is_made_once_and_then_read(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    known(
        monkeypatch,
        "tiny",
        problems._solved("", "burgers", **SMALL, parameter_range=(0.1, 0.2), extent=(6.0, 6.0)),
    )
    with pytest.warns(UserWarning, match="sha256: found [0-9a-f]{16}, expected"):
        first = pde.read("tiny")
    assert file_of("tiny") == cache / "tiny.npz" and first.shape == (3, 4, 1, 16)
    assert first.equation == "burgers" and first.boundaries == ("periodic",)
    np.testing.assert_allclose(first.extent, 6.0)
    values = first.parameters["diffusivity"]
    assert ((values >= 0.1) & (values <= 0.2)).all() and len(set(values)) == 3
    made = PROBLEMS["tiny"]

    def never() -> dict:
        raise AssertionError("made twice")

    known(monkeypatch, "tiny", made._replace(make=never, sha256=digest(first)))
    again = read_problem("tiny")  # no warning: warnings are errors in tests
    np.testing.assert_array_equal(again.array(), first.array())


def test_other_numbers_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    u = np.random.default_rng(0).normal(size=(3, 4, 1, 16)).astype(np.float32)
    problem = Problem("", lambda: {"u": u, "axes": 1, "boundaries": "wall"})
    known(monkeypatch, "own", problem)
    with pytest.warns(UserWarning, match="compare no results"):
        found = read_problem("own")
    expected = digest(found)
    known(monkeypatch, "own", problem._replace(sha256=expected))
    read_problem("own")
    u[0, 0, 0, 0] += 1e-6
    np.savez(file_of("own"), u=u, axes=1, boundaries="wall")
    with pytest.warns(UserWarning, match=expected):
        read_problem("own")


@pytest.mark.parametrize("axes", [1, 2])
def test_trajectories_that_became_uniform_are_left_out(axes: int) -> None:
    u = np.random.default_rng(0).normal(size=(4, 3, 2, *(8,) * axes))
    u[1, -1] = 0.7  # both channels
    u[2, -1, 0] = 0.7  # one of them
    u[3, 0] = 0.7  # at first
    assert varying(u, axes).tolist() == [True, False, True, True]


def test_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((2, 3, 64), np.float32))
    Path("x.npy").rename("ks22")
    assert pde.read("ks22").shape == (2, 3, 1, 64)


@pytest.mark.slow
def test_the_box_of_sound_has_its_digest_everywhere() -> None:
    assert digest(read_problem("acoustic")) == PROBLEMS["acoustic"].sha256
