"""Seeds side by side and in turn: the same numbers (on several devices: `test_devices`)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import devices
from jaxrl_rollouts.chunks import Axes, Chunk, in_turn, side_by_side
from jaxrl_rollouts.loop import train_loop

SEEDS, LENGTH = 4, 3
AXES = Axes.of({"own": True, "shared": False})


def init(key: jax.Array, data: Any) -> dict[str, jax.Array]:
    return {"weights": jax.random.normal(key, (8, 8)) + data["own"][0], "key": key}


def update(state: Any, data: Any) -> tuple[Any, dict[str, jax.Array]]:
    """A product large enough to be summed in another order where seeds are joined."""
    key, use = jax.random.split(state["key"])
    noise = jax.random.normal(use, (8, 8))
    weights = 0.5 * jnp.tanh(state["weights"] @ data["shared"]) + 0.1 * noise * data["own"][1]
    return {"weights": weights, "key": key}, {"size": jnp.abs(weights).mean()}


def begin() -> tuple[Any, Any]:
    keys = jax.random.split(jax.random.key(0), SEEDS)
    own = jnp.stack([jnp.arange(SEEDS) * 0.1, 1.0 + jnp.arange(SEEDS)], 1)
    data = {"own": own, "shared": jax.random.normal(jax.random.key(1), (8, 8))}
    return jax.vmap(init, in_axes=(0, {"own": 0, "shared": None}))(keys, data), data


def row(tree: Any, seed: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[seed : seed + 1], tree)


def weights(state: Any) -> np.ndarray:
    return np.asarray(state["weights"])


def test_turns_are_the_same_as_side_by_side() -> None:
    state, data = begin()
    (one, told), (other, also) = (
        jax.jit(how(update, LENGTH, AXES))(state, data) for how in (in_turn, side_by_side)
    )
    np.testing.assert_allclose(weights(one), weights(other), rtol=1e-5)
    assert told["size"].shape == also["size"].shape == (LENGTH, SEEDS)
    np.testing.assert_allclose(told["size"], also["size"], rtol=1e-5)
    np.testing.assert_array_equal(
        jax.random.key_data(one["key"]), jax.random.key_data(other["key"])
    )


def test_in_turn_a_seed_is_bitwise_the_seed_alone() -> None:
    state, data = begin()
    together, told = jax.jit(in_turn(update, LENGTH, AXES))(state, data)
    alone = jax.jit(in_turn(update, LENGTH, AXES))
    for seed in range(SEEDS):
        its = {"own": row(data["own"], seed), "shared": data["shared"]}
        own, metrics = alone(row(state, seed), its)
        np.testing.assert_array_equal(weights(own)[0], weights(together)[seed])
        np.testing.assert_array_equal(metrics["size"][:, 0], told["size"][:, seed])


def test_a_simulator_is_asked_about_all_seeds_at_a_time(monkeypatch: Any) -> None:
    monkeypatch.setattr(devices, "cores_are_devices", lambda: True)
    asked = []

    def simulate(x: np.ndarray) -> np.ndarray:
        asked.append(x.shape)
        return np.asarray(x) + 1.0

    def step(x: jax.Array, _: Any) -> tuple[jax.Array, dict]:
        def inner(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
            return jax.pure_callback(simulate, shape, x, vmap_method="broadcast_all"), None

        x, _ = jax.lax.scan(inner, x, None, length=2)  # found within loops, too
        return x, {"sum": x.sum()}

    run = Chunk(step, 2, Axes.of(()))
    state, metrics, _ = run.run(jnp.zeros((SEEDS, 3)), ())
    assert set(asked) == {(SEEDS, 3)} and len(asked) == 4
    np.testing.assert_array_equal(state, 4.0)
    np.testing.assert_array_equal(metrics["sum"], [[6.0] * SEEDS, [12.0] * SEEDS])


def test_a_training_of_more_seeds_holds_that_of_fewer_bitwise(monkeypatch: Any) -> None:
    monkeypatch.setattr(devices, "cores_are_devices", lambda: True)
    keys = jax.random.split(jax.random.key(2), 5)
    data = {"own": jnp.tile(jnp.array([0.3, 2.0]), (5, 1)), "shared": jnp.eye(8)}

    def anew(state: Any, data: Any) -> tuple[Any, dict[str, jax.Array]]:
        """A function whose programs are not those of before."""
        return update(state, data)

    def trained(count: int) -> np.ndarray:
        seen = data | {"own": data["own"][:count]}
        per_seed = {"own": True, "shared": False}
        done = train_loop(
            anew, init, keys[:count], seen, per_seed=per_seed, iterations=4, stage="seeds"
        )
        return weights(done.state)

    np.testing.assert_array_equal(trained(5)[:3], trained(3))
    np.testing.assert_array_equal(trained(5)[:1], trained(1))


def test_turns_are_taken_where_each_core_is_a_device(monkeypatch: Any) -> None:
    here = len(jax.local_devices())
    for cores, turns in ((here, True), (here + 1, False)):
        monkeypatch.setattr(devices, "cores", lambda cores=cores: cores)
        assert devices.cores_are_devices() == turns


def test_turns_can_be_said_for_good() -> None:
    state, data = begin()
    copies = [jax.tree.map(jnp.copy, state) for _ in range(2)]
    ends = [Chunk(update, LENGTH, AXES, turns).run(s, data)[0] for turns, s in enumerate(copies)]
    wanted = [how(update, LENGTH, AXES) for how in (side_by_side, in_turn)]
    for found, how in zip(ends, wanted, strict=True):
        np.testing.assert_array_equal(weights(found), weights(jax.jit(how)(state, data)[0]))
