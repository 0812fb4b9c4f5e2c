"""Offline model-based reinforcement learning: data, environments, world models, agents.

    from jaxrl_rollouts import offline

    result = offline.train("hopper-medium-v2", "ravl", seeds=4)
    result.returns                                            # [seeds]

The names that are imported here are stable; see `jaxrl_rollouts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxrl_rollouts.lazy import lazily

if not __name__.startswith("jaxrl_rollouts."):
    # A checkout's folder on the path: everything would be loaded twice, under two names.
    raise ImportError("found `import offline`, expected `from jaxrl_rollouts import offline`")

if TYPE_CHECKING:
    from jaxrl_rollouts.ensemble import max_aleatoric as max_aleatoric
    from jaxrl_rollouts.ensemble import max_pairwise as max_pairwise
    from jaxrl_rollouts.ensemble import spread_of_means as spread_of_means
    from jaxrl_rollouts.ensemble import total_spread as total_spread
    from jaxrl_rollouts.exported import load_exported as load_exported

    from .agents.actors import ActorConfig as ActorConfig
    from .agents.bc import Bc as Bc
    from .agents.bc import BcConfig as BcConfig
    from .agents.cql import Cql as Cql
    from .agents.cql import CqlConfig as CqlConfig
    from .agents.fql import Fql as Fql
    from .agents.fql import FqlConfig as FqlConfig
    from .agents.ifql import Ifql as Ifql
    from .agents.ifql import IfqlConfig as IfqlConfig
    from .agents.iql import Iql as Iql
    from .agents.iql import IqlConfig as IqlConfig
    from .agents.leq import LeqConfig as LeqConfig
    from .agents.planner import Planner as Planner
    from .agents.rebrac import Rebrac as Rebrac
    from .agents.rebrac import RebracConfig as RebracConfig
    from .agents.sac import Edac as Edac
    from .agents.sac import EdacConfig as EdacConfig
    from .agents.sac import Sac as Sac
    from .agents.sac import SacConfig as SacConfig
    from .agents.td3_awr import Td3Awr as Td3Awr
    from .agents.td3_awr import Td3AwrConfig as Td3AwrConfig
    from .agents.td3_bc import Td3Bc as Td3Bc
    from .agents.td3_bc import Td3BcConfig as Td3BcConfig
    from .behaviours.made import load as load
    from .choosing.choose import ChooseConfig as ChooseConfig
    from .choosing.choose import choose as choose
    from .choosing.fqe import fqe as fqe
    from .collect import random_policy as random_policy
    from .data import episode_returns as episode_returns
    from .data import from_arrays as from_arrays
    from .environments import from_gymnasium as from_gymnasium
    from .environments import make as make
    from .environments import register_environment as register_environment
    from .fitted_q import FqeConfig as FqeConfig
    from .job import train as train
    from .loaded_run import LoadedRun as LoadedRun
    from .loaded_run import load_run as load_run
    from .method import Method as Method
    from .methods import METHODS as METHODS
    from .methods.admpo import Admpo as Admpo
    from .methods.base import Base as Base
    from .methods.combo import Combo as Combo
    from .methods.cvar import Cvar as Cvar
    from .methods.leq import Leq as Leq
    from .methods.mobile import Mobile as Mobile
    from .methods.mobrac import Mobrac as Mobrac
    from .methods.model_based import ModelBased as ModelBased
    from .methods.model_based import Rollouts as Rollouts
    from .methods.mopo import Mopo as Mopo
    from .methods.morel import Morel as Morel
    from .methods.neubay import Neubay as Neubay
    from .methods.pgd import Pgd as Pgd
    from .methods.rambo import Rambo as Rambo
    from .methods.ravl import Ravl as Ravl
    from .methods.synther import Synther as Synther
    from .online.learner import OnlineConfig as OnlineConfig
    from .online.learner import OnlineSac as OnlineSac
    from .online.train import finetune as finetune
    from .online.train import train_online as train_online
    from .policy import Policy as Policy
    from .policy import load_policy as load_policy
    from .policy_value import model_value as model_value
    from .recipes import recipe as recipe
    from .rehearsal.train import ContinualConfig as ContinualConfig
    from .rehearsal.train import continual as continual
    from .result import TrainResult as TrainResult
    from .synthetic.synthesis import synthesise as synthesise
    from .worlds.any_step import AnyStepConfig as AnyStepConfig
    from .worlds.exact import true_dynamics as true_dynamics
    from .worlds.fit import WorldModelConfig as WorldModelConfig
    from .worlds.fit import fit_world_models as fit_world_models
    from .worlds.thresholds import uncertainty_threshold as uncertainty_threshold
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
