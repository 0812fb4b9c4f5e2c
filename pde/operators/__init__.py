"""Networks on periodic fields, all behind the signature of `FieldNetwork`."""

from .fno import FnoConfig, make_fno
from .resnet import ResnetConfig, make_resnet
from .unet import UnetConfig, make_unet

__all__ = ["FnoConfig", "ResnetConfig", "UnetConfig", "make_fno", "make_resnet", "make_unet"]
