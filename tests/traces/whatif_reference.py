"""A job of several ranks run moment by moment, for `test_trace_what_if.py`; imports nothing of ours.

A plan has, for each rank, its threads: lists of items that a thread does one after another, times in ns:
("work", ns) the host computes; nothing is recorded.  ("call", ns) a call that neither launches nor waits.
("launch", ns, stream, op ns, op, latency, key, events) a call, and an operation that begins no earlier than `latency` after the call does,
after the operation before it on its stream and after the operations named in `events`. Operations of one `key` are a collective: none
ends before the last has begun, each lasts its `op ns` from there.
("record", ns, stream, name) a call after which the event `name` comes when all is done that the stream was given so far; ("hold", ns,
stream, name) a call after which the stream does nothing new before the event has come; ("meet", ns, name) ends `ns` after it.
("talk", ns, key) a collective of all hosts: it ends `ns` after the last of them has come to it.
("sync", ns, streams) ends `ns` after all that the rank has launched on these streams has ended.
("await", ns, thread, item) goes on `ns` after another thread of the rank has done an item; nothing is recorded.
"""

from __future__ import annotations


def simulate(plan):
    """Return (calls, operations): dicts of what would have been recorded."""
    threads = {(rank, t): {"at": 0, "free": 0, "since": None} for rank, lists in enumerate(plan) for t in range(len(lists))}
    calls, ops, streams, now, moments = [], {}, {}, 0, {0}
    came = {}  # by key of a collective of hosts: who has come
    records = {}  # by rank and name of an event: what must have been done when it comes, and which call recorded it

    def advance(rank, t, state):
        items = plan[rank][t]
        if state["at"] >= len(items) or state["free"] > now:
            return False
        word, ns, *more = items[state["at"]]
        since = now if state["since"] is None else state["since"]
        state["since"] = since
        if word == "sync" and not all(passed(item) for s in more[0] for item in streams.get((rank, s), [])):
            return False
        if word == "meet" and not all(passed(item) for item in records[rank, more[0]][0]):
            return False
        if word == "talk":
            there = came.setdefault(more[0], set())
            if rank not in there:
                there.add(rank)
                return True
            if len(there) < len(plan):
                return False
        if word == "await":
            other = threads[rank, more[0]]
            if other["at"] <= more[1] or (other["at"] == more[1] + 1 and other["free"] > now):
                return False
        if word == "launch":
            stream, lasts, name, latency, key, events = more
            op = {"rank": rank, "stream": stream, "ns": lasts, "name": name, "ready": now + latency, "key": key, "call": len(calls)}
            ops[rank, name] = op | {"start": None, "end": None, "events": [(rank, e) for e in events]}
            streams.setdefault((rank, stream), []).append(ops[rank, name])
            moments.add(now + latency)
        if word == "record":
            records[rank, more[1]] = list(streams.get((rank, more[0]), [])), len(calls), more[0]
        told = {}
        if word in ("hold", "meet"):
            items, call, stream = records[rank, more[-1]]
            told = {"record": call, "awaited": stream, "stream": more[0] if word == "hold" else None}
        if word == "hold":
            streams.setdefault((rank, more[0]), []).append({"until": items, "start": None, "end": None})
        if word in ("call", "launch", "sync", "talk", "record", "hold", "meet"):
            calls.append({"rank": rank, "thread": t, "sort": word, "start": since, "end": now + ns} | told)
        state.update(at=state["at"] + 1, free=now + ns, since=None)
        moments.add(now + ns)
        return True

    def passed(item):
        if item["end"] is None and "until" in item and all(map(passed, item["until"])):
            item["end"] = now
        return done(item)

    def done(op):
        return op["end"] is not None and op["end"] <= now

    def begin(queue):
        for place, op in enumerate(queue):
            if op["start"] is None and "until" not in op:
                if not all(map(passed, queue[:place])) or op["ready"] > now or not all(done(ops[e]) for e in op["events"]):
                    return False
                op["start"] = now
                if op["key"] is None:
                    op["end"] = now + op["ns"]
                    moments.add(op["end"])
                return True
        return False

    members = {}
    for rank, lists in enumerate(plan):
        for item in (item for items in lists for item in items if item[0] == "launch" and item[6] is not None):
            members.setdefault(item[6], []).append((rank, item[4]))

    def leave(names):
        mates = [ops.get(name) for name in names]
        if any(op is None or op["start"] is None or op["end"] is not None for op in mates):
            return False
        for op in mates:
            op["end"] = now + op["ns"]
            moments.add(op["end"])
        return True

    while moments:
        now = min(moments)
        moments.discard(now)
        while any([advance(*who, state) for who, state in threads.items()] + [begin(q) for q in streams.values()]
                  + [leave(names) for names in members.values()]):  # fmt: skip
            pass
    assert all(state["at"] == len(plan[rank][t]) for (rank, t), state in threads.items()), "the plan waits in a circle"
    return calls, list(ops.values())


def elapsed(plan):
    """Return when the last call or operation ends."""
    calls, ops = simulate(plan)
    return max(row["end"] for row in calls + ops)


def changed(plan, change):
    """Return a plan with each item as `change(item)` has it."""
    return [[[change(item) for item in items] for items in lists] for lists in plan]


def without_communication(item):
    if item[0] == "talk":
        return (item[0], 0, *item[2:])
    return (*item[:3], 0, *item[4:]) if item[0] == "launch" and item[6] is not None else item


def launched_free(item):
    return ("launch", 0, *item[2:5], 0, *item[6:]) if item[0] == "launch" else item


def without_host(item):
    return (item[0], 0, *item[2:]) if item[0] in ("work", "call", "await", "record", "hold") else launched_free(item)
