"""Where the peers are, and what benchmarks are held to: the project's goals."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ..catalogue import GOALS
from . import timing

PEERS = Path(__file__).parent / "peers"
claim_times = partial(timing.claim_times, source=GOALS)
show_seeds = partial(timing.show_seeds, source=GOALS)
