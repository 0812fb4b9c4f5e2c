"""Learning by doing: SAC in vectorised simulators, and datasets of what it did on the way."""
