"""A rank's questions to the broker, asked again where the network between their nodes was cut meanwhile.

Ray keeps a node that cannot be reached for about a minute. Connections do not last as long: a call that was on its way
when the cut began fails once the node is back, and Ray cannot say whether the broker heard it. All that ranks ask may
be asked twice, so a trial outlives a cut that its node outlives.
"""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError

_AGAIN_SECONDS = 1.0


def ask(method: Any, *arguments: Any) -> Any:
    """What the broker's ``method``, such as ``broker.report``, answers.

    Raises what the method raises, and Ray's ``ActorDiedError`` where the broker is gone: of a node that stays away Ray
    tells its ranks so, or ends them.
    """
    while True:
        try:
            return ray.get(method.remote(*arguments))
        except ActorUnavailableError:
            time.sleep(_AGAIN_SECONDS)
