"""Datasets as tapes: start states, actions and snapshots, which MuJoCo replays to every row."""

ENVIRONMENTS = {
    "halfcheetah": "mujoco/HalfCheetah-v4",
    "hopper": "mujoco/Hopper-v4",
    "walker2d": "mujoco/Walker2d-v4",
}
KINDS = ("random", "medium", "medium-replay", "medium-expert", "expert")
NAMES = tuple(f"{family}-{kind}" for family in ENVIRONMENTS for kind in KINDS)
SUFFIX = ".tape"
