"""Neural PDE emulators on the same engine: fields rolled forward without actions.

    from jaxrl_rollouts import pde

    fields = pde.from_arrays(u, dt=0.1)                       # u [N, T, X]
    fitted = pde.fit("mse", fields, steps=5000)              # or pde.Refiner(refinements=3)
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
    from .adapters import from_equinox as from_equinox
    from .emulator import FieldNetwork as FieldNetwork
    from .emulator import FieldShape as FieldShape
    from .ensemble import Member as Member
    from .ensemble import calibrate as calibrate
    from .ensemble import forecast as forecast
    from .files import from_arrays as from_arrays
    from .files import read as read
    from .fitting import fit as fit
    from .generate_settings import Simulation as Simulation
    from .objectives import Correction as Correction
    from .objectives import Crps as Crps
    from .objectives import Mse as Mse
    from .objectives import Pushforward as Pushforward
    from .objectives import Refiner as Refiner
    from .objectives import Sobolev as Sobolev
    from .objectives import Unrolled as Unrolled
    from .operators import ConvNext as ConvNext
    from .operators import Drift as Drift
    from .operators import Fno as Fno
    from .operators import Poseidon as Poseidon
    from .operators import Resnet as Resnet
    from .operators import Transolver as Transolver
    from .operators import Unet as Unet
    from .poseidon import load_poseidon as load_poseidon
    from .promises import calibrated as calibrated
    from .promises import trusted as trusted
    from .saved import load_emulator as load_emulator
    from .solving import solve as solve
    from .step_sizes import strided as strided
    from .training import Training as Training
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
