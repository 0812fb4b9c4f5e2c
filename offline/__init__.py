"""Offline model-based reinforcement learning: data, environments, world models, agents.

    from jaxrl_rollouts import offline

    outcome = offline.train("hopper-medium-v2", "ravl", seeds=4)
    outcome.returns                                           # [seeds]

The names in `__all__` are stable; see `jaxrl_rollouts`.
"""

from __future__ import annotations

from jaxrl_rollouts.lazy import lazily

_SETTINGS = [
    "Base",
    "Mopo",
    "Mobile",
    "Ravl",
    "Neubay",
    "Bc",
    "Cql",
    "Edac",
    "Sac",
    "Td3Bc",
    "Iql",
    "Rebrac",
    "Planner",
]
_DISAGREEMENTS = ["spread_of_means", "max_aleatoric", "max_pairwise", "total_spread"]
_NAMES = {
    "load": ".behaviours.made:load_dataset",
    "from_arrays": ".data:from_arrays",
    "episode_returns": ".data:episode_returns",
    "make": ".environments:make",
    "from_gymnasium": ".environments:from_gymnasium",
    "register_environment": ".environments:register_environment",
    "train": ".study:train",
    "Budget": ".study:Budget",
    "small_budget": ".study:small_budget",
    "long_budget": ".study:long_budget",
    "METHODS": ".study:METHODS",
    "imagined_value": ".study:imagined_value",
    "Outcome": ".study:Outcome",
    "train_online": ".online.train:train_online",
    "ActorConfig": ".agents.actors:ActorConfig",
    "OnlineConfig": ".online.learner:OnlineConfig",
    "make_set": ".online.sets:make_set",
    **{name: f".study:{name}" for name in _SETTINGS},
    "synthesise": ".synthetic.synthesis:synthesise",
    "load_policy": ".policy:load_policy",
    "load_exported": "jaxrl_rollouts.exported:load_exported",
    "Policy": ".policy:Policy",
    "fit_worlds": ".worlds.fit:fit_worlds",
    "true_dynamics": ".worlds.blend:true_dynamics",
    **{name: f"jaxrl_rollouts.ensemble:{name}" for name in _DISAGREEMENTS},
    "trust": ".worlds.trust:trust",
    "random_policy": ".collect:random_policy",
}
__all__ = [*_NAMES]
__getattr__, __dir__ = lazily(__name__, _NAMES)
