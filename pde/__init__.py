"""Neural PDE emulators on the same engine: fields rolled forward without actions.

    from jaxrl_rollouts import pde

    fields = pde.from_arrays(u, dt=0.1)                       # u [N, T, X]
    fitted = pde.fit(pde.Refiner(steps=3), fields, updates=5000)
    rolled = fitted.roll(u[:, 0], 1000)                       # [1000, N, 1, X]

The names in `__all__` are stable; see `jaxrl_rollouts`.
"""

from __future__ import annotations

from jaxrl_rollouts.lazy import lazily

_NAMES = {
    "read": ".files:read_fields",
    "from_arrays": ".files:from_arrays",
    "solve": ".study.solve:solve",
    "Equation": ".generate:GenerateConfig",
    "fit": ".study.fit:fit",
    "load_emulator": ".saved:load_emulator",
    "OneStep": ".objectives:OneStepConfig",
    "Refiner": ".refiner:RefinerConfig",
    "Training": ".training:TrainingConfig",
    "Resnet": ".operators:ResnetConfig",
    "Unet": ".operators:UnetConfig",
    "Fno": ".operators:FnoConfig",
    "Drift": ".operators:DriftConfig",
    "baselines": ".baselines",
    "flows": ".flows",
    "metrics": ".metrics",
}
__all__ = [*_NAMES]
__getattr__, __dir__ = lazily(__name__, _NAMES)
