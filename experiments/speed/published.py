"""What others published on D4RL's own files, for orientation.

D4RL's scores at the end of a million gradient steps, with the standard deviations they give: CORL's
and OfflineRL-Kit's from their READMEs (four seeds and more), and table 1 of Kostrikov et al. 2022
(IQL), which quotes cloning, TD3+BC and CQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

BY = ("CORL", "OfflineRL-Kit", "IQL's table 1")
SCORES: Mapping[str, Mapping[str, tuple[str, str, str]]] = {
    "halfcheetah-medium": {
        "bc": ("42.4 ± 0.2", "-", "42.6"),
        "td3_bc": ("48.1 ± 0.2", "48.2 ± 0.5", "48.3"),
        "iql": ("48.3 ± 0.2", "47.4 ± 0.5", "47.4"),
        "cql": ("47.0 ± 0.2", "49.4 ± 0.2", "44.0"),
    },
    "hopper-medium": {
        "bc": ("53.5 ± 1.8", "-", "52.9"),
        "td3_bc": ("60.4 ± 3.5", "60.8 ± 3.4", "59.3"),
        "iql": ("67.5 ± 3.8", "65.7 ± 8.1", "66.3"),
        "cql": ("59.1 ± 3.8", "59.1 ± 4.1", "58.5"),
    },
}


def rows(datasets: Iterable[str], agents: Iterable[str]) -> list[dict[str, Any]]:
    """A row per dataset and agent that somebody published; D4RL's set of the same name."""
    agents = tuple(agents)
    return [
        {"dataset": f"{data}-v2", "agent": agent} | dict(zip(BY, SCORES[data][agent], strict=True))
        for data in datasets
        for agent in agents
        if agent in SCORES.get(data, {})
    ]
