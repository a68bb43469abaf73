"""What a study asks of the nodes that it runs on, and what it may keep on them."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class NodeRules:
    """``mirror``: folder on each node's own disk where the data are kept for its ranks; None: each reads them where
    the driver does. ``mirror_gb``: 10^9 bytes that all mirrors there together may take. ``refuse_slower``: a node whose
    matrix products take so many times as long as the others' (median) is refused; None: it is only told.
    """

    mirror: str | None = None
    mirror_gb: float | None = None
    refuse_slower: float | None = None

    @property
    def mirror_bytes(self) -> int:
        """The byte budget of the mirror; 0 where there is none."""
        return 0 if self.mirror_gb is None else round(self.mirror_gb * 1e9)
