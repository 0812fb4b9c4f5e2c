"""Offline model-based reinforcement learning: data, environments, world models, agents.

    from jaxrl_rollouts import offline

    outcome = offline.train("hopper-medium-v2", "ravl", seeds=4)
    outcome.returns                                           # [seeds]

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
    from .agents.iql_method import Iql as NextIql
    from .behaviours.made import load_dataset as load
    from .collect import random_policy as random_policy
    from .data import episode_returns as episode_returns
    from .data import from_arrays as from_arrays
    from .environments import from_gymnasium as from_gymnasium
    from .environments import make as make
    from .environments import register_environment as register_environment
    from .job import train as next_train
    from .methods.combo import Combo as Combo
    from .methods.mopo import Mopo as NextMopo
    from .online.learner import OnlineConfig as OnlineConfig
    from .online.sets import make_set as make_set
    from .online.train import train_online as train_online
    from .policy import Policy as Policy
    from .policy import load_policy as load_policy
    from .recipes import recipe as recipe
    from .study import METHODS as METHODS
    from .study import Base as Base
    from .study import Bc as Bc
    from .study import Budget as Budget
    from .study import Cql as Cql
    from .study import Edac as Edac
    from .study import Iql as Iql
    from .study import Mobile as Mobile
    from .study import Mopo as Mopo
    from .study import Neubay as Neubay
    from .study import Outcome as Outcome
    from .study import Planner as Planner
    from .study import Ravl as Ravl
    from .study import Rebrac as Rebrac
    from .study import Sac as Sac
    from .study import Td3Bc as Td3Bc
    from .study import imagined_value as imagined_value
    from .study import long_budget as long_budget
    from .study import small_budget as small_budget
    from .study import train as train
    from .synthetic.synthesis import synthesise as synthesise
    from .worlds.blend import true_dynamics as true_dynamics
    from .worlds.fit import fit_worlds as fit_worlds
    from .worlds.trust import uncertainty_threshold as uncertainty_threshold
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
