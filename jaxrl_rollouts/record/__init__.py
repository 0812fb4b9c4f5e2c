"""What a run leaves on disk, so that it can be resumed and told: folder, checkpoints,
history, metrics.
"""
