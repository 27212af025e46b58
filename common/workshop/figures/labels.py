"""Labels beside points that lie close together: none covers another, a point or other artists."""
import math

SIZE = 8.5      # of the letters, points
GAP = 3         # pixels between what must not touch
MARKER = 7      # half of a point's marker
SIDEWAYS = (12, 30, 55, 85, 120, 160, 205)  # from a point to its label, pixels
ROWS = 26       # how far up and down a label may go, in halves of its height
CROSSING = 70   # pixels of way that a line across something is worth


class Box:
    def __init__(self, x0, y0, x1, y1):
        self.x0, self.y0, self.x1, self.y1 = x0, y0, x1, y1

    def meets(self, other, gap=GAP):
        return self.x0 < other.x1 + gap and other.x0 < self.x1 + gap and \
            self.y0 < other.y1 + gap and other.y0 < self.y1 + gap

    def inside(self, other):
        return other.x0 <= self.x0 and self.x1 <= other.x1 and other.y0 <= self.y0 and \
            self.y1 <= other.y1

    def crossed_by(self, x, y, to_x, to_y):
        """Whether the line between two places goes through it."""
        enters, leaves = 0.0, 1.0
        for at, way, low, high in ((x, to_x - x, self.x0, self.x1),
                                   (y, to_y - y, self.y0, self.y1)):
            if way == 0:
                if not low < at < high:
                    return False
                continue
            first, last = sorted(((low - at) / way, (high - at) / way))
            enters, leaves = max(enters, first), min(leaves, last)
        return enters < leaves


def box_of(artist, renderer):
    found = artist.get_window_extent(renderer)
    return Box(found.x0, found.y0, found.x1, found.y1)


def candidates(x, y, width, height):
    """[(its box, where its line ends, pixels away)] of places for a label of the point."""
    for row in range(-ROWS, ROWS + 1):
        up = row * height / 2
        for away in SIDEWAYS:
            for left in (False, True):
                begin = x - away - width if left else x + away
                box = Box(begin, y + up - height / 2, begin + width, y + up + height / 2)
                yield box, (box.x1 + GAP if left else box.x0 - GAP, y + up), math.hypot(away, up)


def place(ax, points, others=()):
    """Writes the labels, with a thin line from each to its point, and returns the texts. After the
    picture's limits and layout are fixed.

    points: [(x, y, text, color)] in data; others: artists that no label may cover.
    """
    renderer = ax.figure.canvas.get_renderer()
    inside = box_of(ax, renderer)
    at = [tuple(ax.transData.transform((x, y))) for x, y, _, _ in points]
    markers = [Box(x - MARKER, y - MARKER, x + MARKER, y + MARKER) for x, y in at]
    taken = markers + [box_of(artist, renderer) for artist in others]
    texts, lines = [], []
    for i in sorted(range(len(points)), key=lambda i: -at[i][1]):
        (x, y), (*_, words, color) = at[i], points[i]
        text = ax.text(*points[i][:2], words, color=color, fontsize=SIZE, va="center", zorder=4)
        size = box_of(text, renderer)

        def cost(candidate):
            box, end, pixels = candidate
            return pixels + CROSSING * (
                sum(other.crossed_by(x, y, *end) for other in taken if other is not markers[i]) +
                sum(box.crossed_by(*line) for line in lines))
        free = [of for of in candidates(x, y, size.x1 - size.x0, size.y1 - size.y0)
                if of[0].inside(inside) and not any(of[0].meets(other) for other in taken)]
        if not free:
            raise ValueError(f"no room for the label '{words}'")
        box, end, _ = min(free, key=cost)
        taken.append(box)
        lines.append((x, y, *end))
        to_data = ax.transData.inverted().transform
        text.set_position(to_data((box.x0, (box.y0 + box.y1) / 2)))
        ends = [to_data((x, y)), to_data(end)]
        ax.plot(*zip(*ends), color=color, linewidth=0.6, zorder=1)
        texts.append(text)
    return texts


def spread(heights, apart):
    """The heights, moved so that neighbours are `apart` or more: as little as can be, order kept."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    groups = []  # [members, the lowest's place]: each group stands close together
    for i in order:
        groups.append([[i], heights[i]])
        while len(groups) > 1 and \
                groups[-2][1] + apart * len(groups[-2][0]) > groups[-1][1] - 1e-9:
            members = groups[-2][0] + groups.pop()[0]
            middle = sum(heights[m] for m in members) / len(members)
            groups[-1] = [members, middle - apart * (len(members) - 1) / 2]
    places = list(heights)
    for members, lowest in groups:
        for place, i in enumerate(members):
            places[i] = lowest + place * apart
    return places


def at_the_end(ax, points):
    """Writes a label to the right of the last point of each line, none over another. After the
    picture's limits and layout are fixed. points: [(x, y, text, color)] in data."""
    ax.figure.canvas.draw()
    at = [ax.transData.transform((x, y)) for x, y, _, _ in points]
    pixels = ax.figure.dpi / 72  # of a point of the letters
    places = spread([y for _, y in at], SIZE * 1.3 * pixels)
    return [ax.annotate(text, (x, y), xytext=(9, (place - there) / pixels),
                        textcoords="offset points", va="center", color=color, fontsize=SIZE)
            for (x, y, text, color), (_, there), place in zip(points, at, places)]
