"""From fields to trained emulators, rolled forward and judged."""
