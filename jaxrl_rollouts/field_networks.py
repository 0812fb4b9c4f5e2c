"""Networks on fields: their shapes, what they map, and their names.

Emulators of `pde` step with them, and world models of `offline` may; a network is imported when it
is asked for. Other packages announce theirs in the entry-point group `jaxrl_rollouts.networks`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .errors import ConfigError
from .registry import Registry

if TYPE_CHECKING:  # names of networks are listed without jax and numpy
    import jax

    from .trees import PyTree

# Settings by name; a tuple, since makers are cached on what they are given.
About = tuple[tuple[str, Any], ...]
# What a network sees at a first prediction; index t of K refinements is t / K of it.
FIRST_INDEX = 1000.0
_PDE = "jaxrl_rollouts.pde"
NAMES = {
    "resnet": f"{_PDE}.operators.resnet:Resnet",
    "unet": f"{_PDE}.operators.unet:Unet",
    "convnext": f"{_PDE}.operators.convnext:ConvNext",
    "fno": f"{_PDE}.operators.fno:Fno",
    "drift": f"{_PDE}.operators.drift:Drift",
    "poseidon": f"{_PDE}.operators.poseidon:Poseidon",
    "transolver": f"{_PDE}.operators.transolver:Transolver",
}
NETWORKS = Registry("network", "jaxrl_rollouts.networks", NAMES)
Points = int | tuple[int, ...]


def grid_of(points: Points) -> tuple[int, ...]:
    """Points per axis."""
    grid = tuple(points) if isinstance(points, Sequence) else (points,)
    if not 1 <= len(grid) <= 3 or min(grid) < 1:
        raise ConfigError("points", points, "a number of points for each of one to three axes")
    return tuple(int(n) for n in grid)


class FieldShape(NamedTuple):
    """The fields that a network is built for.

    Attributes:
        channels: of a frame, those that are constant in time included.
        points: of the grid, along one axis or along each of up to three.
        conditions: scalars that a network sees beside the field.
        history: frames that it sees.
        boundaries: of every axis, as a `FieldSet` has them; none is periodic.
        extent: length of every axis; () where it is not known.
        bundle: frames that a network predicts at once.
    """

    channels: int
    points: Points
    conditions: int = 0
    history: int = 1
    boundaries: tuple[str, ...] = ()
    extent: tuple[float, ...] = ()
    bundle: int = 1

    @property
    def outputs(self) -> int:
        """Channels that a network predicts, the frames of a bundle one after the other."""
        return self.bundle * self.channels

    @property
    def grid(self) -> tuple[int, ...]:
        """Points per axis."""
        return grid_of(self.points)

    @property
    def inputs(self) -> int:
        """Channels that a network of one's own sees; see `adapters`."""
        return (self.history + 1) * self.channels + self.conditions + 1


class FieldNetwork(NamedTuple):
    """A network on fields; see `operators`.

    Attributes:
        init: `key -> params`.
        apply: `(params, field [H * C, *space], noised [C, *space], index, conditions [P]) -> [C,
            *space]`, or of a bundle of k frames `[k * C, *space]`; `noised` is a second input of
            the field's shape (zeros where there is none), `index` a scalar in [0, 1000] of the
            refinement, and
            `conditions` are the equation's parameters, scaled to about [0, 10], or `Conditioning`.
        history: `H`, the frames it sees, oldest first; 1 in all of the paper's main results.
        about: its settings, by name; part of the emulator's.
        shape: of its fields, where it was built for one shape.
    """

    init: Callable[[jax.Array], PyTree]
    apply: Callable[..., jax.Array]
    history: int = 1
    about: About = ()
    shape: FieldShape | None = None


class NetworkConfig(Protocol):
    """Settings of a network, a frozen dataclass: `Resnet`, `Unet`, `Fno`, `Drift`, or yours.

    Others' are announced in the entry-point group `jaxrl_rollouts.networks`.
    """

    def make(self, shape: FieldShape) -> FieldNetwork:
        """The network on fields of this shape; equal arguments give the same functions."""
        ...
