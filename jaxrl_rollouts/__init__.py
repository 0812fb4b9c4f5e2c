"""Learned dynamics rolled forward a long way, in JAX.

    import jaxrl_rollouts as jr

    outcome = jr.offline.train("pendulum-mixed", "mobile", seeds=2)
    outcome.returns  # [seeds]

What is stable: the names in `__all__` here, in `jr.offline`, `jr.pde` and `jr.diffusion`, and the
arguments that their documentation names. Everything else may move or change with any version.
Importing loads nothing; a name loads what it needs when it is first used.
"""

from __future__ import annotations

from typing import Any

from .lazy import lazily

_NAMES = {
    "rollout": ".rollouts:rollout",
    "Model": ".rollouts:Model",
    "Members": ".rollouts:Members",
    "outcome": ".rollouts:outcome",
    "EnsembleConfig": ".ensemble_config:EnsembleConfig",
    "fit_ensemble": ".fitted:fit_ensemble",
    "train_loop": ".loop:train",
    "Run": ".record.run:Run",
    "Report": ".reports.report:Report",
    "Claim": ".reports.claims:Claim",
    "offline": ".offline",
    "pde": ".pde",
    "diffusion": ".diffusion",
}
__all__ = [*_NAMES, "__version__"]
_find, _names = lazily(__name__, _NAMES)


def __dir__() -> list[str]:
    return sorted({*_names(), *__all__})


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from .record.provenance import package_version

        return package_version("jaxrl-rollouts")
    return _find(name)
