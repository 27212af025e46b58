"""How sure a ratio of two times is that were measured in turns."""
import functools
import math
import random
import statistics

CONFIDENCE, RESAMPLES, SEED = 0.95, 10_000, 1


def student_tail(t, freedom):
    """P(T > t) of Student's distribution, t >= 0: its density from 0 to t by Simpson's rule."""
    steps = 2000
    constant = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / \
        math.sqrt(freedom * math.pi)
    density = lambda x: constant * (1 + x * x / freedom) ** (-(freedom + 1) / 2)
    inner = sum((4 if i % 2 else 2) * density(t * i / steps) for i in range(1, steps))
    return 0.5 - (density(0) + inner + density(t)) * t / steps / 3


def student_quantile(tail, freedom):
    """The t with P(T > t) = tail."""
    low, high = 0.0, 1.0
    while student_tail(high, freedom) > tail:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, freedom) > tail else (low, middle)
    return (low + high) / 2


@functools.lru_cache
def expanded_tail(count, confidence=CONFIDENCE):
    """The share of a bootstrap distribution to cut off at each end, with so many values.

    Resampled medians vary less than medians of new values do, by sqrt((n - 1) / n), and a few
    values tell their own spread badly, as Student's t has it: with 7 of them the plain 2.5% give
    an interval that holds the true median in 87% of all cases. The cut is at the normal
    distribution's tail that belongs to both (an expanded percentile interval): 0.4%.
    """
    t = student_quantile((1 - confidence) / 2, count - 1)
    return statistics.NormalDist().cdf(-math.sqrt(count / (count - 1)) * t)


def interval(values, confidence=CONFIDENCE, resamples=RESAMPLES, seed=SEED):
    """(low, high) of the values' median by bootstrap; None for fewer than 3 values."""
    count = len(values)
    if count < 3:
        return None
    random_values = random.Random(seed)
    medians = sorted(statistics.median(random_values.choices(values, k=count))
                     for _ in range(resamples))
    cut = min(int(expanded_tail(count, confidence) * resamples), (resamples - 1) // 2)
    return medians[cut], medians[-1 - cut]


def best(rows, key):
    """The row with the least `key`; rows without it (or with `lacking`) do not count. Or None."""
    return min((row for row in rows if row.get(key) and "lacking" not in row),
               key=lambda row: row[key], default=None)
