"""Online training: SAC in vectorised simulators, and datasets from it."""
