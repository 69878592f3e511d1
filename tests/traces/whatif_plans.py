"""Random jobs for `whatif_reference`: what is known of them, the trace must tell."""

from __future__ import annotations

from fractions import Fraction
from random import Random


def draw(seed, *, ranks=None, threads=1, streams=2, jitter=False, events=True, syncs="any", even=False, hosts=False):
    """Return a random plan. Ranks run one program; in each stretch between collectives of all, each is late by a factor of its own on
    the host and another on the device (`even`: by the mean of all ranks' factors, what a job without late ranks would be). With `hosts`
    the hosts do the collectives, not the devices."""
    random = Random(seed)
    ranks = ranks or random.choice((1, 2, 2, 3, 4))
    steps, latency = random.randint(1, 4), random.randint(2_000, 9_000)
    host, device = random.choice(((3, 60), (30, 30), (60, 6))) if not jitter else (30, 30)
    plan = [[[] for _ in range(threads)] for _ in range(ranks)]
    names = iter(range(10**9))
    for step in range(steps):
        late = [(Fraction(random.choice((2, 2, 3, 5)), 2), Fraction(random.choice((2, 2, 3, 6)), 2)) for _ in range(ranks)]
        late = [(sum(a for a, _ in late) / ranks, sum(b for _, b in late) / ranks)] * ranks if even else late
        launched = []
        if not step:
            for rank, (by_host, _) in enumerate(late):
                plan[rank][0].append(("call", int(1_200 * by_host)))
        for t in range(threads):
            if t:  # a second thread begins when the first has done what it did so far, as autograd's does, and with a launch
                for rank in range(ranks):
                    plan[rank][t].append(("await", 1_111, 0, len(plan[rank][0]) - 1))
            for place in range(random.randint(2, 9)):
                work, call, lasts = random.randint(1, 400) * host * 12, random.randint(1, 100) * 60, random.randint(1, 900) * device * 12
                kind, stream, name = 1.0 if t and not place else random.random(), random.randrange(streams), next(names)
                lag = latency + (random.randint(0, 9_000) if jitter else 0)
                waits = random.sample(launched, min(len(launched), 1)) if events and random.random() < 0.4 else []
                which = list(range(streams)) if syncs == "all" else random.choice(([stream], list(range(streams))))
                for rank, (by_host, by_device) in enumerate(late):
                    items = plan[rank][t]
                    items.append(("work", int(work * by_host)))
                    if kind < 0.15:
                        items.append(("sync", 1_500, which))
                    elif kind < 0.25:
                        items.append(("call", int(call * by_host)))
                    else:
                        items.append(("launch", int(call * by_host), stream, int(lasts * by_device), name, lag, None, waits))
                if kind >= 0.25:
                    launched.append(name)
        if threads > 1:
            for rank in range(ranks):
                plan[rank][0].append(("await", 1_222, 1, len(plan[rank][1]) - 1))
        name, lasts = next(names), random.randint(1, 900) * 600
        for rank, (by_host, by_device) in enumerate(late):
            waits = launched[-1:] if events else []
            own = int(lasts * by_device) if hosts else lasts
            item = ("launch", int(1_200 * by_host), streams - 1, own, name, latency, step if ranks > 1 and not hosts else None, waits)
            talk = [("talk", lasts, step)] if hosts else []
            plan[rank][0] += [item, ("sync", 1_500, list(range(streams))), *talk]
    return plan


def draw_events(seed, *, ranks=None, threads=1):
    """Return a random plan in which streams, some of which do nothing else, wait for one another's events, and hosts for events."""
    random = Random(seed)
    ranks, streams, latency = ranks or random.choice((1, 2, 3)), random.randint(2, 5), random.randint(2_000, 9_000)
    host, device = random.choice(((3, 60), (30, 30), (60, 6)))
    plan = [[[] for _ in range(threads)] for _ in range(ranks)]
    names, events = iter(range(10**9)), []
    for step in range(random.randint(1, 3)):
        for t in range(threads):
            for rank in range(ranks if t else 0):
                plan[rank][t].append(("await", 1_111, 0, len(plan[rank][0]) - 1))
            for place in range(random.randint(3, 14)):
                word = "launch" if t and not place else random.choice(("launch", "launch", "record", "hold", "hold", "meet", "call"))
                ns, work, stream = random.randint(1, 100) * 60, random.randint(1, 400) * host * 12, random.randrange(streams)
                lasts, name, event = random.randint(1, 900) * device * 12, next(names), random.choice(events) if events else None
                if word in ("hold", "meet") and event is None:
                    continue
                if word == "record":
                    events.append(name)
                item = {
                    "launch": ("launch", ns, stream, lasts, name, latency, None, []),
                    "record": ("record", ns, stream, name),
                    "hold": ("hold", ns, stream, event),
                    "meet": ("meet", 1_500, event),
                    "call": ("call", ns),
                }[word]
                for rank in range(ranks):
                    late = random.randint(2, 5)
                    plan[rank][t] += [("work", work * late // 2), item]
        for rank in range(ranks if threads > 1 else 0):
            plan[rank][0].append(("await", 1_222, 1, len(plan[rank][1]) - 1))
        name, lasts = next(names), random.randint(1, 900) * 600
        for rank in range(ranks):
            item = ("launch", 1_200, streams - 1, lasts, name, latency, step if ranks > 1 else None, [])
            plan[rank][0] += [item, ("sync", 1_500, list(range(streams)))]
    return plan
