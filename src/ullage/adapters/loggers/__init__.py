"""Where a training keeps its metrics, a file each: what `StepLog` writes to."""
