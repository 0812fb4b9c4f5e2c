"""What studies share: colours, fields, checks before a run."""
