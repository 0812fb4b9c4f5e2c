"""Networks on fields of one to three axes, all behind the signature of `FieldNetwork`."""

from .convnext import ConvNext
from .drift import Drift
from .fno import Fno
from .poseidon import Poseidon
from .resnet import Resnet
from .transolver import Transolver
from .unet import Unet

__all__ = ["ConvNext", "Drift", "Fno", "Poseidon", "Resnet", "Transolver", "Unet"]
