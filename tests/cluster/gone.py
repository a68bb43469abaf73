"""How soon nothing may be left of a study that has ended."""

import os
import time

# The promise of docs/faults.md, on a machine that has a core for whoever wants one.
GONE_SECONDS = 10.0


def wait_until_gone(left, empty):
    """Wait until ``left()`` is ``empty``; returns the seconds that took. Fails after ``GONE_SECONDS``.

    Where this machine's cores are shared with others, all of it takes as much longer as there are processes a core, and
    so much longer may it take.
    """
    begun = time.monotonic()
    while (found := left()) != empty:
        sharing = max(1.0, max(os.getloadavg()[:2]) / len(os.sched_getaffinity(0)))
        allowed = GONE_SECONDS * sharing
        assert time.monotonic() < begun + allowed, (
            f"left after {allowed:.0f} s ({sharing:.1f} processes a core): {found}"
        )
        time.sleep(0.2)
    return time.monotonic() - begun
