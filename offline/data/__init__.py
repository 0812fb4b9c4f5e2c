"""Offline datasets: find, read, check, write, inspect and sample them.

dataset = load("hopper-medium-v2")      # or a path, a Minari id, a dict
dataset = from_arrays(observations, actions, rewards, terminals, timeouts, action_low=-2, ...)
print_inspection(inspect(dataset))
transitions = to_device(dataset.transitions)
batch = sample_batch(transitions, key, 256)
"""

from .arrays import from_arrays
from .bounds import from_unit, to_unit
from .catalogue import CATALOGUE
from .checks import validate
from .d4rl import load_d4rl, write_d4rl
from .inspection import Inspection, inspect, inspect_file
from .minari import load_minari
from .names import data_folder, load, resolve
from .neorl import load_neorl
from .references import (
    REFERENCE_SCORES,
    normalised_score,
    normalised_spread,
    reference_scores,
    score_label,
)
from .transitions import (
    Dataset,
    Episodes,
    Transitions,
    episode_returns,
    episodes,
    sample_batch,
    take_rows,
    to_device,
)
from .views import draw_inspection, print_inspection

__all__ = [
    "CATALOGUE",
    "REFERENCE_SCORES",
    "Dataset",
    "Episodes",
    "Inspection",
    "Transitions",
    "data_folder",
    "draw_inspection",
    "episode_returns",
    "episodes",
    "from_arrays",
    "from_unit",
    "inspect",
    "inspect_file",
    "load",
    "load_d4rl",
    "load_minari",
    "load_neorl",
    "normalised_score",
    "normalised_spread",
    "print_inspection",
    "reference_scores",
    "resolve",
    "sample_batch",
    "score_label",
    "take_rows",
    "to_device",
    "to_unit",
    "validate",
    "write_d4rl",
]
