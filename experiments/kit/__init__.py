"""What studies share: colours, drawings, checks before a run."""
