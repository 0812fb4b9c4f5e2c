"""Training in a simulator in one call, with policy, history and report.

outcome = offline.train_online("mujoco/HalfCheetah-v4", offline.Sac(), 200_000, context=run)
outcome = offline.finetune(result, "mujoco/HalfCheetah-v4", 20_000)      # result of offline.train
outcome.returns                              # [seeds], of the last evaluation
outcome.curve()                              # steps [looks], returns [looks, seeds]
action = outcome.policy(0)(observation)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import Trained
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from ..agents.model_free import ModelFree
from ..agents.sac import SacConfig
from ..behaviours.made import load, undeclared
from ..data import Dataset
from ..data.transitions import RAW, RewardScale
from ..environments import Environment, make
from ..environments.base import naming_failures
from ..environments.replayed import keeping
from ..evaluation import check_count
from ..matching import EnvironmentLike, matched
from ..method import Agent, AgentConfig
from ..policy import Policy
from ..result import TrainResult
from ..saved_policies import LAST, policy_of, save_policy
from ..training import evaluator, train_learner
from .learner import OnlineConfig, make_online
from .rows import Prior, logged
from .start import as_calibrated, log_of, place_of, start_of

STAGE = "sac"
DEFAULT = SacConfig(hidden_dims=(256, 256))
FINETUNE = OnlineConfig(warmup=0)


class Online(NamedTuple):
    """What `train_online` and `finetune` return.

    Attributes:
        env: its environment.
        agent: functions of the agent.
        settings: settings of the agent.
        config: alternation of acting and learning.
        trained: state and history.
        about: metadata of method and dataset in a policy's file.
        reward: the reward transformation used in training.
        before: metrics before a fine-tuning, as evaluations record them, `[seeds]` each; None
            of a training from nothing.
    """

    env: Environment
    agent: Agent
    settings: AgentConfig
    config: OnlineConfig
    trained: Trained
    about: Mapping[str, Any]
    reward: RewardScale = RAW
    before: Mapping[str, np.ndarray] | None = None

    def __repr__(self) -> str:
        began = "" if self.before is None else f"{self.before['return'].mean():.4g} to "
        what = f"{self.about['method']} in {self.env.name}, {self.steps:,} steps"
        return f"Online({what}: return {began}{self.returns.mean():.4g}, {len(self.returns)} seeds)"

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
            seed: index of the training seed.
            look: index of the evaluation, from 0.
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
        return {**self.about, "returns": self.returns, "reward": self.reward._asdict()}


def train_online(
    environment: EnvironmentLike,
    agent: SacConfig | None = None,
    steps: int = 100_000,
    *,
    data: Dataset | str | Path | None = None,
    online: OnlineConfig | None = None,
    seeds: int = 1,
    seed: int = 0,
    stage: str = STAGE,
    context: RunContext | None = None,
) -> Online:
    """Train SAC in a simulator.

    Environments of Gymnasium run on the host, gymnax's, brax's and the embedded ones inside the
    compiled program; in both, simulators and replay buffer are part of the checkpoint, and a run
    that was interrupted resumes bitwise (on CPU).

    Args:
        environment: what `make` takes. Of Gymnasium's other than MuJoCo's a state is the seed and
            the actions so far, so they must step the same when given these again.
        agent: settings of SAC or EDAC; None takes SAC with networks of 2 x 256.
        steps: environment steps per seed; rounded to whole iterations between evaluations.
        data: a dataset, or what `load` takes, of whose rows `online.share` of every batch are.
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
    settings = _settings(agent)
    check_count("seeds", seeds)
    log, env = None, make(environment)
    if data is not None:
        log, env = matched(_opened(data), env)
    about = {"method": "online sac", "dataset": log.name if log else "none"}
    made = _Asked(keeping(env), settings, online or OnlineConfig(), steps, seed, stage, context)
    return _train(made, Prior(rows=() if log is None else logged(log, settings)), seeds, about)


