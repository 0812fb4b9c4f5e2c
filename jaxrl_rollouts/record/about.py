"""Identity of a training's checkpoints: another training does not continue them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..configs import settings
from ..errors import CheckpointError
from ..trees import PyTree
from .files import plain

ABOUT = "settings.json"  # beside a checkpoint


def warnings_of(about: Any) -> dict[str, Any]:
    """Settings as JSON has them, by dotted name."""
    named = about.items() if isinstance(about, Mapping) else [("", about)]
    facts: dict[str, Any] = {}
    for name, value in named if about is not None else ():
        known = dataclasses.is_dataclass(value) and not isinstance(value, type)
        facts |= settings(value, name) if known else {name: value}
    return json.loads(json.dumps(plain(facts), default=_said))


def _said(value: Any) -> Any:
    """Of a dataclass what it holds, of code no more than what it is: addresses change."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value))
    return type(value).__name__


def seed_facts(keys: PyTree) -> dict[str, str]:
    """A digest of the typed keys of a tree, by which another seed is known.

    Numbers beside them say nothing: what was computed differs in its last bits between devices.
    """
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(keys):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            digest.update(np.asarray(jax.random.key_data(leaf)).tobytes())
    return {"keys of the seeds": digest.hexdigest()[:16]}


def check_facts(folder: Path, kept: str | None, facts: Mapping[str, Any]) -> None:
    """Compare a training's settings with those recorded in its folder.

    A setting that only one of the two records has is ignored: versions add and remove settings.
    """
    before = json.loads(kept) if kept else {}
    for name in facts:
        if name in before and before[name] != facts[name]:
            raise CheckpointError(
                f"{folder}: {name}: found a training with {before[name]!r}, expected "
                f"{facts[name]!r}; take another run folder, or bring that setting back"
            )
