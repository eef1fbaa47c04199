"""The values that a training step's forward saves for its backward, and their layout."""
