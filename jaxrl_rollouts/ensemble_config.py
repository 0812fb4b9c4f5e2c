"""Settings of a Gaussian ensemble: its architecture and how it is fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import flax.linen as nn
import numpy as np

from .configs import number, positive, step_size, unknown
from .errors import ConfigError
from .networks import normal_fan_in, uniform_fan_in

ACTIVATIONS: Mapping[str, Callable] = {
    "swish": nn.swish,
    "relu": nn.relu,
    "leaky_relu": nn.leaky_relu,
    "gelu": nn.gelu,
}
INITIALISERS: Mapping[str, Callable] = {
    "truncated_normal": normal_fan_in(0.5),
    "uniform": uniform_fan_in(),
}
PETS_DECAY = (2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4)  # of four hidden layers and the head


@dataclass(frozen=True)
class EnsembleConfig:
    """A Gaussian ensemble and its fit. Defaults: MBPO/MOPO's (PETS architecture).

    Attributes:
        members: number of networks.
        elites: number of members used: those with the lowest holdout error.
        hidden_dims: widths of the layers of a member.
        activation: swish, relu, leaky_relu or gelu.
        layer_norm: layer normalisation before each activation.
        initialiser: initialiser of the weights: `truncated_normal`, std `1 / (2 sqrt(fan_in))`
            (PETS), or `uniform`, `+-1 / sqrt(fan_in)` (torch's, NEUBAY).
        biases: initial biases: `zero`, or `uniform`, `+-1 / sqrt(fan_in)` (torch's).
        variance: predicted for every `row`, or one constant for each `output`. The likelihood
            gives rows with a larger predicted variance less weight. This suits noisy data. On
            deterministic simulators it neglects rows that are hard to fit (contacts); one variance
            per output (least squares) then gives more accurate means.
        beta: rows are weighted by their variance to this power, without gradient (beta-NLL,
            Seitzer et al. 2022, arXiv 2203.09168): 0 is the likelihood; 1 fits means by least
            squares and still learns a variance for every row; 0.5 is the paper's.
        learned_bounds: learn the clamping bounds of the log-variance, with a loss of weight
            `bound_weight`; else `log_var_low` and `log_var_high` are fixed, as they are with one
            variance per output.
        log_var_low, log_var_high: bounds of the log-variance.
        bound_weight: weight of the loss on the distance of the learned bounds, beside twice the
            log-likelihood.
        input_clip: inputs (standardised, for a world model) are clipped at plus and minus this,
            to limit extrapolation far outside the data (10 in RAVL's code). None: no clipping.
        bootstrap: each member is fitted to rows sampled with replacement; else all to the same.
        lr: learning rate of Adam.
        lr_drop: factor applied to the rate, once, when `patience` runs out before
            `min_epochs`; patience then restarts (0.3 in RAVL's code). None keeps the rate.
        cosine: cosine decay of the rate to 0 over `max_epochs`, epoch by epoch.
        weight_decay: one value for all layers, or one each; the default's five are interpolated
            for networks of another depth.
        decay: weight decay as part of the gradient that Adam scales (`coupled`: PETS, MOPO, RAVL,
            MOBILE), or as a separate step (`decoupled`: AdamW, NEUBAY).
        batch_size: rows in a gradient step.
        max_epochs: largest number of passes over the rows.
        min_epochs: passes before patience may end the fit (350 in RAVL's code).
        patience: epochs without an improvement of any member after which the fit ends.
        selection_metric: holdout metric that selects a member's weights: squared error of the
            means (`mse`), or negative log-likelihood (`nll`).
        improvement: least improvement that counts: a fraction of the error, or nats of the
            likelihood.
        holdout_fraction: fraction of the rows on which members are evaluated.
        holdout_rows: largest number of those rows.
    """

    members: int = positive(7)
    elites: int = positive(5)
    hidden_dims: tuple[int, ...] = positive((200, 200, 200, 200))
    activation: str = "swish"
    layer_norm: bool = False
    initialiser: str = "truncated_normal"
    biases: Literal["zero", "uniform"] = "zero"
    variance: Literal["row", "output"] = "row"
    beta: float = number(0.0, least=0, most=1)
    learned_bounds: bool = True
    log_var_low: float = -10.0
    log_var_high: float = 0.5
    bound_weight: float = number(0.01, least=0)
    input_clip: float | None = number(None, above=0)
    bootstrap: bool = True
    lr: float = step_size(1e-3)
    lr_drop: float | None = number(None, above=0, most=1)
    cosine: bool = False
    weight_decay: tuple[float, ...] = number(PETS_DECAY, least=0)
    decay: Literal["coupled", "decoupled"] = "coupled"
    batch_size: int = positive(256)
    max_epochs: int = positive(100)
    min_epochs: int = number(0, least=0)
    patience: int = positive(5)
    selection_metric: Literal["mse", "nll"] = "mse"
    improvement: float = number(0.01, least=0)
    holdout_fraction: float = number(0.2, above=0, below=1)
    holdout_rows: int = positive(1000)

    def validate(self) -> None:
        if self.elites > self.members:
            raise ConfigError("elites", self.elites, f"between 1 and the {self.members} members")
        if self.activation not in ACTIVATIONS:
            raise unknown("activation", self.activation, ACTIVATIONS)
        if self.initialiser not in INITIALISERS:
            raise unknown("initialiser", self.initialiser, INITIALISERS)
        fits = len(self.weight_decay) in (1, len(self.hidden_dims) + 1)
        if not fits and self.weight_decay != PETS_DECAY:
            raise ConfigError(
                "weight_decay", self.weight_decay, f"1 or {len(self.hidden_dims) + 1} values"
            )
        if self.cosine and self.lr_drop is not None:
            expected = "one way of lowering the rate: without lr_drop"
            raise ConfigError("cosine", self.cosine, expected)
        if self.log_var_low >= self.log_var_high:
            raise ConfigError("log_var_low", self.log_var_low, f"below {self.log_var_high}")

    def layer_decay(self) -> tuple[float, ...]:
        """Weight decay of every hidden layer and of the head."""
        layers, own = len(self.hidden_dims) + 1, self.weight_decay
        if len(own) == layers:
            return own
        places = np.linspace(0.0, len(own) - 1.0, layers)
        return tuple(np.interp(places, np.arange(len(own)), own).tolist())
