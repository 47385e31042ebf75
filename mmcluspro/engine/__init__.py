"""Engine: checkpoints, launching, hooks."""
