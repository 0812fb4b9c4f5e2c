"""Online SAC in one call: a simulator goes in, a policy, its history and a report come out.

outcome = offline.train_online("mujoco/HalfCheetah-v4", offline.Sac(), 200_000, context=run)
outcome.returns                              # [seeds], of the last evaluation
outcome.curve()                              # steps [looks], returns [looks, seeds]
action = outcome.policy(0)(observation)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from ..agents.model_free import ModelFree
from ..agents.sac import SacConfig
from ..environments import Environment
from ..evaluation import check_count
from ..method import Agent
from ..policy import Policy
from ..saved_policies import LAST, policy_of, save_policy
from ..training import evaluator, train_learner
from .learner import OnlineConfig, make_online, simulator

STAGE = "sac"
DEFAULT = SacConfig(hidden_dims=(256, 256))


class Online(NamedTuple):
    """What `train_online` returns.

    Attributes:
        env: where it acted.
        agent: functions of what acts.
        settings: of the agent.
        config: how acting and learning alternated.
        trained: state and history.
    """

    env: Environment
    agent: Agent
    settings: SacConfig
    config: OnlineConfig
    trained: Trained

    @property
    def returns(self) -> np.ndarray:
        """`[seeds]`, undiscounted, of the last evaluation with the mean action."""
        return self.curve()[1][-1]

    @property
    def steps(self) -> int:
        """Steps in the simulator that every seed took."""
        return self.config.steps_at(self.trained.history.records[-1].iteration)

    def curve(self, name: str = "return") -> tuple[np.ndarray, np.ndarray]:
        """Steps in the simulator `[looks]` and what was recorded there, `[looks, seeds]`."""
        iterations, values = self.trained.history.curve(name)
        return self.config.steps_at(iterations), values

    def actor(self, seed: int = 0, look: int = -1) -> PyTree:
        """Parameters of one seed's policy at one of the evaluations, by default the last.

        Args:
            seed: which of the training seeds.
            look: which evaluation, from 0.
        """
        return jax.tree.map(lambda leaf: leaf[seed, look], self.trained.state.looks)

    def policy(self, seed: int = 0, **options: Any) -> Policy:
        """What acts, of one training seed: numpy in and out; `options` as for `load_policy`."""
        return Policy(
            policy_of(self.settings, self._actors, self.env, **self._facts), seed, **options
        )

    def save(self, folder: str | Path) -> Path:
        """Write the policies of all seeds; `load_policy(folder)` reads them."""
        save_policy(Path(folder) / LAST, self.settings, self._actors, env=self.env, **self._facts)
        return Path(folder)

    @property
    def _actors(self) -> PyTree:
        return self.trained.state.agent.actor

    @property
    def _facts(self) -> dict[str, Any]:
        return {"method": "online sac", "dataset": "none", "returns": self.returns}


def train_online(
    environment: Any,
    agent: SacConfig | None = None,
    steps: int = 100_000,
    *,
    online: OnlineConfig | None = None,
    seeds: int = 1,
    seed: int = 0,
    stage: str = STAGE,
    context: RunContext | None = None,
) -> Online:
    """Train SAC in a simulator.

    Gymnasium's MuJoCo environments run on the host, gymnax's, brax's and the embedded ones inside
    the compiled program; in both, simulators and replay buffer are part of the checkpoint, and a
    run that was cut goes on to the same bits (on CPU).

    Args:
        environment: what `make` takes. Other environments of Gymnasium than MuJoCo's keep a state
            that no checkpoint holds, and are refused.
        agent: settings of SAC or EDAC; None takes SAC with networks of 2 x 256.
        steps: in the simulator, of each seed; rounded to whole iterations between evaluations.
        online: how acting and learning alternate.
        seeds: trained side by side.
        seed: the same seed gives the same training.
        stage: folder of this training in the run, where it resumes by itself.
        context: a run whose folder keeps checkpoints and the policy; a run that was cut goes on
            from there. None trains in memory and in silence.

    Returns:
        An `Online`.

    Raises:
        ConfigError: a setting out of range, or an environment that cannot be trained in.
        DivergenceError: training became non-finite.
        Interrupted: the context's stop flag was raised; the run can be resumed.
    """
    online = online or OnlineConfig()
    settings = _settings(agent)
    check(settings)
    check_count("steps", steps)
    check_count("seeds", seeds)
    env = simulator(environment)
    iterations = online.iterations(steps)
    learner = make_online(env, settings, online, iterations)
    train_key, play_key = jax.random.split(jax.random.key(seed))
    play = evaluator(learner, env, play_key, online.episodes, discount=settings.discount)
    trained = train_learner(
        learner,
        (),
        train_key,
        seeds=seeds,
        iterations=iterations,
        stage=stage,
        evaluate=play,
        evaluate_every=iterations // online.looks,
        context=context,
    )
    outcome = Online(env, learner.agent, settings, online, trained)
    if context:
        outcome.save(context.folder.stage(stage))
    return outcome


def _settings(agent: SacConfig | None) -> SacConfig:
    agent = agent() if isinstance(agent, type) else agent
    if agent is None:
        return DEFAULT
    if not isinstance(agent, SacConfig):
        raise ConfigError("agent", type(agent).__name__, "settings of sac or edac")
    own: Any = agent.acts if isinstance(agent, ModelFree) else agent
    return own
