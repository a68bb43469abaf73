"""golfray: turns a search space into the language model that compresses best inside a byte cap."""

__version__ = "0.1.0"
