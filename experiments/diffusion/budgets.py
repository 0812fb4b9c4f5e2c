"""How denoisers are trained where the budget is small."""

from __future__ import annotations

from jaxrl_rollouts.diffusion import DenoiserTrainingConfig


def denoiser_training(updates: int, batch: int, *, rate: float = 1e-3) -> DenoiserTrainingConfig:
    """Adam for a small budget: a tenth is warm-up, the average goes back a twentieth of it."""
    per = max(updates // 10, 1)
    return DenoiserTrainingConfig(
        updates=updates, batch=batch, rate=rate, betas=(0.9, 0.999), warmup=per,
        average=1.0 - min(0.5, 20.0 / updates), average_every=1, per_iteration=per,
    )  # fmt: skip


def windows_training(updates: int, *, batch: int = 64) -> DenoiserTrainingConfig:
    """Adam at 1e-3 with a tenth of the updates as warm-up; averaged after every update."""
    return DenoiserTrainingConfig(
        updates=updates, batch=batch, rate=1e-3, betas=(0.9, 0.999), warmup=updates // 10,
        average=0.999, average_every=1, per_iteration=min(500, updates),
    )  # fmt: skip
