"""Colours that are readable on white and on a dark page, pictures saved as SVG and PNG, and what the
scripts that draw have around their drawing.

Everything is drawn on a transparent ground, in colours of middle brightness: each has a contrast of
at least 3 (WCAG 2.1) with white and with GitHub's dark ground, the ink for text 4.
"""
import os
import sys

# Scripts that draw import this module first, and find those of bench/ then.
sys.path.insert(1, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bench"))
from results import Refused  # noqa: E402

INK = "#797e86"
DPI = 140  # of a PNG
GROUNDS = ("#ffffff", "#0d1117")
# Of chapters 1, 2, ...; neighbours differ in hue and a little in brightness.
CHAPTERS = ("#e5534b", "#c7681f", "#9a7b0f", "#3d8b40", "#1f8a8a", "#2f7fe0", "#8b6cef", "#d0559b")


def luminance(color):
    """Relative luminance of '#rrggbb' (WCAG 2.1)."""
    linear = []
    for i in (1, 3, 5):
        value = int(color[i:i + 2], 16) / 255
        linear.append(value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4)
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    bright, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def of_chapter(number):
    """Chapters that stand in one picture, 1 to 6 and 13 to 15, have colours of their own."""
    return CHAPTERS[(number - (1 if number < 13 else 7)) % len(CHAPTERS)]


def main(usage, fits, draw):
    """The exit status of a script: draw(*arguments) where fits(arguments), else its usage on stderr.

    Without matplotlib it is 3, with input that is not what the script reads 2, each said in a line that
    begins with the script's name.
    """
    name, arguments = usage.split(".py ")[0], sys.argv[1:]
    if not fits(arguments):
        print(f"usage: {usage}", file=sys.stderr)
        return 2
    try:
        draw(*arguments)
    except ImportError as missing:
        print(f"{name}: {missing}; on Debian or Ubuntu: apt-get install python3-matplotlib",
              file=sys.stderr)
        return 3
    except (OSError, ArithmeticError, LookupError, TypeError, ValueError, StopIteration, Refused) as error:
        print(f"{name}: {in_words(error, arguments)}", file=sys.stderr)
        return 2
    return 0


def in_words(error, arguments):
    """What is wrong; of which of the arguments' files where the error does not know."""
    if isinstance(error, (OSError, Refused)):
        return str(error)
    files = [path for path in (of.split(".json")[0] + ".json" for of in arguments if ".json" in of)
             if os.path.isfile(path)]
    words = str(error) if isinstance(error, ValueError) else repr(error)
    return f"{' or '.join(dict.fromkeys(files))}: {words}" if files else words


def pyplot():
    """matplotlib.pyplot as it comes, without a screen. Throws ImportError where there is none."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    return plt


def plot():
    """The same, set to these colours."""
    plt = pyplot()
    import matplotlib
    matplotlib.rcParams.update({
        "svg.hashsalt": "figures", "font.size": 9.5, "text.color": INK, "axes.labelcolor": INK,
        "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.titlecolor": INK,
        "axes.titlesize": 10, "axes.titlelocation": "left", "axes.spines.top": False,
        "axes.spines.right": False, "axes.grid": True, "grid.color": INK, "grid.alpha": 0.25,
        "grid.linewidth": 0.7,
        "axes.axisbelow": True, "legend.frameon": False, "axes.facecolor": "none",
        "figure.facecolor": "none", "savefig.transparent": True})
    return plt


def save(fig, stem):
    """STEM.svg, the same bytes each time."""
    fig.savefig(stem + ".svg", metadata={"Date": None})
    print(f"{stem}.svg: drawn")
