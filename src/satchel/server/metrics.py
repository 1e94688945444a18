"""The server's counters, in the text format of Prometheus."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SAMPLE: Final = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """Counts requests, their time, open streams and turns."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._times: Counter[tuple[str, float]] = Counter()
        self._sums: Counter[str] = Counter()
        self._sum_s: dict[str, float] = {}
        self._turns: Counter[str] = Counter()
        self.streams = 0

    @property
    def requests(self) -> int:
        """How many requests have ended."""
        return self._requests.total()

    def request(self, method: str, route: str, status: int, took_s: float) -> None:
        """Count a request that has ended. A status of 0 is one that the client left before the answer."""
        # A value that a client invents must not become a label, because labels are never removed.
        self._requests[method if method in _METHODS else "other", route, status] += 1
        self._sums[route] += 1
        self._sum_s[route] = self._sum_s.get(route, 0.0) + took_s
        for bound in _BUCKETS_S:
            if took_s <= bound:
                self._times[route, bound] += 1

    def turn(self, status: str) -> None:
        """Count a turn that has ended."""
        self._turns[status] += 1

    def text(self, *, gauges: Mapping[str, tuple[str, float]]) -> str:
        """All figures. `gauges` are more of them by name, each with its help and its value."""
        lines = _head("satchel_http_requests_total", "counter", "Requests that have ended.")
        lines += [
            f'satchel_http_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}'
            for (method, route, status), count in sorted(self._requests.items())
        ]
        name = "satchel_http_request_duration_seconds"
        lines += _head(name, "histogram", "The time from a request to the end of its answer.")
        for route, count in sorted(self._sums.items()):
            lines += [
                f'{name}_bucket{{route="{route}",le="{bound:g}"}} {self._times[route, bound]}'
                for bound in _BUCKETS_S
            ]
            lines += [
                f'{name}_bucket{{route="{route}",le="+Inf"}} {count}',
                f'{name}_sum{{route="{route}"}} {self._sum_s[route]:.6f}',
                f'{name}_count{{route="{route}"}} {count}',
            ]
        if self._turns:  # the front door of several people has none of its own
            lines += _head("satchel_turns_total", "counter", "Turns that have ended.")
        lines += [
            f'satchel_turns_total{{status="{status}"}} {count}'
            for status, count in sorted(self._turns.items())
        ]
        for name, (about, value) in gauges.items():
            lines += [*_head(name, "gauge", about), f"{name} {value:g}"]
        return "\n".join(lines) + "\n"


def by_person(figures: Mapping[str, str]) -> str:
    """Turns and streams of several processes, each with its person as a label.

    Args:
        figures: What `Metrics.text` gave in the process of each person.
    """
    lines = []
    for name in ("satchel_turns_total", "satchel_turns_running", "satchel_streams"):
        head: list[str] = []
        values = []
        for person, text in figures.items():
            for line in text.splitlines():
                found = _SAMPLE.fullmatch(line)
                if found is not None and found[1] == name:
                    labels = ",".join(filter(None, (f'person="{person}"', found[2])))
                    values.append(f"{name}{{{labels}}} {found[3]}")
                elif line.startswith((f"# HELP {name} ", f"# TYPE {name} ")) and line not in head:
                    head.append(line)
        lines += [*head, *values]
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
