"""What of a training step's forward is kept for its backward, and how it lies in memory meanwhile."""
