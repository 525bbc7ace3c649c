# SPDX-License-Identifier: Apache-2.0
"""Bars as SVG, without any package: a panel for each thing that was measured, a bar for each program."""
import dataclasses
from xml.sax.saxutils import escape

WIDTH, LABELS, VALUES = 760, 150, 130
BAR, GAP, TITLE, MARGIN = 18, 6, 30, 16
OURS, OTHERS = "#1f6fb4", "#a7adb5"


@dataclasses.dataclass
class Panel:
    name: str
    unit: str
    values: dict  # by program; the first one is ours


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def text(x, y, content, more=""):
    return f'<text x="{x:g}" y="{y:g}"{more}>{escape(content)}</text>'


def height_of(panel):
    return TITLE + len(panel.values) * (BAR + GAP) + MARGIN


def draw_panel(panel, top):
    lines = [text(MARGIN, top + 16, f"{panel.name} [{panel.unit}]", ' font-weight="bold"')]
    longest = max(panel.values.values()) or 1
    for place, (program, value) in enumerate(panel.values.items()):
        y = top + TITLE + place * (BAR + GAP)
        width = max(1, (WIDTH - LABELS - VALUES) * value / longest)
        lines += [text(LABELS - 8, y + 13, program, ' text-anchor="end"'),
                  f'<rect x="{LABELS}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{OTHERS if place else OURS}"/>',
                  text(LABELS + width + 6, y + 13, f"{number(value)} {panel.unit}")]
    return lines


def draw(panels, note):
    """A whole file. `note` stands below: where and how it was measured."""
    lines, top = [], MARGIN
    for panel in panels:
        lines += draw_panel(panel, top)
        top += height_of(panel)
    lines.append(text(MARGIN, top + 12, note, ' fill="#555"'))
    height = top + 12 + MARGIN
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
            f'font-family="sans-serif" font-size="12">')
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *lines, "</svg>", ""])
