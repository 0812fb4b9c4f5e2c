"""D4RL's tasks beyond locomotion, and the package gymnasium-robotics that has some of them."""

from __future__ import annotations

import importlib
import importlib.util
import re

PACKAGE = "gymnasium_robotics"
# D4RL's environment: the one with the same observations, actions and rewards.
ROBOTICS = {
    "pen-v0": "AdroitHandPen-v1",
    "door-v0": "AdroitHandDoor-v1",
    "hammer-v0": "AdroitHandHammer-v1",
    "relocate-v0": "AdroitHandRelocate-v1",
}
_D4RL = re.compile(r"(antmaze|maze2d|kitchen)-[a-z-]+-v[0-2]")
_IDS = re.compile(
    r"(AntMaze|PointMaze|AdroitHand|FrankaKitchen|Fetch|HandManipulate|HandReach)\w*(-[\w-]+)?-v\d+"
)


def is_robotics(name: str) -> bool:
    """Whether an id is one of gymnasium-robotics'."""
    return bool(_IDS.fullmatch(name))


def register_robotics() -> bool:
    """Let Gymnasium know the package's environments; False where it is not installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        return False
    importlib.import_module(PACKAGE)
    return True


def absent_task(name: str) -> str:
    """Why there is no simulator for the environment of a dataset, in a sentence; "" otherwise."""
    if _D4RL.fullmatch(name):
        return (
            f"{name}: no package has this simulator as D4RL had it, so nothing is evaluated; "
            "environment= (--environment) names one of your own."
        )
    if (name in ROBOTICS or is_robotics(name)) and not register_robotics():
        return (
            f"{name}: its simulator is in gymnasium-robotics, which is not installed, so nothing "
            "is evaluated; run: pip install 'jaxrl-rollouts[robotics]'"
        )
    return ""
