"""Exported policies: damaged on disk, other content with good checksums, native code."""

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
from .attacks import Areas, Attack, some
from .hostile import CORRECT, NAMED, TRACEBACK, WRONG
from .tally import Tally

DAMAGED, CONTENT = 150, 91
CALLS = (
    "xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback",
    "xla_buffer_python_cpu_callback", "xla_python_cpu_callback", "lapack_sgetrf_ffi",
    "tpu_custom_call", "__gpu$xla.gpu.triton", "no_such_target", "Sharding2",
)  # fmt: skip


def exported_file(folder: Path, memory: bool = False) -> Path:
    """A policy with random parameters; with a memory NEUBAY's."""
    import jax

    from jaxrl_rollouts.offline.agents.sac import SacConfig, make_sac
    from jaxrl_rollouts.offline.policy import Policy
    from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig
    from jaxrl_rollouts.offline.recurrent.sac import RecurrentSacConfig, make_recurrent_sac
    from jaxrl_rollouts.offline.saved_policies import policy_of

    config: Any = SacConfig(critics=2, diversity=0.0, hidden=(4,))
    make: Any = make_sac
    if memory:
        kept = MemoryConfig("lru", width=4, state=2, layers=1)
        config, make = RecurrentSacConfig(memory=kept, head=(4,), critics=2), make_recurrent_sac
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


def calling(target: str, folder: Path) -> str:
    """A program that calls native code with an argument of its own choice."""
    import jax
    import jax.export

    def act(observation: Any, reward: Any, fresh: Any, last: Any) -> Any:
        return jax.ffi.ffi_call(target, last)(last, index=np.uint64(2**40)), last

    shapes = [((2, 3), "float32"), ((2,), "float32"), ((2,), "bool"), ((2, 1), "float32")]
    inputs = [jax.ShapeDtypeStruct(*shape) for shape in shapes]
    allowed = [jax.export.DisabledSafetyCheck.custom_call(target)]
    program = jax.export.export(jax.jit(act), disabled_checks=allowed)(*inputs)
    facts = {"format": 1, "observation_size": 3, "action_size": 1, "remembers": False, "memory": []}
    exported_file(folder)
    outcome = loaded(zipped(folder, json.dumps(facts).encode(), bytes(program.serialize())))
    return outcome if outcome == NAMED else f"executed: {outcome}"


def kind(what: str, folder: Path) -> str:
    good, file = exported_file(folder), folder / "bad.stablehlo"
    with zipfile.ZipFile(good) as archive:
        facts = archive.read("policy.json")
    if what == "pipe":
        os.mkfifo(file)
    elif what == "folder":
        file.mkdir()
    elif what == "device":
        file.symlink_to("/dev/zero")
    else:
        zipped(folder, facts, bytes(2**31))
    import resource

    outcome = loaded(file)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return f"{WRONG}: {peak / 1e9:.1f} GB" if peak > 6e9 and what == "bomb" else outcome


def damaged(share: float, seed: int) -> list[Attack]:
    count = max(1, round(share * DAMAGED))
    return [Attack(f"{i} of seed {seed}", partial(on_disk, (seed, i))) for i in range(count)]


def contents(share: float, seed: int) -> list[Attack]:
    count = max(1, round(share * CONTENT))
    return [Attack(f"{i} of seed {seed}", partial(content, (seed, i))) for i in range(count)]


def calls(share: float, seed: int) -> list[Attack]:
    return some([Attack(name, partial(calling, name)) for name in CALLS], share)


def kinds(share: float, seed: int) -> list[Attack]:
    every = ("pipe", "folder", "device", "bomb")
    return some([Attack(what, partial(kind, what)) for what in every], share)


AREAS: Areas = {
    "damaged on disk": damaged,
    "other content, good checksums": contents,
    "calls of native code": calls,
    "pipes, folders, devices, bombs": kinds,
}


def run(share: float, seed: int) -> Iterator[Tally]:
    return attacks.run("exported", AREAS, share, seed)
