"""Seeds spread over several devices, in a process that pretends to have eight."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from fixtures import on_devices

from jaxrl_rollouts import devices

SCRIPT = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec
from jaxrl_rollouts import devices
from jaxrl_rollouts.loop import train_loop

TRACES = []

def update(state, data):
    TRACES.append(1)
    noise, key = jax.random.split(state["key"])
    loss = lambda w: jnp.square(data @ w - 1.0).mean()
    value, gradient = jax.value_and_grad(loss)(state["w"])
    w = state["w"] - 0.1 * gradient + 0.01 * jax.random.normal(noise, (3,))
    return {"w": w, "key": key}, {"loss": value}

data = jax.random.normal(jax.random.key(0), (32, 3))

def start(seeds):
    return {"w": jnp.zeros((seeds, 3)), "key": jax.random.split(jax.random.key(1), seeds)}

def given(state, data):
    return state

def shards(leaf):
    return [[s.device.id, s.data.shape[0]] for s in leaf.addressable_shards]

def spread(leaf):
    return leaf.sharding.spec == PartitionSpec("seed") and len({d for d, _ in shards(leaf)}) == 8

mesh = devices.seed_mesh()
options = dict(iterations=9, chunk=3, stage="a")
one = devices.seed_mesh(jax.devices()[:1])
alone = train_loop(update, given, start(16), data, mesh=one, **options)
TRACES.clear()
seen = []

def look(state, iteration):
    seen.append(spread(state["w"]) and spread(state["key"]))
    return {}

meshed = train_loop(update, given, start(16), data, mesh=mesh, evaluate=look, evaluate_every=3,
               **options)
out = {"devices": len(jax.devices()), "traces": len(TRACES), "spread": seen,
       "shards": shards(meshed.state["w"]), "mesh": dict(mesh.shape),
       "alone": np.asarray(alone.state["w"]).tolist(),
       "meshed": np.asarray(meshed.state["w"]).tolist(),
       "losses": [t.history.curve("loss")[1].tolist() for t in (alone, meshed)]}
copy = devices.replicate({"x": data}, mesh)["x"]
out["replicated"] = copy.sharding.is_fully_replicated and len(copy.sharding.device_set) == 8
half = devices.seed_mesh(jax.devices()[:4])
out["half"] = train_loop(update, given, start(12), data, mesh=half, **options).state["w"].shape[0]
uneven = [train_loop(update, given, start(12), data, mesh=m, **options) for m in (None, mesh)]
out["uneven"] = [[np.asarray(t.state["w"]).tolist(), t.history.curve("loss")[1].tolist(),
                  [d.id for d in t.state["w"].devices()]] for t in uneven]
ROWS = (jnp.arange(15.0).reshape(5, 3), jax.random.split(jax.random.key(0), 5))

def noisy(row, shared):
    TRACES.append(1)
    w, key = row
    return {"sum": (w * shared).sum(), "noise": jax.random.normal(key, (2,)), "w": w}

TRACES.clear()
for _ in range(2):
    mapped = devices.map_seeds(noisy, ROWS, jnp.arange(3.0))
out["mapped"] = {name: np.asarray(value).tolist() for name, value in mapped.items()}
out["mapped once on"] = [len(TRACES), *{d.id for x in jax.tree.leaves(mapped) for d in x.devices()}]
out["meshes"] = [m and m.size for m in map(devices.mesh_for, (1, 2, 8, 9, 12, 17))]
devices.use_cores()
out["late"] = len(jax.devices())
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What the process with eight devices found."""
    return on_devices(SCRIPT, 8, seconds=180)


def test_eight_devices_give_the_numbers_of_one_and_compile_once(told: dict) -> None:
    assert told["devices"] == 8 and told["mesh"] == {devices.AXIS: 8}
    np.testing.assert_array_equal(told["meshed"], told["alone"])
    np.testing.assert_array_equal(*told["losses"])
    assert sorted(told["shards"]) == [[device, 2] for device in range(8)]
    assert told["spread"] == [True, True, True]
    assert told["traces"] == 1
    assert told["replicated"] and told["half"] == 12


def test_seeds_that_do_not_divide_give_the_same_numbers(told: dict) -> None:
    """Copies fill the devices and are gone from what comes back."""
    for states, losses, where in told["uneven"]:
        np.testing.assert_array_equal(states, told["alone"][:12])
        np.testing.assert_array_equal(losses, np.array(told["losses"][0])[:, :12])
        assert where == [0]
    assert told["meshes"] == [None, 2, 8, 5, 6, 6]


CORES = """
import jax
from jaxrl_rollouts.devices import use_cores
use_cores(2)
print(len(jax.devices()))
"""


