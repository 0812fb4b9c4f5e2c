"""Networks on fields of one to three axes, all behind the signature of `FieldNetwork`."""

from .drift import DriftConfig, make_drift
from .fno import FnoConfig, make_fno
from .ported import unet_from_pdearena
from .resnet import ResnetConfig, make_resnet
from .unet import UnetConfig, make_unet

# Name -> configuration and `make(config, channels, points, conditions, history, boundaries)`, which
# gives a `FieldNetwork`.
NETWORKS = {
    "resnet": (ResnetConfig, make_resnet),
    "unet": (UnetConfig, make_unet),
    "fno": (FnoConfig, make_fno),
    "drift": (DriftConfig, make_drift),
}

__all__ = [
    "NETWORKS",
    "DriftConfig",
    "FnoConfig",
    "ResnetConfig",
    "UnetConfig",
    "make_drift",
    "make_fno",
    "make_resnet",
    "make_unet",
    "unet_from_pdearena",
]
