"""One shape: who can run it, who is right, and then the rounds.

In: clients that are running, a shape, its inputs and its float64 answer. Out: one record per
contestant with what ran, its error, its times and its ratio to poise, or the reason it did not run.
Must not happen here: a time of a contestant whose output has not passed.
"""

import dataclasses
import statistics

import problem
import protocol

# A turn repeats the call until about this much time is in it: the clock and the way through the
# pipe vanish, and a turn still is far shorter than a machine's slow spell.
_TURN_SECONDS = 0.02
_MOST_REPEATS = 20000
# A call this long fills its turn alone and needs no untimed call before it to fetch its inputs.
_LONG_SECONDS = 0.2
# A contestant this many times slower than the fastest runs in every third round only: its place in
# the table is settled, and the time is better spent on the others.
_SLOW_FACTOR = 4
_SLOW_EVERY = 3
_MOST_ROUNDS = 40
_LOAD_SECONDS = 240  # includes compiling
_CALL_SECONDS = 120


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long the rounds of a shape may take, and how many there are at least."""

    seconds: float
    fewest_rounds: int


class Entry:
    """A contestant in one shape."""

    def __init__(self, name, client):
        self.name, self.client = name, client
        self.record = {}
        self.once = 0.0  # seconds of a call, estimated before the rounds
        self.seconds = {}  # round -> seconds of a call

    def ask(self, **request):
        timeout = _LOAD_SECONDS if request["verb"] == "load" else _CALL_SECONDS
        if "repeats" in request:
            timeout += 2 * self.once * request["repeats"]
        return self.client.ask(request, timeout)

    def repeats(self):
        return max(1, min(_MOST_REPEATS, round(_TURN_SECONDS / max(self.once, 1e-9))))

    def turn(self, number):
        if self.once < _LONG_SECONDS:
            self.ask(verb="time", repeats=1)
        self.seconds[number] = self.ask(verb="time", repeats=self.repeats())["seconds"]


def _enter(entry, shape, inputs, expected, threads, answer_path):
    """Loads and checks; returns the reason for staying out, or None."""
    answer = entry.ask(**shape.request(inputs, threads))
    if "refused" in answer:
        return answer["refused"]
    entry.record["ran"] = answer["ran"]
    answer = entry.ask(verb="check", output=str(answer_path))
    if "refused" in answer:
        return answer["refused"]
    entry.record["error"] = problem.error(expected, answer_path)
    bound = problem.BOUNDS[shape.dtype]
    if entry.record["error"] > bound:
        return (f"wrong: off by {entry.record['error']:.1e} of the largest value, "
                f"{bound:.0e} allowed")
    entry.once = answer["seconds"]
    if entry.repeats() > 1:  # a call after a pause says little: estimate from a turn
        entry.once = entry.ask(verb="time", repeats=entry.repeats())["seconds"]
    return None


def _rounds(entries, effort):
    fastest = min(entry.once for entry in entries)
    slow = {entry.name for entry in entries[1:] if entry.once > _SLOW_FACTOR * fastest}

    def cost(entry):
        share = 1 / _SLOW_EVERY if entry.name in slow else 1
        once = entry.once * (entry.repeats() + (1 if entry.once < _LONG_SECONDS else 0))
        return share * once

    total = sum(map(cost, entries))
    rounds = int(max(effort.fewest_rounds, min(_MOST_ROUNDS, effort.seconds / total)))
    for number in range(rounds):
        shift = number % len(entries)
        for entry in entries[shift:] + entries[:shift]:
            if entry.name not in slow or number % _SLOW_EVERY == 0:
                try:
                    entry.turn(number)
                except protocol.Died as error:
                    entry.record |= {"refused": str(error), "died": True}
        entries = [entry for entry in entries if "refused" not in entry.record]


def play(shape, inputs, expected, clients, threads, effort, answer_path):
    """Runs one shape. clients {name: Client}, poise's first. Returns {name: record}."""
    entries = [Entry(name, client) for name, client in clients.items()]
    for entry in entries:
        try:
            reason = _enter(entry, shape, inputs, expected, threads, answer_path)
        except protocol.Died as error:
            reason = str(error)
            entry.record["died"] = True
        if reason is not None:
            entry.record["refused"] = reason
    running = [entry for entry in entries if "refused" not in entry.record]
    if running:
        _rounds(running, effort)
    poise = entries[0].seconds
    for entry in running:
        if "refused" in entry.record:
            continue
        times = list(entry.seconds.values())
        ratios = [entry.seconds[i] / poise[i] for i in entry.seconds if i in poise]
        entry.record |= {
            "best_seconds": min(times), "median_seconds": statistics.median(times),
            "ratio_to_poise": statistics.median(ratios) if ratios else None,
            "rounds": len(times), "repeats": entry.repeats()}
    return {entry.name: entry.record for entry in entries}
