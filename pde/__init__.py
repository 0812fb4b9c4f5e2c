"""Neural PDE emulators on the same engine: fields rolled forward without actions.

    from jaxrl_rollouts import pde

    fields = pde.from_arrays(u, dt=0.1)                       # u [N, T, X]
    fitted = pde.fit(pde.Refiner(steps=3), fields, updates=5000)
    rolled = fitted.roll(u[:, 0], 1000)                       # [1000, N, 1, X]

The names that are imported here are stable; see `jaxrl_rollouts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxrl_rollouts.lazy import lazily

if not __name__.startswith("jaxrl_rollouts."):
    # A checkout's folder on the path: everything would be loaded twice, under two names.
    raise ImportError("found `import pde`, expected `from jaxrl_rollouts import pde`")

if TYPE_CHECKING:
    from . import baselines as baselines
    from . import flows as flows
    from . import metrics as metrics
    from . import scores as scores
    from .ensemble import Member as Member
    from .ensemble import calibrate as calibrate
    from .ensemble import forecast as forecast
    from .files import from_arrays as from_arrays
    from .files import read_fields as read
    from .generate import GenerateConfig as Equation
    from .objectives import OneStepConfig as OneStep
    from .operators import DriftConfig as Drift
    from .operators import FnoConfig as Fno
    from .operators import ResnetConfig as Resnet
    from .operators import UnetConfig as Unet
    from .refiner import RefinerConfig as Refiner
    from .saved import load_emulator as load_emulator
    from .study.fit import fit as fit
    from .study.solve import solve as solve
    from .training import TrainingConfig as Training
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
