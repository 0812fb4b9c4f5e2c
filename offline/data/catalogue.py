"""D4RL's datasets: where each lies, which environment it is from, its time limit.

Taken from D4RL (Apache-2.0): `d4rl/infos.py` and the registrations in `d4rl/locomotion`,
`d4rl/pointmaze`, `d4rl/hand_manipulation_suite`, `d4rl/kitchen` and `d4rl/gym_mujoco`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

_ROOT = "https://rail.eecs.berkeley.edu/datasets/offline_rl"

LOCOMOTION = ("halfcheetah", "hopper", "walker2d", "ant")
# v0 has no full-replay.
LOCOMOTION_KINDS = {
    "v0": ("random", "medium", "expert", "medium-replay", "medium-expert"),
    "v1": ("random", "medium", "expert", "medium-replay", "full-replay", "medium-expert"),
    "v2": ("random", "medium", "expert", "medium-replay", "full-replay", "medium-expert"),
}
ANTMAZES = {
    # kind: (size in the file names of v0 and v2, size in those of v1, many starts, many goals)
    "umaze": ("u-maze", "umaze", False, False),
    "umaze-diverse": ("u-maze", "umaze", True, True),
    "medium-play": ("big-maze", "medium", True, False),
    "medium-diverse": ("big-maze", "medium", True, True),
    "large-play": ("hardest-maze", "large", True, False),
    "large-diverse": ("hardest-maze", "large", True, True),
}
MAZE2D_STEPS = {
    "v0": {"open": 150, "umaze": 150, "medium": 250, "large": 600},
    "v1": {"umaze": 300, "medium": 600, "large": 800},
}
ADROIT_STEPS = {"pen": 100, "hammer": 200, "relocate": 200, "door": 200}
ADROIT_KINDS = ("human", "cloned", "expert")
_KITCHEN = {
    "complete": "mini_kitchen_microwave_kettle_light_slider-v0",
    "partial": "kitchen_microwave_kettle_light_slider-v0",
    "mixed": "kitchen_microwave_kettle_bottomburner_light-v0",
}
_LOCOMOTION_IDS = {
    "halfcheetah": "HalfCheetah",
    "hopper": "Hopper",
    "walker2d": "Walker2d",
    "ant": "Ant",
}


class Entry(NamedTuple):
    """One dataset of D4RL.

    Attributes:
        url: source of the download.
        environment: environment id; locomotion in Gym's naming, `Hopper-v2` (D4RL's v2 data come
            from the -v2 environments, its v0 and v1 data are labelled alike).
        max_episode_steps: the time limit D4RL registers.
    """

    url: str
    environment: str
    max_episode_steps: int


def _locomotion() -> Iterator[tuple[str, Entry]]:
    for version, kinds in LOCOMOTION_KINDS.items():
        for family in LOCOMOTION:
            for kind in kinds:
                if version == "v0":
                    short = "walker" if (family, kind) == ("walker2d", "medium-replay") else family
                    stem = f"{short}_{'mixed' if kind == 'medium-replay' else kind}"
                    url = f"{_ROOT}/gym_mujoco/{stem.replace('-', '_')}.hdf5"
                else:
                    stem = f"{family}_{kind.replace('-', '_')}-{version}"
                    url = f"{_ROOT}/gym_mujoco_{version}/{stem}.hdf5"
                environment = f"{_LOCOMOTION_IDS[family]}-v2"
                yield f"{family}-{kind}-{version}", Entry(url, environment, 1000)


def _antmaze() -> Iterator[tuple[str, Entry]]:
    folders = {"v0": "ant_maze_new", "v1": "ant_maze_v1", "v2": "ant_maze_v2"}
    for version, folder in folders.items():
        for kind, (size, size_v1, starts, goals) in ANTMAZES.items():
            stem = f"Ant_maze_{size_v1 if version == 'v1' else size}_noisy"
            stem += f"_multistart_{starts}_multigoal_{goals}_sparse"
            stem += "_fixed" if version == "v2" else ""
            name = f"antmaze-{kind}-{version}"
            steps = 700 if kind.startswith("umaze") else 1000
            yield name, Entry(f"{_ROOT}/{folder}/{stem}.hdf5", name, steps)


def _maze2d() -> Iterator[tuple[str, Entry]]:
    for version, sizes in MAZE2D_STEPS.items():
        for size, steps in sizes.items():
            for reward in ("sparse", "dense"):
                dense = "-dense" if reward == "dense" else ""
                suffix = "-v1" if version == "v1" else ""
                name = f"maze2d-{size}{dense}-{version}"
                url = f"{_ROOT}/maze2d/maze2d-{size}-{reward}{suffix}.hdf5"
                yield name, Entry(url, name, steps)


def _adroit() -> Iterator[tuple[str, Entry]]:
    stems = {"human": "{}-v0_demos_clipped", "cloned": "{}-demos-v0-bc-combined"}
    for task, steps in ADROIT_STEPS.items():
        for kind in ADROIT_KINDS:
            stem = stems.get(kind, "{}-v0_expert_clipped").format(task)
            name = f"{task}-{kind}-v0"
            yield name, Entry(f"{_ROOT}/hand_dapg/{stem}.hdf5", f"{task}-v0", steps)
            name = f"{task}-{kind}-v1"
            yield name, Entry(f"{_ROOT}/hand_dapg_v1/{name}.hdf5", f"{task}-v0", steps)


def _kitchen() -> Iterator[tuple[str, Entry]]:
    for kind, stem in _KITCHEN.items():
        yield f"kitchen-{kind}-v0", Entry(f"{_ROOT}/kitchen/{stem}.hdf5", f"kitchen-{kind}-v0", 280)


CATALOGUE: dict[str, Entry] = dict(
    entry for table in (_locomotion, _antmaze, _maze2d, _adroit, _kitchen) for entry in table()
)

# File stems that belong to one dataset of D4RL only; v0 locomotion is left out because its stems
# (`halfcheetah_medium`) carry no version and are used for other data too.
BY_STEM: dict[str, str] = {
    PurePosixPath(entry.url).stem: name
    for name, entry in CATALOGUE.items()
    if "/gym_mujoco/" not in entry.url
}