def test_cores_become_devices() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-c", CORES],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert int(done.stdout) == min(2, allowed or 1)


ONE_CORE = """
import faulthandler, os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import jax, jax.numpy as jnp, numpy as np
from jaxrl_rollouts.devices import use_cores
faulthandler.dump_traceback_later(60, exit=True)
if sys.argv[1:]:
    os.environ["NPROC"] = sys.argv[1]
use_cores()
shape = jax.ShapeDtypeStruct((20_000, 17), jnp.float32)

@jax.jit
def ask(x):
    return jax.pure_callback(lambda y: 2 * np.asarray(y), shape, jnp.sin(x))

x = jnp.ones(shape.shape)
for _ in range(30):
    out = np.asarray(ask(x))
print(os.environ["NPROC"], len(jax.devices()), float(out[0, 0]))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores are chosen on Linux only")
@pytest.mark.parametrize("given", [[], ["3"]])
def test_on_one_core_large_batches_come_back_from_the_host(given: list[str]) -> None:
    unset = ("XLA_FLAGS", "NPROC")
    environment = {k: v for k, v in os.environ.items() if k not in unset}
    done = subprocess.run(
        [sys.executable, "-c", ONE_CORE, *given],
        env=environment | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    threads, count, value = done.stdout.split()
    assert (threads, count) == (given[0] if given else "2", "1")
    assert float(value) == pytest.approx(2 * np.sin(1.0), rel=1e-6)


def test_cores_are_left_alone_once_jax_has_started(told: dict) -> None:
    assert told["late"] == 8


def test_a_mesh_of_one_device_changes_nothing() -> None:
    mesh = devices.seed_mesh(jax.devices()[:1])
    tree = {"w": np.arange(6.0).reshape(3, 2), "key": jax.random.split(jax.random.key(0), 3)}
    spread = devices.shard_seeds(tree, mesh)
    np.testing.assert_array_equal(spread["w"], tree["w"])
    assert spread["w"].sharding.device_set == {jax.devices()[0]}


def test_a_function_of_every_seed_is_the_same_on_one_and_on_several_devices(told: dict) -> None:
    """Five seeds on five of eight devices and on one, row by row as alone."""
    assert told["mapped once on"] == [1, 0]
    rows = (np.arange(15.0).reshape(5, 3), jax.random.split(jax.random.key(0), 5))
    here = devices.map_seeds(
        lambda row, shared: {
            "sum": (row[0] * shared).sum(),
            "noise": jax.random.normal(row[1], (2,)),
            "w": row[0],
        },
        rows,
        jax.numpy.arange(3.0),
    )
    noise = [jax.random.normal(key, (2,)) for key in rows[1]]
    for out in (told["mapped"], here):
        np.testing.assert_array_equal(out["w"], rows[0])
        np.testing.assert_allclose(out["sum"], rows[0] @ np.arange(3.0))
        np.testing.assert_allclose(out["noise"], noise, rtol=1e-6)


def test_a_device_that_is_not_there_is_one_line() -> None:
    code = """
from jaxrl_rollouts import devices
from jaxrl_rollouts.errors import ConfigError
try:
    devices.check_devices()
except ConfigError as error:
    print(error)
"""
    environment = {**os.environ, "JAX_PLATFORMS": "gpuu"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    (said,) = done.stdout.strip().splitlines()
    assert "device: found 'gpuu', expected a device" in said


TRAININGS = {
    "offline.train": "offline.train(offline.from_arrays(u, u, u[:, 0], 0 * u, u), 'bc')",
    "pde.fit": "pde.fit('mse', pde.from_arrays(u[None, :, :, None] + np.zeros(8)))",
    "diffusion.fit": "diffusion.fit(u)",
    "pde inspect": "main(['pde', 'inspect', 'u.npy'])",
}


@pytest.mark.parametrize("what", TRAININGS)
def test_every_place_that_is_first_to_compute_names_the_device(what: str, tmp_path: Path) -> None:
    code = f"""
import numpy as np
from jaxrl_rollouts import diffusion, offline, pde
from jaxrl_rollouts.cli.main import main
from jaxrl_rollouts.errors import UserError
u = np.ones((9, 1)) * (np.arange(9)[:, None] % 3 == 2)
np.save("u.npy", np.sin(np.arange(3 * 9 * 8.0)).reshape(3, 9, 8))
try:
    {TRAININGS[what]}
except UserError as error:
    print("error:", error)
"""
    environment = {**os.environ, "JAX_PLATFORMS": "gpuu"}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    said = done.stdout + done.stderr
    assert "\nerror: device: found 'gpuu', expected a device of this machine" in f"\n{said}"
    assert "Traceback" not in said
