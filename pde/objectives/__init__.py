"""How emulators step and what they are trained on, one file each."""

from .correction import Correction
from .crps import Crps
from .mse import Mse
from .pushforward import Pushforward
from .refiner import Refiner
from .sobolev import Sobolev
from .unrolled import Unrolled

__all__ = ["Correction", "Crps", "Mse", "Pushforward", "Refiner", "Sobolev", "Unrolled"]
