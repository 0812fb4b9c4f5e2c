"""Exported policies: damaged on disk, other content with good checksums."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from . import attacks, changes
from .attacks import CORRECT, NAMED, TRACEBACK, WRONG, Areas, Attack, some
from .tally import Tally

DAMAGED, CONTENT = 150, 91


def exported_file(folder: Path, memory: bool = False) -> Path:
    """A policy with random parameters; with a memory NEUBAY's."""
    import jax

    from jaxrl_rollouts.offline.agents.sac import SacConfig, make_sac
    from jaxrl_rollouts.offline.policy import Policy
    from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig
    from jaxrl_rollouts.offline.recurrent.sac import RecurrentSacConfig, make_recurrent_sac
    from jaxrl_rollouts.offline.saved_policies import policy_of

    config: Any = SacConfig(hidden_dims=(4,))
    make: Any = make_sac
    if memory:
        kept = MemoryConfig("lru", width=4, state=2, layers=1)
        config, make = RecurrentSacConfig(memory=kept, head_dims=(4,)), make_recurrent_sac
    sizes = (5, 1) if memory else (3, 1)
    actors = jax.vmap(make(config, *sizes).init)(jax.random.split(jax.random.key(0), 1)).actor
    return Policy(policy_of(config, actors, sizes=sizes)).export(folder / "good.stablehlo")


def loaded(file: Path, exact: bool = False) -> str:
    """What the stand-alone loader makes of a file; `exact` where it can only be the good one."""
    from jaxrl_rollouts.exported import load_exported

    try:
        policy = load_exported(file)
        actions = policy(np.zeros((2, policy.observation_size)), np.zeros(2))
    except ValueError as error:
        return NAMED if "\n" not in str(error) else f"{TRACEBACK}: {error!r}"[:300]
    if not np.isfinite(actions).all():
        return f"{WRONG}: an action is not finite"
    good = load_exported(file.with_name("good.stablehlo"))
    truth = good(np.zeros((2, good.observation_size)), np.zeros(2))
    same = actions.shape == truth.shape and np.array_equal(actions, truth)
    return CORRECT if same or not exact else f"{WRONG}: other actions"


def on_disk(number: tuple[int, int], folder: Path) -> str:
    good, rng = exported_file(folder, bool(number[1] % 2)), np.random.default_rng(number)
    file = folder / "bad.stablehlo"
    file.write_bytes(good.read_bytes())
    changes.BYTES[rng.integers(len(changes.BYTES))](file, rng)
    return loaded(file, exact=True)


def content(number: tuple[int, int], folder: Path) -> str:
    """Other facts or another program, with checksums that are right."""
    good, rng = exported_file(folder, bool(number[1] % 2)), np.random.default_rng(number)
    with zipfile.ZipFile(good) as archive:
        facts, program = archive.read("policy.json"), bytearray(archive.read("policy.bin"))
    if number[1] % 3:
        (folder / "facts.json").write_bytes(facts)
        changes.texts(folder / "facts.json", rng)
        facts = (folder / "facts.json").read_bytes()
    else:
        for _ in range(rng.integers(1, 9)):
            program[rng.integers(len(program))] ^= 1 << rng.integers(8)
    return loaded(zipped(folder, facts, bytes(program)))


def zipped(folder: Path, facts: bytes, program: bytes) -> Path:
    with zipfile.ZipFile(folder / "bad.stablehlo", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("policy.json", facts)
        archive.writestr("policy.bin", program)
    return folder / "bad.stablehlo"


def damaged(share: float, seed: int) -> list[Attack]:
    count = max(1, round(share * DAMAGED))
    return [Attack(f"{i} of seed {seed}", partial(on_disk, (seed, i))) for i in range(count)]


def contents(share: float, seed: int) -> list[Attack]:
    count = max(1, round(share * CONTENT))
    return [Attack(f"{i} of seed {seed}", partial(content, (seed, i))) for i in range(count)]


# Code outside of a program: Python's callbacks and others, with what they are given.
CALLS = tuple(
    (name, given)
    for name in (
        "xla_ffi_python_cpu_callback",
        "xla_ffi_partitioned_python_cpu_callback",
        "xla_buffer_python_cpu_callback",
        "lapack_sgetrf_ffi",
        "my_own_kernel",
    )
    for given in ({"index": 12345}, {})
)


def calling(name: str, given: dict[str, int], folder: Path) -> str:
    """A policy whose program calls something outside of itself."""
    import jax

    def act(observation: Any, reward: Any, fresh: Any, last: Any) -> Any:
        values = {key: np.uint64(value) for key, value in given.items()}
        return jax.ffi.ffi_call(name, last)(last, **values), last

    facts = {"format": 1, "observation_size": 3, "action_size": 1, "remembers": False, "memory": []}
    shapes = [((1, 3), "float32"), ((1,), "float32"), ((1,), "bool"), ((1, 1), "float32")]
    inputs = [jax.ShapeDtypeStruct(*each) for each in shapes]
    allowed = [jax.export.DisabledSafetyCheck.custom_call(name)]
    program = jax.export.export(jax.jit(act), disabled_checks=allowed)(*inputs)
    exported_file(folder)
    file = zipped(folder, json.dumps(facts).encode(), bytes(program.serialize()))
    return loaded(file, exact=True)


def shaped(what: str, folder: Path) -> str:
    """What is no file, or expands beyond all measure."""
    good = exported_file(folder)
    if what == "pipe":
        os.mkfifo(folder / "bad.stablehlo")
    elif what == "folder":
        (folder / "bad.stablehlo").mkdir()
    else:
        with zipfile.ZipFile(good) as archive:
            facts = archive.read("policy.json")
        size = {"bomb": 2**30, "facts without end": 2**21}[what]
        zipped(folder, b" " * size if what != "bomb" else facts, bytes(size))
    return loaded(folder / "bad.stablehlo")


def calls(share: float, seed: int) -> list[Attack]:
    return some([Attack(f"{c[0]} {c[1]}", partial(calling, *c)) for c in CALLS], share)


def shapes(share: float, seed: int) -> list[Attack]:
    every = ("pipe", "folder", "bomb", "facts without end")
    return some([Attack(what, partial(shaped, what)) for what in every], share)


AREAS: Areas = {
    "damaged on disk": damaged,
    "other content, good checksums": contents,
    "calls of code outside": calls,
    "no files, and bombs": shapes,
}


def run(share: float, seed: int) -> Iterator[Tally]:
    return attacks.run("exported", AREAS, share, seed, based=False)
