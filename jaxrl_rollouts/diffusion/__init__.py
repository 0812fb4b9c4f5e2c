"""Diffusion over any array: preconditioning and loss, sampler, guidance, likelihood, networks.

Arrays are `[B, ...]` with data standardised to `sigma_data`; `[B, F]` for single transitions,
`[B, L, C]` for trajectories. In reading order: `edm`, `sampler`, `guide`,
`networks`, `unet`, `flow`, `flow_losses`, `jumps`, `training`, `fitted`.
The names in `__all__` are stable; see `jaxrl_rollouts`.

    model = diffusion.fit(rows, diffusion.Unet(), steps=5000)      # rows [N, L, C]
    drawn = model.sample(64)                                         # [64, L, C]
    few = model.distil(rows, calls=4)                                # its student
    drawn = few.sample(64)                                           # in four calls
"""

from __future__ import annotations

from .edm import Denoiser as Denoiser
from .edm import EdmConfig as EdmConfig
from .edm import log_likelihood as log_likelihood
from .edm import make_denoiser as make_denoiser
from .edm import noise_levels as noise_levels
from .fitted import fit as fit
from .flow import DistillationBatch as DistillationBatch
from .flow import Flow as Flow
from .flow import FlowConfig as FlowConfig
from .flow import denoiser_of_flow as denoiser_of_flow
from .flow import distillation_batch as distillation_batch
from .flow import flow_of_denoiser as flow_of_denoiser
from .flow import make_flow as make_flow
from .flow import start_from_teacher as start_from_teacher
from .guide import GuidanceConfig as GuidanceConfig
from .guide import Target as Target
from .guide import make_guidance as make_guidance
from .jumps import JumpConfig as JumpConfig
from .jumps import draw_samples as draw_samples
from .jumps import sample_jumps as sample_jumps
from .networks import ResidualMlp as ResidualMlp
from .networks import make_residual_mlp as make_residual_mlp
from .sampler import Guidance as Guidance
from .sampler import SamplerConfig as SamplerConfig
from .sampler import check_finite as check_finite
from .sampler import sample as sample
from .training import DenoiserTrainingConfig as DenoiserTrainingConfig
from .training import DistilConfig as DistilConfig
from .training import distil as distil
from .training import make_denoiser_training as make_denoiser_training
from .training import small_distil as small_distil
from .training import small_training as small_training
from .training import train_denoiser as train_denoiser
from .unet import Unet as Unet
from .unet import make_temporal_unet as make_temporal_unet

__all__ = [
    "DistilConfig",
    "EdmConfig",
    "FlowConfig",
    "GuidanceConfig",
    "JumpConfig",
    "ResidualMlp",
    "SamplerConfig",
    "Target",
    "Unet",
    "fit",
    "log_likelihood",
    "make_flow",
    "make_guidance",
    "sample",
    "sample_jumps",
]
