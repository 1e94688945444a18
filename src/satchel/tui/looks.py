"""Colours and layout of the screen, after the design of the web pages: only what waits for the user is tinted."""

from __future__ import annotations

from typing import Final

from textual.theme import Theme


def _theme(
    name: str, *, dark: bool, paper: str, leaf: str, tint: str, ink: str, line: str, rest: tuple[str, ...]
) -> Theme:
    """A theme of the tokens of the web pages; `rest` are ink-2, accent, warn and bad."""
    ink_2, accent, warn, bad = rest
    return Theme(
        name=name,
        dark=dark,
        primary=accent,
        accent=accent,
        foreground=ink,
        background=paper,
        surface=leaf,
        panel=tint,
        warning=warn,
        error=bad,
        success=ink,
        variables={"tint": tint, "ink-2": ink_2, "line": line, "border": line, "border-blurred": line},
    )


DARK: Final = _theme(
    "satchel-dark",
    dark=True,
    paper="#151716",
    leaf="#1b1e1d",
    tint="#16302f",
    ink="#e7e8e4",
    line="#3d4442",
    rest=("#a8afab", "#7fc9c0", "#e4b363", "#f2917f"),
)
LIGHT: Final = _theme(
    "satchel-light",
    dark=False,
    paper="#fbfbf9",
    leaf="#ffffff",
    tint="#e6f0ee",
    ink="#1b1e1d",
    line="#c9ccc6",
    rest=("#565c59", "#0b6164", "#855000", "#a62a20"),
)

STYLE: Final = """
Screen { background: $background; color: $foreground; }
#head, #status { height: 1; padding: 0 1; color: $ink-2; background: $background; }
#conversation { padding: 0 1; scrollbar-size-vertical: 1; scrollbar-color: $line; scrollbar-background: $background;
                scrollbar-color-hover: $ink-2; scrollbar-background-hover: $background; }
.turn, .said, .waits, .settled { height: auto; }
.turn { margin: 0 0 1 0; }
.rule { color: $line; }
.said { margin: 1 0; }
.note { border-left: dashed $accent; padding: 0 1; margin: 0 0 1 1; color: $ink-2; }
.step { padding: 0 0 0 1; color: $ink-2; border-left: solid $line; margin: 0; }
.step:hover { background: $surface; }
.line { margin: 0; }
.dim { color: $ink-2; }
.warn { color: $warning; }
.bad { color: $error; }
.output { margin: 0 0 1 0; }
.waits { background: $tint; padding: 1 2; margin: 0 0 1 0; }
.waits:focus { border-left: thick $accent; padding: 1 2 1 1; }
.waits Input { margin: 1 0 0 0; background: $surface; }
.settled { padding: 0 0 0 1; margin: 0; }
#menu { display: none; height: auto; max-height: 8; border: none; border-top: solid $line; padding: 0 1;
        background: $background; }
#menu > .option-list--option-highlighted { background: $surface; color: $foreground; text-style: bold; }
#composer { height: auto; max-height: 10; min-height: 1; border: none; border-top: solid $line; padding: 0 1;
            background: $background; }
#composer:focus { border: none; border-top: solid $accent; }
Choose { align: center middle; background: $background 60%; }
#dialog { width: 96%; max-width: 100; height: auto; max-height: 90%; background: $surface; border: solid $line;
          padding: 0 1; }
#dialog Input { margin: 1 0; background: $surface; }
#choices { height: auto; max-height: 20; border: none; background: $surface; }
"""
