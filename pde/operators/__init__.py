"""Networks on fields of one to three axes, all behind the signature of `FieldNetwork`."""

from .fno import FnoConfig, make_fno
from .resnet import ResnetConfig, make_resnet
from .unet import UnetConfig, make_unet

# Name -> configuration and `make(config, channels, points, conditions, history, boundaries)`, which
# gives a `FieldNetwork`.
NETWORKS = {
    "resnet": (ResnetConfig, make_resnet),
    "unet": (UnetConfig, make_unet),
    "fno": (FnoConfig, make_fno),
}

__all__ = [
    "NETWORKS",
    "FnoConfig",
    "ResnetConfig",
    "UnetConfig",
    "make_fno",
    "make_resnet",
    "make_unet",
]
