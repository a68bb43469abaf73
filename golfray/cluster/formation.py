"""A lane forms, its ranks' side: its nodes have the data, and its ranks measure what they can do.

Whether the lane is taken or refused the broker decides (:mod:`golfray.cluster.roll_call`).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import ray
import ray.train

from golfray.cluster.equipment import Equipment
from golfray.cluster.patient_calls import ask
from golfray.cluster.probe import probe_rank
from golfray.cluster.ranks import Seat
from golfray.core.artifact import write_atomically
from golfray.core.gang import join_gang
from golfray.core.settings import DataSettings, RunSettings, settings_to_json


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


def on_mirror(settings: RunSettings, data: DataSettings | None) -> RunSettings:
    """A trial's settings with the data where this node has them; ``data`` None: they are where the settings say."""
    return settings if data is None else dataclasses.replace(settings, data=data)


def leave_driver_paths(folder: Path, settings: RunSettings) -> None:
    """After a trial on a mirror: its settings.json names the data where the driver has them, and not where it ran."""
    path = folder / "settings.json"
    if path.exists():
        write_atomically(path, settings_to_json(settings).encode())
