"""A lane forms, its ranks' side: its nodes have the data, and its ranks measure what they can do.

Whether the lane is taken or refused the broker decides (:mod:`golfray.cluster.roll_call`).
"""

from __future__ import annotations

from typing import Any

import ray
import ray.train

from golfray.cluster.equipment import Equipment
from golfray.cluster.patient_calls import ask
from golfray.cluster.probe import probe_rank
from golfray.cluster.ranks import Seat
from golfray.core.gang import join_gang


def form(broker: Any, seat: Seat, equipment: Equipment, device: str) -> bool:
    """What a rank does before its lane's first job. False: the lane is refused, go home.

    The probe begins when every node is equipped, so that nothing that takes minutes is waited for in a collective.
    """
    leads_node = ray.train.get_context().get_local_rank() == 0
    if not ask(broker.equip, seat, equipment.faults() if leads_node else []):
        return False
    probe = probe_rank(
        join_gang(device),
        node=ray.get_runtime_context().get_node_id(),
        address=ray.util.get_node_ip_address(),
        leads_node=leads_node,
        shard=equipment.first_shard,
    )
    return bool(ask(broker.probed, seat, probe))
