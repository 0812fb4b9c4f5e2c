"""Cores as devices and kept programs, before jax's first program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxrl_rollouts import starting


def test_the_oldest_programs_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "CACHE_BYTES", 100)
    for age, name in enumerate("abcd"):
        (tmp_path / name).write_bytes(b"x" * 24)
        os.utime(tmp_path / name, (age, age))
    starting.prune(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4, "there is room"
    (tmp_path / "e").write_bytes(b"x" * 24)
    starting.prune(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d", "e"]


def test_jax_and_the_user_have_the_last_word(tmp_path: Path) -> None:
    assert starting.keep_compiled({"JAXRL_ROLLOUTS_CACHE": "off"}) is None
    assert starting.keep_compiled({"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}) is None
    (tmp_path / "file").touch()
    assert starting.keep_compiled({"JAXRL_ROLLOUTS_CACHE": str(tmp_path / "file")}) is None


PROGRAM = """
import jax, jax.monitoring, numpy as np
import jaxrl_rollouts as jr
jr.prepare()
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))
def step(x, _):
    return jax.numpy.sin(x @ x.T) @ x + 1e-3, x.sum()
start = jax.random.normal(jax.random.key(0), (9, 5))
x, sums = jax.jit(lambda x: jax.lax.scan(step, x, None, 50))(start)
print(np.asarray(x).tobytes().hex(), np.asarray(sums).tobytes().hex())
print(hits.count("/jax/compilation_cache/cache_hits"))
"""


def test_a_kept_program_gives_the_same_bits_and_a_damaged_one_is_made_anew(tmp_path: Path) -> None:
    """Cold, from the cache, and from a damaged one, which says so and heals."""
    clean = {k: v for k, v in os.environ.items() if "COMPILATION_CACHE" not in k}
    found, programs = [], tmp_path / "programs"
    for how in ("cold", "warm", "damaged", "again"):
        for number, entry in enumerate(programs.glob("*/*-cache") if how == "damaged" else ()):
            data = entry.read_bytes()
            entry.write_bytes((data[: len(data) // 2], b"", b"x" * 9)[number % 3])
            if number % 4 == 1:
                entry.unlink()
                entry.mkdir()
                (entry / "inside").write_bytes(data)
        environment = {**clean, "JAXRL_ROLLOUTS_CACHE": str(programs)}
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        bits, hits = done.stdout.splitlines()
        found.append((bits, int(hits) > 0, "is damaged, and made anew" in done.stderr))
        assert how != "cold" or list(programs.glob("*/*-cache"))
    assert len({bits for bits, _, _ in found}) == 1
    assert [hits for _, hits, _ in found] == [False, True, False, True]
    assert [said for _, _, said in found] == [False, False, True, False]


def test_without_a_home_programs_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a user whom its passwd does not know."""

    def unknown(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", unknown)
    assert starting.keep_compiled({}) is None


ONE_CALL = """
import sys
import jax, jax.numpy as jnp
import jaxrl_rollouts as jr
from jaxrl_rollouts import devices
late = sys.argv[1:] == ["late"]
late and jax.block_until_ready(jnp.zeros(3) + 1)
jr.prepare()
print(len(jax.devices()), devices.unused_cores(1) == "", devices.unused_cores(2))
jax.jit(lambda x: jnp.sin(x).sum())(jnp.ones(17)).block_until_ready()
"""


@pytest.mark.parametrize("when", ["first", "late"])
def test_one_call_sets_up_cores_and_cache(tmp_path: Path, when: str) -> None:
    """Too late for devices, it says so; the cache begins whenever it is called."""
    clean = {k: v for k, v in os.environ.items() if "COMPILATION_CACHE" not in k}
    clean = {k: v for k, v in clean.items() if k != "XLA_FLAGS"}
    environment = {**clean, "JAXRL_ROLLOUTS_CACHE": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", ONE_CALL, when]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    cores = min(8, len(os.sched_getaffinity(0)))
    # On one core there is nothing to say.
    count, alone, *warned = done.stdout.split(maxsplit=2)
    said = "".join(warned)
    assert int(count) == (cores if when == "first" else 1) and alone == "True"
    assert ("jaxrl_rollouts.prepare()" in said) == (when == "late" and cores > 1)
    assert list(tmp_path.glob("*/*-cache"))
