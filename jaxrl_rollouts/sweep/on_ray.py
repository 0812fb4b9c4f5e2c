"""The tasks of a sweep on Ray: on this machine, or on a cluster that runs already.

Ray decides where and when a task runs and starts it again when its worker dies. It is imported
only here, and only when a sweep is started.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import ConfigError, MissingExtraError, UserError, one_line, printable
from ..record.interrupts import StopFlag
from .plan import Task
from .tasks import (
    FAILED,
    KILLED,
    STOPPED,
    KilledError,
    last_line,
    read_status,
    run_task,
    write_status,
)

PASSED_ON = ("JAX", "XLA")  # how the variables begin that runs on other machines get, too


@dataclass(frozen=True)
class Resources:
    """What tasks get, and where.

    Attributes:
        address: address of a Ray cluster; empty starts Ray on this machine, for this sweep.
        cpus: cores per task.
        gpus: per task, also a share of one.
        retries: number of restarts of a task whose process or machine died.
    """

    address: str = ""
    cpus: float = 1.0
    gpus: float = 0.0
    retries: int = 3


def run_on_ray(
    folder: Path,
    tasks: Sequence[Task],
    trust: Sequence[str],
    resources: Resources,
    show: Callable[[], None],
) -> bool:
    """Run tasks until each is finished or failed, or a stop is requested.

    Returns:
        Whether it was stopped; the tasks that ran have then written checkpoints.
    """
    ray = _import_ray()
    _connect(ray, resources)
    try:
        remote = ray.remote(run_task).options(
            num_cpus=resources.cpus,
            num_gpus=resources.gpus,
            max_retries=resources.retries,
            retry_exceptions=[KilledError],
        )
        variables = environment(resources)
        trusted = tuple(trust)
        open_tasks = {remote.remote(str(folder), t, trusted, variables): t for t in tasks}
        with StopFlag() as stop:
            return _follow(ray, folder, open_tasks, stop, show)
    finally:
        ray.shutdown()


def _follow(
    ray: ModuleType,
    folder: Path,
    open_tasks: dict[Any, Task],
    stop: StopFlag,
    show: Callable[[], None],
) -> bool:
    cancelled = False
    while open_tasks:
        done, _ = ray.wait(list(open_tasks), timeout=1.0)
        for reference in done:
            task = open_tasks.pop(reference)
            try:
                ray.get(reference)
            except Exception as error:  # of Ray, or of the file system: the others continue
                _put_down(ray, folder / task.name, error, cancelled)
        show()
        if stop.requested and not cancelled:
            cancelled = True
            for reference in open_tasks:
                ray.cancel(reference)
    return cancelled


def _put_down(ray: ModuleType, folder: Path, error: Exception, cancelled: bool) -> None:
    """Say in a task's folder what ended it, where it could not do so itself."""
    if cancelled and not folder.is_dir():  # it had not begun
        return
    errors = ray.exceptions
    died = (
        KilledError,
        errors.WorkerCrashedError,
        errors.NodeDiedError,
        errors.OutOfMemoryError,
        errors.LocalRayletDiedError,
    )
    cause = getattr(error, "cause", None) or error
    before = read_status(folder)
    if cancelled:
        after = replace(before, state=STOPPED)
    elif isinstance(error, died) or isinstance(cause, died):
        after = replace(before, state=KILLED, last=before.last or last_line(folder))
    else:
        after = replace(before, state=FAILED, last=printable(f"error: {one_line(cause)}"))
    folder.mkdir(exist_ok=True)
    write_status(folder, after)


def environment(resources: Resources) -> dict[str, str]:
    """Variables of a task's process: those of here that jax reads, and its share of the machine."""
    passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    flags, count = passed.get("XLA_FLAGS", ""), "xla_force_host_platform_device_count"
    if count not in flags:  # else each run would spread over all cores
        passed["XLA_FLAGS"] = f"{flags} --{count}={max(1, int(resources.cpus))}".strip()
    if 0 < resources.gpus < 1:  # jax takes three quarters of a GPU even if it is shared
        share = f"{0.9 * resources.gpus:.3f}"
        passed.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", share)
    return passed


def _import_ray() -> ModuleType:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no request to other servers
    # A task without GPUs sees none; else all such tasks would use the first one.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")
    try:
        import ray
    except ImportError:
        raise MissingExtraError("a sweep without --slurm", "ray", "sweep") from None
    return ray


def _connect(ray: ModuleType, resources: Resources) -> None:
    """Start Ray or reach the cluster, and look whether a task fits on any machine of it."""
    _knock(resources.address)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if resources.address:
        options["address"] = resources.address
    else:
        options["include_dashboard"] = False
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise UserError(
            f"Ray ({resources.address or 'on this machine'}): {one_line(error)}"
        ) from None
    if not resources.gpus and (idle := ray.cluster_resources().get("GPU", 0)):
        print(
            f"note: {idle:g} GPUs are there and no task uses them: --gpus 1, or a share",
            file=sys.stderr,
        )
    if resources.address:
        return  # a cluster may grow
    for name, kind, asked in (("--cpus", "CPU", resources.cpus), ("--gpus", "GPU", resources.gpus)):
        there = ray.cluster_resources().get(kind, 0.0)
        if asked > there:
            ray.shutdown()
            raise ConfigError(name, asked, f"at most the {there:g} of this machine")


def _knock(address: str) -> None:
    """`UserError` where no server listens at `HOST:PORT`; Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"Ray ({address}): {one_line(error)}") from None
