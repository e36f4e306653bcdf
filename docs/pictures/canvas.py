"""Common parts of the pictures: colors, an axis whose units are points, boxes, legends, and the file."""

import re
import textwrap

# Fills carry dark text. Fills, gray lines and gray text can be seen on a light and on a dark page.
FORWARD, BACKWARD, WEIGHTS, EXCHANGE = "#5fa2dd", "#eb9850", "#93bf5c", "#b391d8"
KINDS = {"F": FORWARD, "B": BACKWARD, "W": WEIGHTS}
SECOND_PART = {"F": "#9cc9ee", "B": "#f6c79b", "W": "#c5dea6"}  # for the second of a stage's two parts of the model
D, H, P = "#dd6880", "#2fa898", "#c99b22"
MEMORY = {"weights": "#7fa6dc", "gradients": "#eba45c", "optimizer": "#b391d8", "activations": "#9ba3ab"}
LINES = ["#3f8fd6", "#e07f2e", "#6fa53a", "#9d74cc", "#dd6880", "#2fa898", "#c99b22"]
WHOLE, GRAY, INK = "#d9dee4", "#757d87", "#12181f"
WIDTH = 430  # points: a page of 800 pixels shows 573, a phone shrinks them to two thirds


class Missing(Exception):
    """A program or a library is missing; the text says which."""


def matplotlib():
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise Missing("matplotlib is missing (Debian: python3-matplotlib)") from None
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "dhp", "path.simplify_threshold": 0.4,
                         "font.size": 9, "legend.fontsize": 8.5, "font.family": "sans-serif",
                         "font.sans-serif": ["DejaVu Sans", "Verdana"], "text.color": GRAY, "axes.labelcolor": GRAY,
                         "axes.edgecolor": GRAY, "xtick.color": GRAY, "ytick.color": GRAY})
    return plt


def canvas(plt, height, width=WIDTH):
    """Returns a figure and an undecorated axis. Its units are points, from the top left."""
    figure = plt.figure(figsize=(width / 72, height / 72))
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, width), ylim=(height, 0))
    axis.axis("off")
    return figure, axis


def charts(plt, rows, height):
    """Returns a figure and its axes, one below the other, with grids."""
    figure, axes = plt.subplots(rows, 1, figsize=(WIDTH / 72, height / 72), layout="constrained", squeeze=False)
    for axis in axes[:, 0]:
        axis.grid(alpha=0.3, color=GRAY, linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes[:, 0]


def legend_below(axis, lines_of, **more):
    axis.legend(*lines_of.get_legend_handles_labels(), loc="upper center", bbox_to_anchor=(0.5, -0.28), frameon=False, **more)


def write(axis, x, y, words, size=9, color=GRAY, **more):
    axis.text(x, y, words, size=size, color=color, **{"va": "center_baseline", **more})


def boxes(axis, places, color, edge=INK):
    """Draws rectangles (x, y, width, height) of one color as one path, which keeps the file small."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path
    places = list(places)
    if not places:
        return
    corners = [corner for x, y, width, height in places
               for corner in ((x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y))]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(places)
    axis.add_patch(PathPatch(Path(corners, codes), facecolor=color, edgecolor=edge, linewidth=0.6, clip_on=False))


def key(axis, x, y, entries):
    """Draws a legend in one line. entries: (color, words)."""
    for color, words in entries:
        boxes(axis, [(x, y - 4, 10, 8)], color, GRAY if color == "none" else INK)
        write(axis, x + 14, y, words)
        x += 26 + 5.3 * len(words)


def arrow(axis, start, end, color=GRAY):
    style = {"arrowstyle": "-|>", "color": color, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", end, start, arrowprops=style)


def slim(svg):
    """Returns the same picture in fewer lines: without groups that have only an id, many coordinates on a line."""
    svg = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", svg)  # a hundredth of a point is enough
    version = re.search(r"Matplotlib v[\d.]+", svg)[0]
    svg = re.sub(r"<metadata>.*?</metadata>", f"<!-- {version} -->", svg, flags=re.DOTALL)
    svg = re.sub(r' d="([^"]*)"', lambda path: ' d="' + textwrap.fill(" ".join(path[1].split()), 118) + '"', svg)
    lines, drawn = [], []
    for line in map(str.strip, svg.splitlines()):
        if line.startswith("<g"):
            drawn.append(not re.fullmatch(r'<g( id="[^"]*")?>', line))
        if drawn.pop() if line == "</g>" else not line.startswith("<g") or drawn[-1]:
            lines.append(line)
    return "\n".join(lines) + "\n"


def save(plt, figure, path):
    """Saves a figure as SVG. The same figure gives the same bytes."""
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)
    path.write_text(slim(path.read_text()))


def made_by(path):
    """Returns the version of matplotlib in an SVG file, or None."""
    found = re.search(r"Matplotlib v([\d.]+)", path.read_text()) if path.exists() else None
    return found and found[1]
