"""``golfray show nodes``: what each node of a study measured of itself, and how fast trials ran on it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from golfray.config.sizes import count_text
from golfray.sweep.node_probe import NodeProbe, Slowness, flagged
from golfray.sweep.records import StudyRecord
from golfray.sweep.step_times import Place, StepTimes, step_times

# A step that takes so many times as long as on other nodes is worth a word.
_SLOW_STEPS = 1.05


@dataclasses.dataclass(frozen=True)
class NodeRow:
    """One node: its last probe, the trials that began there, and what of the probe is slow against the other nodes."""

    probe: NodeProbe
    trials: tuple[int, ...]
    slow: tuple[Slowness, ...]


def node_rows(record: StudyRecord) -> list[NodeRow]:
    """Every node on which an attempt began, in that order. A node is known by host and address over all drivers."""
    last: dict[tuple[str, str], NodeProbe] = {}
    trials: dict[tuple[str, str], dict[int, None]] = {}
    for trial in record.trials:
        for attempt in trial.attempts:
            for node in attempt.nodes:
                last[node.host, node.address] = node
                trials.setdefault((node.host, node.address), {})[trial.number] = None
    return [NodeRow(probe, tuple(trials[key]), tuple(flagged(probe, last.values()))) for key, probe in last.items()]


def node_lines(record: StudyRecord) -> list[str]:
    """For a person."""
    rows = node_rows(record)
    if not rows:
        return [f"study {record.name}: its log names no node, as where no trial has begun, or none was real"]
    lines = [f"study {record.name}: {count_text(len(rows), 'node')}"]
    for row in rows:
        probe = row.probe
        lines.append(
            f"{_name(probe)}: {count_text(len(row.trials), 'trial')}, {count_text(probe.ranks, 'rank')} of a lane"
        )
        lines.append(f"  {', '.join(_measures(probe))}")
        lines.append(f"  {', '.join(_software(probe))}")
        lines += [f"  SLOW {slow.words()}" for slow in row.slow]
    for times in step_times(record):
        lines += _step_lines(times)
    return lines


def nodes_document(record: StudyRecord, folder: Path) -> dict[str, Any]:
    """The document of the kind "nodes"."""
    return {
        "study": record.name,
        "folder": str(folder),
        "nodes": [
            {
                "probe": row.probe.to_dict(),
                "trials": list(row.trials),
                "slow": [dataclasses.asdict(slow) | {"words": slow.words()} for slow in row.slow],
            }
            for row in node_rows(record)
        ],
        "steps": [
            {
                "places": [
                    {
                        "nodes": [{"host": host, "address": address} for host, address in place],
                        "trials": sorted(trials),
                        "step_ms": times.median(place),
                        "times": times.times(place),
                    }
                    for place, trials in times.ms.items()
                ]
            }
            for times in step_times(record)
        ],
    }


def _name(probe: NodeProbe) -> str:
    return f"{probe.host} ({probe.address}), {probe.device}"


def _measures(probe: NodeProbe) -> list[str]:
    found = [f"matrix products {_number(probe.matmul_tflops)} TFLOP/s"]
    if probe.reduce_gb_s is not None:
        found.append(f"all-reduce {_number(probe.reduce_gb_s)} GB/s a rank")
    if probe.read_mb_s is not None:
        found.append(f"reading {_number(probe.read_mb_s)} MB/s")
    if probe.mhz is not None:
        most = "" if probe.max_mhz is None else f" of {probe.max_mhz:,}"
        found.append(f"{probe.mhz:,}{most} MHz")
    return [*found, f"probed in {probe.seconds:.1f} s"]


def _software(probe: NodeProbe) -> list[str]:
    named = {
        "Python": probe.python,
        "torch": probe.torch,
        "CUDA": probe.cuda,
        "NCCL": probe.nccl,
        "driver": probe.driver,
    }
    return [f"{name} {version}" for name, version in named.items() if version is not None]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _step_lines(times: StepTimes) -> list[str]:
    trials = sorted(number for own in times.ms.values() for number in own)
    lines = [f"ms a step of the same work, {count_text(len(trials), 'trial')} from t{trials[0]:03d} on:"]
    for place, own in times.ms.items():
        line = f"  {_place(place)}: {times.median(place):.1f} (median of {count_text(len(own), 'trial')})"
        ratio = times.times(place)
        if ratio is not None:
            line += f", {ratio:.2f} times the others'{' SLOW' if ratio > _SLOW_STEPS else ''}"
        lines.append(line)
    return lines


def _place(place: Place) -> str:
    return " + ".join(f"{host} ({address})" for host, address in place)