def finetune(
    trained: TrainResult | str | Path,
    environment: EnvironmentLike | None = None,
    steps: int = 20_000,
    *,
    data: Dataset | str | Path | None = None,
    online: OnlineConfig | None = None,
    calibrated: bool = False,
    seed: int = 0,
    stage: str = "finetune",
    context: RunContext | None = None,
) -> Online:
    """Fine-tune agents that were trained offline, in a simulator.

    Networks, target networks and optimisers are those of the end of training; rates that decayed
    over it are constant again. The agent's own losses are kept: those of IQL, CQL, SAC or EDAC
    (also of MOPO, MOBILE, RAVL and other methods that train one of these).

        result = offline.train("hopper-medium-v2", "iql")
        tuned = offline.finetune(result, steps=20_000)
        tuned.before["return"], tuned.returns

    Args:
        trained: a result of `train`, or the folder of a run; all of its training seeds that did
            not diverge are fine-tuned.
        environment: as for `train_online`. None takes the one that the policies were evaluated in.
        steps: environment steps per seed; rounded to whole iterations between evaluations.
        data: rows that `online.share` of every batch are of. None takes those that were learned
            from; with a share of 0 no data are read.
        online: how acting and learning alternate; None has no steps without learning first.
        calibrated: continue CQL's agents as Cal-QL. Of the online episodes only those that end
            inside a block of `online.rows` have a return; other rows are pushed down as by CQL.
        seed, stage, context: as for `train_online`.

    Returns:
        An `Online`; its `before` has the metrics before the fine-tuning.

    Raises:
        ConfigError, DataError: an unsuitable agent, or an environment or data of other
            sizes than the policy's.
        CheckpointError: a folder without the training that made the policy.
        DivergenceError, Interrupted: as for `train_online`.
    """
    config = online or FINETUNE
    start = start_of(trained)
    if calibrated:
        start = start._replace(settings=as_calibrated(start.settings))
    log = None
    if config.share != 0:
        log = log_of(trained) if data is None else _opened(data)
    log, env = place_of(start, log, environment)
    if context is not None and start.sha256:
        context.folder.hold("start", sha256=start.sha256)
    facts = start.policy.facts
    about = {"method": f"{facts.get('method')}, fine-tuned", "dataset": facts.get("dataset")}
    made = _Asked(env, start.settings, config, steps, seed, stage, context)
    rows = () if log is None else logged(log, start.settings, start.reward)
    prior = Prior(start.agent, rows)
    seeds = len(jax.tree.leaves(start.agent)[0])
    return _train(made, prior, seeds, about, start.reward)


class _Asked(NamedTuple):
    """Settings of a training; see `train_online`."""

    env: Environment
    settings: AgentConfig
    online: OnlineConfig
    steps: int
    seed: int
    stage: str
    context: RunContext | None


def _train(
    asked: _Asked, prior: Prior, seeds: int, about: Mapping[str, Any], reward: RewardScale = RAW
) -> Online:
    env, settings, online, steps, seed, stage, context = asked
    check(settings)
    check_count("steps", steps)
    iterations = online.iterations(steps)
    learner = make_online(env, settings, online, iterations, reward)
    train_key, play_key = jax.random.split(as_key(seed, "seed"))
    play = evaluator(
        learner, env, play_key, online.episodes, discount=settings.discount, reward=reward
    )
    with naming_failures(env):
        before = play(SimpleNamespace(agent=prior.agent), 0) if prior.agent else None
        trained = train_learner(
            learner,
            prior,
            train_key,
            seeds=seeds,
            per_seed=Prior(True, False),
            iterations=iterations,
            stage=stage,
            evaluate=play,
            evaluate_every=iterations // online.looks,
            context=context,
        )
    outcome = Online(env, learner.agent, settings, online, trained, about, reward, before)
    if context:
        outcome.save(context.folder.stage(stage))
    return outcome


def _opened(data: Dataset | str | Path) -> Dataset:
    return data if isinstance(data, Dataset) else load(data, **undeclared(data))


def _settings(agent: SacConfig | None) -> SacConfig:
    agent = agent() if isinstance(agent, type) else agent
    if agent is None:
        return DEFAULT
    if not isinstance(agent, SacConfig):
        raise ConfigError("agent", type(agent).__name__, "settings of sac or edac")
    own: Any = agent.acts if isinstance(agent, ModelFree) else agent
    return own
