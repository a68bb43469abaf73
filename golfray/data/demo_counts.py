"""What is known of the demo corpus before it is built, for whoever plans with it and must not write anything."""

from __future__ import annotations

from golfray.data.corpus import DEMO_RECIPE
from golfray.data.home import golfray_home

DEMO_TRAIN_TOKENS = 1_264_581
DEMO_VAL_TOKENS = 81_612

# The text is plain ASCII: of the pieces that stand for single bytes hardly any is ever used.
DEMO_UNSEEN = tuple(range(10, 260))


def demo_is_built() -> bool:
    """Whether the demo corpus is under this user's golfray home."""
    return (golfray_home() / "corpora" / f"{DEMO_RECIPE.name}-{DEMO_RECIPE.key()}").exists()
