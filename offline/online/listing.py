"""The fine-tuning of a run as experiment and command; known without importing jax."""

from __future__ import annotations

from jaxrl_rollouts.plugins import ExperimentInfo, deferred

FINETUNING = ExperimentInfo(
    "finetune",
    "a run's policies, fine-tuned in a simulator with the data in every batch",
    "Ball et al. 2023 (arXiv:2302.02948)",
    minutes={"smoke": 1, "small": None},
    prepare="jaxrl_rollouts.offline.online.finetune_command:prepare",
)
COMMAND = deferred(
    "finetune",
    "Fine-tune a run's policies in a simulator.",
    "jaxrl_rollouts.offline.online.finetune_command:main",
)
