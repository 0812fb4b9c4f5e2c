"""`jaxrl-rollouts list`: what there is to run, where to start, what it needs and how long it takes.

Experiments with a `Listing` are described without being imported.
"""

from __future__ import annotations

import textwrap

from .. import plugins
from ..errors import UserError, one_line
from ..plugins import Experiment, Listing
from .before import words

WIDTH = 100
SMOKE = "smoke"


def show_experiments() -> None:
    """List the experiments: what they need, their presets, about how long each takes."""
    known = plugins.listings()
    names = plugins.names(plugins.EXPERIMENTS)
    width = max(map(len, names), default=0)
    # The main job first, then in the order of the alphabet.
    for name in sorted(names, key=lambda n: (not (n in known and known[n].main), n)):
        if name not in known:
            try:
                known[name] = plugins.load_experiment(name)
            except (ImportError, AttributeError, UserError) as error:
                print(f"{name:{width}}  cannot be loaded: {one_line(error)}")
                continue
        print(f"{name:{width}}  {'START HERE: ' if known[name].main else ''}{known[name].summary}")
        for line in _facts(known[name]):
            text = textwrap.fill(line, WIDTH - width, break_on_hyphens=False)
            print(textwrap.indent(text, " " * (width + 2)))
    print("\nTimes are rough, on two CPU cores. smoke only shows that everything runs, in minutes;")
    print("paper and gpu presets are meant for a GPU.")


def _facts(listing: Listing) -> list[str]:
    presets = listing.presets if isinstance(listing, Experiment) else listing.minutes
    shown = (name + _time(name, listing.minutes.get(name)) for name in presets)
    facts = [listing.source, f"presets: {', '.join(shown)}"]
    for needs in dict.fromkeys(listing.needs.values()):
        who = [name for name in listing.needs if listing.needs[name] == needs]
        facts.append(f"{', '.join(who)} need{'s' * (len(who) == 1)} {', '.join(needs)}")
    return [fact for fact in facts if fact]


def _time(preset: str, minutes: float | None) -> str:
    if minutes:
        return f" ({words(minutes)})"
    return "" if preset == SMOKE else " (not measured)"  # what smoke presets take is printed below
