"""World models written to disk; `saved` reads them.

Apart from reading, which needs what fits them: that would be an import circle.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxrl_rollouts.config_json import to_json
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.record.provenance import provenance
from jaxrl_rollouts.record.saved import save_trained

from ..data import Dataset
from .dynamics import WorldModelParams
from .endings import TerminationConfig

if TYPE_CHECKING:
    from .fit import Targets
    from .thresholds import UncertaintyStats

FORMAT = 3  # 2: the members that are no elites, too; 3: `stats` is no longer called `trust`
FILE = "world.json"


def fingerprint(dataset: Dataset) -> dict[str, Any]:
    """What identifies the rows a model was fitted to."""
    t, offset = dataset.transitions, dataset.offset
    return {
        "sha256": dataset.sha256,
        "rows": len(t.rewards),
        "observation_size": t.observations.shape[1],
        "action_size": t.actions.shape[1],
        "offset": None if offset is None else offset.tolist(),
    }


def save_worlds(
    folder: str | Path,
    worlds: WorldModelParams,
    dataset: Dataset,
    config: EnsembleConfig,
    targets: Targets,
    *,
    stats: UncertaintyStats | None = None,
    ending: TerminationConfig | None = None,
) -> Path:
    """Write the worlds of all seeds and where they come from."""
    facts = {
        "format": FORMAT,
        "dataset": dataset.name,
        **fingerprint(dataset),
        "ensemble": to_json(config),
        "targets": targets,
        "levels": 0 if stats is None else stats.levels.shape[-1],
        "ending": None if ending is None else to_json(ending),
        "versions": provenance(),
    }
    params = {"worlds": worlds} if stats is None else {"worlds": worlds, "stats": stats}
    return save_trained(folder, FILE, facts, params)
