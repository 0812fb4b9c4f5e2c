"""Networks on fields of one to three axes, all behind the signature of `FieldNetwork`."""

from .drift import Drift
from .fno import Fno
from .ported import unet_from_pdearena
from .resnet import Resnet
from .unet import Unet

__all__ = ["Drift", "Fno", "Resnet", "Unet", "unet_from_pdearena"]
