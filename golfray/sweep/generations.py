"""The drivers of a study, one after another, and what each of them held from when to when."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Span:
    """From ``since`` on, in unix seconds: ``nodes`` are held with ``gpus`` in all, and ``slots`` trials can run."""

    since: float
    nodes: int
    gpus: int
    slots: int


@dataclasses.dataclass
class Generation:
    """The time of one driver: the first has number 1, each that resumed the study one more. Times in unix seconds.

    ``changes`` are the lines that say how the study is not any more what the driver before worked on. ``spans``: what
    was held, the first since the driver's command began, which is when booking begins; each node at ``usd_per_hour``,
    None where no price was known. ``news``: when lanes came, went and were started anew, with the words for it.
    """

    number: int
    host: str | None
    started: float
    last_event: float
    changes: list[str]
    spans: list[Span]
    usd_per_hour: float | None = None
    news: list[tuple[float, str]] = dataclasses.field(default_factory=list)

    @classmethod
    def begun(cls, event: Mapping[str, Any]) -> Generation:
        """By its first record, ``study_started`` or ``study_resumed``."""
        # Logs of earlier versions say nothing of what was held, or since when.
        holding, price, since = (event.get(name) for name in ("holding", "price", "held_since"))
        nodes, gpus = (1, 0) if holding is None else (holding["nodes"], holding["gpus"])
        return cls(
            event.get("generation", 1),
            event.get("host"),
            started=event["time"],
            last_event=event["time"],
            changes=list(event.get("changes", [])),
            spans=[Span(event["time"] if since is None else since, nodes, gpus, event.get("slots", 1))],
            usd_per_hour=None if price is None else price["usd_per_hour"],
        )

    def change(self, event: Mapping[str, Any]) -> None:
        """By a record ``lanes_changed``: from then on something else is held."""
        holding = event["holding"]
        self.spans.append(Span(event["time"], holding["nodes"], holding["gpus"], event["slots"]))
        self.news += [(event["time"], words) for words in event["news"]]

    @property
    def held_since(self) -> float:
        """When its command began, and with it what is booked."""
        return self.spans[0].since

    @property
    def now(self) -> Span:
        """What is held, as far as it has said."""
        return self.spans[-1]

    def held(self, until: float) -> Iterator[tuple[Span, float]]:
        """Each span with its seconds, of the time before ``until``."""
        for span, end in zip(self.spans, [*(span.since for span in self.spans[1:]), until], strict=True):
            yield span, max(min(end, until) - span.since, 0.0)

    def lane_seconds(self) -> float:
        """For how long lanes were there, all together: between the driver's first record and its last."""
        before = max(self.started - self.spans[0].since, 0.0) * self.spans[0].slots
        return sum(span.slots * seconds for span, seconds in self.held(self.last_event)) - before

    def openings(self) -> list[float]:
        """When a lane was there for the first time, one moment for each that ever was more than before."""
        most, found = 0, []
        for span in self.spans:
            found += [max(span.since, self.started)] * max(span.slots - most, 0)
            most = max(most, span.slots)
        return found
