"""Offline model-based RL and neural PDE emulators in JAX.

    import jaxrl_rollouts as jr

    outcome = jr.offline.train("pendulum-mixed", "mobile", seeds=2)
    outcome.returns  # [seeds]

What is stable: the names that are imported here, in `jr.offline`, `jr.pde` and `jr.diffusion`, and
the arguments that their documentation names. Everything else may move or change with any version.
Importing loads nothing; a name loads what it needs when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import lazily

if TYPE_CHECKING:
    from . import diffusion as diffusion
    from . import offline as offline
    from . import pde as pde
    from .ensemble_config import EnsembleConfig as EnsembleConfig
    from .fitted import fit_ensemble as fit_ensemble
    from .hub import push_to_hub as push_to_hub
    from .loop import train_loop as train_loop
    from .record.run import Run as Run
    from .reports.claims import Claim as Claim
    from .reports.report import Report as Report
    from .rollouts import Members as Members
    from .rollouts import Model as Model
    from .rollouts import rollout as rollout
    from .rollouts import step_result as step_result
    from .starting import prepare as prepare

    __version__: str
else:
    _find, _names, __all__ = lazily(__name__)
    __all__ += ["__version__"]

    def __dir__():
        return sorted({*_names(), "__version__"})

    def __getattr__(name):
        if name == "__version__":
            from .record.provenance import package_version

            return package_version("jaxrl-rollouts")
        return _find(name)
