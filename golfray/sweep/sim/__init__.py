"""A study without trials: an executor over a fake clock, and a law of outcomes fitted to public numbers."""
