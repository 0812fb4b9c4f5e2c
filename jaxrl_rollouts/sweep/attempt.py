"""The process of a task: `jaxrl-rollouts`, which stops with a checkpoint when its parent ends.

A killed worker would leave it running, and holding the folder that the next worker needs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def die_with_parent(parent: int) -> None:
    """Ask Linux for a hangup once the parent is gone; other systems have no such thing.

    A parent with threads dies thread by thread, and each sends the signal: a second SIGTERM would
    insist on ending at once, a second hangup does not.
    """
    if not sys.platform.startswith("linux"):
        return
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup would make it deaf
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGHUP)
    if os.getppid() != parent:  # it was gone before that
        sys.exit(128 + signal.SIGHUP)


if __name__ == "__main__":
    parent, *rest = sys.argv[1:]
    die_with_parent(int(parent))
    from .. import plugins
    from ..cli.main import main

    end = rest.index("--")
    plugins.trust(*rest[:end])
    main(rest[end + 1 :], typed=False)  # a plan's arguments, not the user's
