# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
"""svg.py: an SVG picture that is readable in light and in dark mode, by hand-written elements.

Coordinates are pixels of a picture 830 wide, the width of a page on GitHub. Classes: b bold, m muted, s small, h
heading; n without fill, p pale; f0 to f6 fills and s0 to s6 strokes in the colors of Okabe and Ito, which color-blind
readers tell apart.
"""

import html
import textwrap

WIDTH = 830
LIGHT = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c959f"]
DARK = ["#3f9bdc", "#e6a817", "#1fb58a", "#d98cb8", "#e8763a", "#8accf0", "#8b949e"]


def style():
    rows = [
        "text{font:14px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif}",
        "text.s{font-size:12px}text.h{font-size:18px}.b,.h{font-weight:600}.n{fill:none}.p{fill-opacity:.28}",
        "path,polyline,line,rect{stroke-width:1.5}.w{stroke-width:2.5}.d{stroke-dasharray:5 4}",
    ]

    def colors(text, muted, grid, palette):
        fills = "".join(f".f{i}{{fill:{color}}}.s{i}{{stroke:{color}}}" for i, color in enumerate(palette))
        return (
            f"text,.t{{fill:{text}}}text.m{{fill:{muted}}}.l{{stroke:{text}}}.g{{stroke:{grid};stroke-width:1}}"
            f".e{{fill:{grid};fill-opacity:.35}}" + fills
        )

    rows.append(colors("#1f2328", "#59636e", "#d1d9e0", LIGHT))
    rows.append("@media (prefers-color-scheme:dark){" + colors("#e6edf3", "#9198a1", "#3d444d", DARK) + "}")
    return "\n".join(rows)


def number(value):
    return f"{value:.1f}".rstrip("0").rstrip(".")


class Picture:
    def __init__(self, title, description, height):
        self.title, self.description, self.height = title, description, height
        self.elements = []

    def add(self, name, classes, content=None, **attributes):
        given = "".join(
            f' {key.replace("_", "-")}="{number(value) if isinstance(value, (int, float)) else value}"'
            for key, value in attributes.items()
        )
        body = "/>" if content is None else f">{html.escape(content)}</{name}>"
        self.elements.append(f'<{name} class="{classes}"{given}{body}')

    def text(self, x, y, words, classes="", anchor="start", **attributes):
        if anchor != "start":
            attributes["text_anchor"] = anchor
        self.add("text", classes, words, x=x, y=y, **attributes)

    def box(self, x, y, width, height, classes, radius=0):
        self.add("rect", classes, x=x, y=y, width=width, height=height, **({"rx": radius} if radius else {}))

    def line(self, points, classes):
        self.add("polyline", "n " + classes, points=" ".join(f"{number(x)},{number(y)}" for x, y in points))

    def curve(self, path, classes):
        self.add("path", "n " + classes, d=path)

    def head(self, x, y, dx, dy, fill="t"):
        """The head of an arrow whose tip is at (x, y), in the direction (dx, dy)."""
        length = (dx * dx + dy * dy) ** 0.5
        dx, dy = 9 * dx / length, 9 * dy / length
        left, right = (x - dx + dy / 2.2, y - dy - dx / 2.2), (x - dx - dy / 2.2, y - dy + dx / 2.2)
        points = " ".join(f"{number(a)},{number(b)}" for a, b in ((x, y), left, right))
        self.add("polygon", fill, points=points)

    def arrow(self, x, y, to_x, to_y, classes="l", fill="t"):
        length = ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5
        back = 6 / length
        self.line([(x, y), (to_x - (to_x - x) * back, to_y - (to_y - y) * back)], classes)
        self.head(to_x, to_y, to_x - x, to_y - y, fill)

    def caption(self, results, words):
        """Small lines at the foot, with the conditions of the results; the picture grows by them."""
        conditions = (results / "conditions").read_text().strip()
        for line in textwrap.wrap(f"{words} {conditions}", 128):
            self.height += 16
            self.text(0, self.height - 5, line, "m s")

    def write(self, path):
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" '
            f'height="{self.height}" role="img" aria-labelledby="title desc">',
            f'<title id="title">{html.escape(self.title)}</title>',
            f'<desc id="desc">{html.escape(self.description)}</desc>',
            f"<style>{style()}</style>",
        ]
        path.write_text("\n".join(lines + self.elements + ["</svg>", ""]), encoding="ascii", errors="xmlcharrefreplace")
