"""The standing page: one dated page about the user, of facts in their own words and of the user's own lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.memory.page.records import (
        SECTIONS,
        Page,
        PageLine,
        PageVersion,
        ShownLine,
        always_to_json,
        page_to_json,
        version_to_json,
    )
    from satchel.memory.page.service import Pages

__all__ = [
    "SECTIONS",
    "Page",
    "PageLine",
    "PageVersion",
    "Pages",
    "ShownLine",
    "always_to_json",
    "page_to_json",
    "version_to_json",
]

__getattr__ = on_demand(
    __name__,
    {
        "records": (
            "SECTIONS",
            "Page",
            "PageLine",
            "PageVersion",
            "ShownLine",
            "always_to_json",
            "page_to_json",
            "version_to_json",
        ),
        "service": ("Pages",),
    },
)
