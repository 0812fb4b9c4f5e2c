"""Own environments: Gymnasium's on the host, registered, announced or imported by name."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from helpers_environments import Cart, Shapes, cart_factory  # noqa: E402

from jaxrl_rollouts import plugins  # noqa: E402
from jaxrl_rollouts.errors import ConfigError, SimulatorError  # noqa: E402
from jaxrl_rollouts.offline.collect import collect, random_policy  # noqa: E402
from jaxrl_rollouts.offline.environments import (  # noqa: E402
    Environment,
    from_gymnasium,
    make,
    register_environment,
    registry,
)
from jaxrl_rollouts.offline.environments.base import row_keys, with_columns  # noqa: E402
from jaxrl_rollouts.offline.environments.host import Copies  # noqa: E402
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM  # noqa: E402
from jaxrl_rollouts.offline.evaluation import evaluate  # noqa: E402


@pytest.fixture(scope="module")
def cart() -> Iterator[Environment]:
    gymnasium.register("test/Cart-v0", Cart, max_episode_steps=20)
    yield from_gymnasium("test/Cart-v0")
    del gymnasium.registry["test/Cart-v0"]


def test_facts(cart: Environment) -> None:
    assert (cart.observation_size, cart.action_size, cart.max_episode_steps) == (2, 1, 20)
    assert cart.name == "gymnasium/test/Cart-v0" and cart.host and "gymnasium" in cart.version
    np.testing.assert_allclose([cart.action_low, cart.action_high], [[-0.4], [0.4]])
    assert make("test/Cart-v0").name == make("gymnasium/test/Cart-v0").name == cart.name
    assert make("test/Cart-v0?max_episode_steps=7").max_episode_steps == 7


@pytest.mark.parametrize("limit", [0, -1, 2.5, True, "5"])
def test_a_time_limit_is_a_number_from_one(limit: Any) -> None:
    with pytest.raises(ConfigError, match=f"max_episode_steps: found {limit!r}, expected an int"):
        from_gymnasium(Cart, max_episode_steps=limit)
    assert from_gymnasium(Cart, max_episode_steps=np.int64(7)).max_episode_steps == 7


def test_steps_equal_gymnasiums(cart: Environment) -> None:
    key, theirs = jax.random.key(3), gymnasium.make("test/Cart-v0")
    rows = collect(cart, random_policy(1), None, key, episodes=3)
    reset_key, _ = jax.random.split(key)
    seeds = [int(jax.random.bits(k, (), np.uint32)) for k in row_keys(reset_key, 3)]
    row = 0
    for seed in seeds:
        observation, _ = theirs.reset(seed=seed)
        over = False
        while not over:
            np.testing.assert_array_equal(rows.observations[row], np.float32(observation))
            own = np.float32(0.4) * rows.actions[row]
            observation, reward, terminated, truncated, _ = theirs.step(own)
            np.testing.assert_allclose(rows.next_observations[row], observation, rtol=1e-6)
            np.testing.assert_allclose(rows.rewards[row], reward, rtol=1e-5)
            flags = (rows.terminations[row], rows.truncations[row])
            assert flags == (terminated, truncated and not terminated)
            over, row = terminated or truncated, row + 1
    assert row == len(rows.rewards) and np.abs(rows.actions).max() > 0.5


def test_an_environment_that_cuts_episodes_itself() -> None:
    env = from_gymnasium(cart_factory, max_episode_steps=40)
    rows = collect(env, lambda p, k, o, m: (0 * o[:, :1], m), None, jax.random.key(0), episodes=2)
    lengths = np.diff(np.flatnonzero(rows.truncations | rows.terminations), prepend=-1)
    assert env.name == "Cart" and lengths.max() == 15


def test_an_instance_is_copied() -> None:
    env = from_gymnasium(Cart(), max_episode_steps=5)
    rows = collect(env, random_policy(1), None, jax.random.key(0), episodes=3)
    assert len(np.unique(rows.observations[:, 0])) > 10


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (lambda: Shapes(actions=gymnasium.spaces.Discrete(3)), "Discrete actions.*only vectors"),
        (
            lambda: Shapes(observations=gymnasium.spaces.Dict(a=gymnasium.spaces.Text(3))),
            "a Text space in part a",
        ),
        (
            lambda: Shapes(actions=gymnasium.spaces.Box(-5, 5, (1,), np.int64)),
            "Box actions of int64.*real numbers",
        ),
        (lambda: 3, "found 'int', expected a gymnasium.Env"),
        (lambda: 1 / 0, "found 'ZeroDivisionError: division by zero', expected one that can be"),
        (
            lambda: Shapes(observations=gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8)),
            r"a Box space of shape \(8, 8, 3\)",
        ),
        (
            lambda: Shapes(actions=gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)),
            "unbounded actions",
        ),
        (
            type("Torn", (Cart,), {"action_space": property(lambda self: 1 / 0)}),
            "found 'ZeroDivisionError: division by zero', expected spaces of actions",
        ),
        (Cart, r"no time limit.*Cart\?max_episode_steps"),
        ("CartPole-v1", "Discrete actions"),
        ("Cartpole-v2", "did you mean CartPole-v1"),
    ],
)
def test_what_is_not_supported_is_said(env: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        from_gymnasium(env)
    assert "\n" not in str(caught.value)


def raises(*_: Any) -> Any:
    raise RuntimeError("simulator crashed")


def ends() -> Any:
    raise GeneratorExit("over")


ZERO = np.zeros(2)
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "step raises": ({"step": raises}, "step 0: found RuntimeError: simulator crashed"),
    "step exits": ({"step": lambda s, a: sys.exit(3)}, "step 0: found SystemExit: 3"),
    "step of four": ({"step": lambda s, a: (ZERO, 1.0, False, {})}, "step 0: found 4 values"),
    "reset without seed": ({"reset": lambda s: (ZERO, {})}, "reset: found TypeError.*seed"),
    "reset of one": ({"reset": lambda s, **k: ZERO}, "reset: found ndarray, expected 2 values"),
    "no reward": ({"step": lambda s, a: (ZERO, None, False, False, {})}, "step 0: found reward: N"),
    "two rewards": ({"step": lambda s, a: (ZERO, ZERO, False, False, {})}, r"reward: shape \(2,\)"),
    "a flag of text": ({"step": lambda s, a: (ZERO, 1.0, "no", False, {})}, "found terminated: "),
    "wide": ({"reset": lambda s, **k: (np.zeros((2, 1)), {})}, r"shape \[2, 1\], expected \[2\]"),
    "text": ({"reset": lambda s, **k: (np.array(["a", "b"]), {})}, "observation: dtype <U1"),
    "no observation": ({"reset": lambda s, **k: (None, {})}, "reset: found observation"),
    "NaN at once": ({"reset": lambda s, **k: (ZERO * np.nan, {})}, "reset: found nan in entry 0"),
    "masked": ({"reset": lambda s, **k: (np.ma.array(ZERO, mask=[1, 0]), {})}, "1 masked entr"),
    "a hidden reward": (
        {"step": lambda s, a: (ZERO, np.ma.masked, False, False, {})},
        "reward: 1 masked entries",
    ),
    "a ragged reward": (
        {"step": lambda s, a: (ZERO, [1, [2]], False, False, {})},
        "reward: lists of several lengths",
    ),
    "a ragged flag": (
        {"step": lambda s, a: (ZERO, 1.0, [1, [2]], False, {})},
        "terminated: lists of several lengths",
    ),
    "no array": (
        {"step": lambda s, a: (type("Bad", (), {"__array__": raises})(), 1.0, False, False, {})},
        "observation: simulator crashed",
    ),
    "ends the process": ({"step": lambda s, a: ends()}, "found GeneratorExit: over"),
    "overflow": (
        {"step": lambda s, a: (ZERO + 1e300, 1.0, False, False, {})},
        "found 1e.300 in ent",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_a_simulator_returns_is_checked_before_anything_compiles(case: str) -> None:
    methods, says = BAD[case]
    with pytest.raises(SimulatorError, match=f"environment Mine: .*{says}") as caught:
        from_gymnasium(type("Mine", (Cart,), methods), max_episode_steps=5)
    assert "\n" not in str(caught.value)
    if case == "step raises":
        assert isinstance(caught.value.__cause__, RuntimeError)


class Later(Cart):
    """Goes wrong at the fourth step of every episode."""

    result: Any = float("nan")
    lost = 0.0

    def reset(self, **options: Any) -> tuple[np.ndarray, dict]:
        self.count = 0
        return super().reset(**options)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict]:
        observation, reward, *rest = super().step(action)
        self.count += 1
        if self.count == 4:
            reward = raises() if self.result is None else self.result
            observation = observation + self.lost
        return observation, np.array([reward]), *rest


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({}, "reward nan"),
        ({"result": float("inf")}, "reward inf"),
        ({"result": None}, "Runt"),
        ({"result": 0.0, "lost": float("nan")}, "nan in entry 0"),
    ],
)
def test_what_goes_wrong_later_stops_with_step_and_name(
    wrong: dict, says: str, capfd: pytest.CaptureFixture, caplog: pytest.LogCaptureFixture
) -> None:
    env = from_gymnasium(type("Late", (Later,), wrong), max_episode_steps=9)
    policy, key = random_policy(1), jax.random.key(0)
    for play in (evaluate, lambda *given: collect(*given, episodes=2)):
        with pytest.raises(SimulatorError, match=f"environment Late: copy 0, step 3: found {says}"):
            play(env, policy, None, key)
    jax.effects_barrier()  # nothing is left behind
    assert "Traceback" not in capfd.readouterr().err and not caplog.records
    # A reward in an array of one is a number, and another environment is not harmed.
    fine = from_gymnasium(type("Fine", (Later,), {"result": 1.0}), max_episode_steps=9)
    assert np.isfinite(evaluate(fine, policy, None, key).returns).all()


def test_an_instance_that_cannot_be_copied_is_one_line() -> None:
    env = Cart()
    env.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="environment Cart: found .*TypeError.*can be copied"):
        from_gymnasium(env, max_episode_steps=5)


class Parts(Cart):
    """The cart with its place and speed as parts of a dictionary, and a lamp."""

    observation_space = gymnasium.spaces.Dict(
        speed=Cart.observation_space.__class__(-9, 9, (1,), np.float64),
        place=Cart.observation_space.__class__(-9, 9, (1,), np.float64),
        lamp=gymnasium.spaces.Discrete(3, start=1),
    )

    def shown(self, state: np.ndarray) -> dict[str, Any]:
        return {"place": state[:1], "speed": state[1:], "lamp": 2}

    def reset(self, **options: Any) -> tuple[Any, dict]:
        return self.shown(super().reset(**options)[0]), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        observation, *rest = super().step(action)
        return self.shown(observation), *rest


def test_dictionaries_are_flattened_in_the_order_of_their_space() -> None:
    env = from_gymnasium(Parts, max_episode_steps=5)
    assert env.columns == ("speed", "place", "lamp[0]", "lamp[1]", "lamp[2]")
    plain = from_gymnasium(Cart, max_episode_steps=5)
    state, same = (one.reset(jax.random.key(2), 3).observation for one in (env, plain))
    np.testing.assert_array_equal(state[:, :2], same[:, ::-1])
    np.testing.assert_array_equal(state[:, 2:], np.tile([0.0, 1.0, 0.0], (3, 1)))
    wrapped = from_gymnasium(
        lambda: gymnasium.wrappers.FlattenObservation(Parts()), max_episode_steps=5
    )
    assert wrapped.columns == env.columns
    theirs = gymnasium.wrappers.FlattenObservation(Parts())
    seen = Copies(Parts(), Parts, 5).starts(4)[0][3]
    np.testing.assert_array_equal(np.float32(theirs.reset(seed=3)[0]), seen)
    sorted_ = with_columns(env, sorted(env.columns))
    rows, again = (
        collect(one, lambda p, k, o, m: (0 * o[:, :1], m), None, jax.random.key(2), episodes=2)
        for one in (env, sorted_)
    )
    order = [env.columns.index(name) for name in sorted_.columns]
    np.testing.assert_array_equal(rows.next_observations[:, order], again.next_observations)
    for one, other in zip(env.starts(4), sorted_.starts(4), strict=True):
        np.testing.assert_array_equal(one[:, order], other)


def test_registered_and_imported_ones_are_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTERED", {})
    monkeypatch.setattr(plugins, "_TRUSTED", set())
    register_environment("cart", cart_factory)
    register_environment("mine", lambda: PENDULUM._replace(max_episode_steps=9))
    with pytest.raises(ConfigError, match="no code to import but what you name.*--trust helpers_"):
        make("helpers_environments:cart_factory")
    plugins.trust("helpers_environments:cart_factory")
    for name in ("cart", "helpers_environments:cart_factory"):
        env = make(name)
        assert env.name == name and env.max_episode_steps == 15 and env.observation_size == 2
    assert make("mine").name == "mine" and make("mine").max_episode_steps == 9
    with pytest.raises(ConfigError, match="did you mean cart"):
        make("cort")
    with pytest.raises(ConfigError, match="a name besides"):
        register_environment("hopper", cart_factory)
    plugins.trust("helpers_environments:nothing", "no_such_module:make")
    for wrong in ("helpers_environments:nothing", "no_such_module:make", "../evil:make", "a:b:c"):
        with pytest.raises(ConfigError, match="package.module:factory"):
            make(wrong)


# MuJoCo's warnings are of what a user cannot change.
QUESTION = """
from jaxrl_rollouts.offline.environments import make
env = make("guest-pendulum")
assert env.name == "guest-pendulum" and env.observation_size == 3, env
make("HalfCheetah-v2")
"""


def test_another_package_brings_an_environment_and_mujoco_is_silent(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    info = tmp_path / "guest-1.0.dist-info"
    info.mkdir()
    (tmp_path / "guest.py").write_text("def factory():\n    return 'Pendulum-v1'\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n")
    entries = "[jaxrl_rollouts.environments]\nguest-pendulum = guest:factory\n"
    (info / "entry_points.txt").write_text(entries)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", QUESTION]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".TXT"]
