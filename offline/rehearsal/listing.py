"""Continual learning as an experiment; known without importing jax."""

from __future__ import annotations

from jaxrl_rollouts.plugins import ExperimentInfo

CONTINUAL = ExperimentInfo(
    "continual",
    "continual learning on a sequence of tasks, with rehearsal from small buffers",
    "Gai et al. 2023 (arXiv:2305.13804)",
    minutes={"smoke": 1, "small": None},
    choices={"sequence": ("plane-goals", "pendulum-angles", "runner-builds", "files")},
)
