# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
"""run_pictures.py: the pictures of docs/pictures that show runs: losses, memory, a step.

tests/bench/pictures.sh makes the runs. Drawing fails if a bit differs between runs, or if an event does not fit the
order of a step.
"""

import json
import math
import pathlib
import re
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from pinned_runs import hash_of_values
from svg import WIDTH, Picture

RANKS = (1, 2, 3, 4, 7)
MIB = 1 << 20


def read_json(path):
    return json.loads(path.read_text().splitlines()[-1])


def steps_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def ticks(largest, count):
    """Round numbers from 0 up to `largest`, about `count` of them."""
    step = 10 ** math.floor(math.log10(largest / count))
    step = next(step * factor for factor in (1, 2, 5, 10) if largest / (step * factor) <= count)
    return [index * step for index in range(math.floor(largest / step) + 1)]


def bits_that_differ(expected, found):
    """Of the losses and gradient norms of two runs, as doubles."""
    assert [step["step"] for step in expected] == [step["step"] for step in found], "runs have other steps"
    values = [struct.pack("<2d", step["loss"], step["grad_norm"]) for step in expected]
    others = [struct.pack("<2d", step["loss"], step["grad_norm"]) for step in found]
    return sum(
        bin(int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).count("1") for a, b in zip(values, others)
    )


def mark(picture, x, y, stage, size=4.5):
    """The mark of a stage: circle, square, diamond, triangle; that of the resumed run, 4, is a cross."""
    if stage == 0:
        picture.add("circle", "f0", cx=x, cy=y, r=size)
    elif stage == 4:
        picture.line([(x - size, y - size), (x + size, y + size)], "s4 w")
        picture.line([(x - size, y + size), (x + size, y - size)], "s4 w")
    else:
        half = size * 0.9
        points = {
            1: ((-half, -half), (half, -half), (half, half), (-half, half)),
            2: ((0, -size * 1.3), (size * 1.3, 0), (0, size * 1.3), (-size * 1.3, 0)),
            3: ((0, -size * 1.2), (size * 1.2, size), (-size * 1.2, size)),
        }[stage]
        picture.add("polygon", f"f{stage}", points=" ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in points))


def exact(results):
    runs = [(stage, ranks, results / f"stage{stage}-ranks{ranks}") for ranks in RANKS for stage in range(4)]
    killed = read_json(results / "killed.json")
    runs.append((4, 0, results / "killed"))
    first = steps_of(runs[0][2])
    different = {(stage, ranks): bits_that_differ(first, steps_of(run)) for stage, ranks, run in runs}
    hashes = {hash_of_values(run.with_name(run.name + "-exported") / "model.safetensors") for _, _, run in runs}
    if any(different.values()) or len(hashes) != 1:
        sys.exit(f"exact: bits differ by (stage, ranks): {different}; {len(hashes)} different weights")
    steps, losses = [step["step"] for step in first], [step["loss"] for step in first]

    picture = Picture(
        f"{len(runs)} runs, 0 bits differ",
        f"Training losses over {len(steps)} steps of four ZeRO stages on 1, 2, 3, 4 and 7 ranks, and of a run that was "
        "killed and resumed on another number of ranks: all lie on one line.",
        440,
    )
    picture.text(0, 20, f"{len(runs)} runs, 0 bits differ", "h")
    picture.text(
        0,
        42,
        f"Each run marks one step in {len(runs)}, in turn. In all {len(steps)} steps losses and gradient norms are "
        "equal,",
        "m",
    )
    picture.text(0, 60, f"and so are the final weights (SHA-256 {min(hashes)[:12]}...).", "m")
    left, right, top, bottom = 34, 520, 80, 392
    highest = max(losses)
    low = math.floor(min(losses) * 2) / 2
    across = lambda step: left + (right - left) * step / steps[-1]
    up = lambda loss: bottom - (bottom - top) * (loss - low) / (highest - low)
    for value in ticks(highest, 8):
        if value >= low:
            picture.line([(left, up(value)), (right, up(value))], "g")
            picture.text(left - 8, up(value) + 4, f"{value:g}", "m s", "end")
    for step in ticks(steps[-1], 6):
        picture.text(across(step), bottom + 18, str(step), "m s", "middle")
    picture.text(right, bottom + 34, "step", "m s", "end")
    picture.text(left + 24, top + 2, "loss, nats per token", "m s")
    at = across(killed["at"])
    picture.line([(at, top + 30), (at, bottom)], "s4 d")
    picture.text(
        at + 6, top + 42, f"killed in step {killed['at']} on {killed['ranks']} ranks, stage {killed['stage']};", "s"
    )
    picture.text(at + 6, top + 58, f"resumed from step {killed['from']} on {killed['resumed_ranks']} ranks,", "s")
    picture.text(at + 6, top + 74, f"stage {killed['resumed_stage']}", "s")
    picture.line([(across(step), up(loss)) for step, loss in zip(steps, losses)], "l")
    for index, (stage, ranks, run) in enumerate(runs):
        for row in steps_of(run)[index :: len(runs)]:
            mark(picture, across(row["step"]), up(row["loss"]), stage)

    column, line, x, y = 41, 30, 622, 130
    picture.text(x - 78, y - 30, "bits that differ from the first run", "b")
    picture.text(x - 6, y, "ranks", "m s", "end")
    for index, ranks in enumerate(RANKS):
        picture.text(x + 20 + index * column, y, str(ranks), "m", "middle")
    for stage in range(4):
        mark(picture, x - 72, y + line * (stage + 1) - 5, stage)
        picture.text(x - 60, y + line * (stage + 1), f"stage {stage}", "")
        for index, ranks in enumerate(RANKS):
            picture.box(x + 2 + index * column, y + line * (stage + 1) - 19, column - 6, line - 4, "f2 p", 3)
            picture.text(
                x + 20 + index * column, y + line * (stage + 1) - 1, str(different[stage, ranks]), "", "middle"
            )
    mark(picture, x - 72, y + line * 5 - 5, 4)
    picture.text(x - 60, y + line * 5, "killed and resumed on other ranks")
    picture.box(x + 2 + 4 * column, y + line * 6 - 24, column - 6, line - 4, "f2 p", 3)
    picture.text(x + 20 + 4 * column, y + line * 6 - 6, str(different[4, 0]), "", "middle")
    picture.text(x - 60, y + line * 6 - 6, "in another stage", "")
    picture.caption(results, f"GPT-2 of {killed['parameters']:,} parameters, f32.")
    return picture


def memory(results):
    plan = read_json(results / "plan.json")
    beside = float((results / "beside_mib").read_text())
    names = ["parameters", "gradients", "optimizer", "gathered", "activations", "communication", "workspace", "staging"]
    shown = ["parameters", "gradients", "optimizer", "gathered", "activations", "other arrays", "process"]
    bars = []
    for stage in range(4):
        row = steps_of(results / f"memory{stage}")[-1]["memory"]
        planned = {name: plan["stages"][stage][name] / MIB for name in names}
        booked = {name: row.get(name, 0) / MIB for name in names}
        log = (results / f"memory{stage}" / "log.txt").read_text()
        peak = float(re.search(r"peak process memory ([0-9.]+) MiB", log)[1])  # row["peak"] counts shared pages in full
        for values, rest in ((planned, beside), (booked, peak - sum(booked.values()))):
            other = sum(values[name] for name in names[5:])
            bars.append([values[name] for name in names[:5]] + [other, rest])
    ranks = plan["stages"][0]["ranks"]
    picture = Picture(
        "Memory per rank, planned and measured",
        f"Stacked bars of the memory of a rank for ZeRO stages 0 to 3 on {ranks} ranks: what kozero plan says, "
        "and the peak of the process.",
        406,
    )
    picture.text(0, 20, f"Memory per rank on {ranks} ranks, planned and measured", "h")
    off = max(abs(sum(bars[2 * s + 1]) / sum(bars[2 * s]) - 1) for s in range(4))
    picture.text(
        0, 42, f"MiB. Left: kozero plan. Right: peak of the process, at most {100 * off:.1f} % from the plan.", "m"
    )
    left, right, top, bottom = 40, 640, 72, 356
    highest = max(map(sum, bars)) * 1.06
    up = lambda value: bottom - (bottom - top) * value / highest
    for value in ticks(highest, 6):
        picture.line([(left, up(value)), (right, up(value))], "g")
        picture.text(left - 8, up(value) + 4, f"{value:g}", "m s", "end")
    for index, bar in enumerate(bars):
        x = left + 18 + (index // 2) * 150 + (index % 2) * 60
        base = 0.0
        for color, value in enumerate(bar):
            if value > 0.0:
                picture.box(x, up(base + value), 52, up(base) - up(base + value), f"f{color}")
            base += value
        picture.text(x + 26, up(base) - 6, f"{base:.0f}", "b s", "middle")
        picture.text(x + 26, bottom + 16, ("plan", "peak")[index % 2], "m s", "middle")
        if index % 2 == 0:
            picture.text(x + 56, bottom + 36, f"stage {index // 2}", "", "middle")
    for color, name in enumerate(reversed(shown)):
        y = top + 24 + color * 26
        picture.box(right + 30, y - 11, 14, 14, f"f{len(shown) - 1 - color}", 2)
        picture.text(
            right + 52,
            y + 1,
            {"process": "the process itself", "optimizer": "optimizer state", "gathered": "gathered weights"}.get(
                name, name
            ),
        )
    picture.caption(
        results,
        f"GPT-2 of {plan['parameters']:,} parameters, {plan['precision']}, AdamW. "
        "A page that n processes share counts as 1/n.",
    )
    return picture


class Lane:
    """The transfers of one collective: their units, starts, ends of their first waits, and the calls between."""

    def __init__(self):
        self.transfers, self.calls, self.open = [], [], []


def lanes_of(events):
    """Lanes by collective, and all calls. A call during which a collective starts is its start. Another call for a
    gather waits for the oldest one under way. A reduction is waited for right after the next one's start, and the last
    one in the phase `reduce`; other calls for reductions wait until peers have read (test_step_schedule.cpp)."""
    lanes = {"all_gather": Lane(), "reduce_scatter": Lane()}
    calls = [event for event in events if event["kind"] == "call"]
    starts = [event for event in events if event["kind"] == "start" and event["event"] in lanes]
    before = None  # the newest call of a reduction, if it was a start
    for call in calls:
        lane = lanes[call["event"]]
        lane.calls.append((call["begin_s"], call["end_s"]))
        started = [
            event
            for event in starts
            if event["event"] == call["event"] and call["begin_s"] <= event["begin_s"] <= call["end_s"]
        ]
        if started:
            lane.transfers.append([started[0]["unit"], call["begin_s"], None])
            lane.open.append(lane.transfers[-1])
        elif lane.open and (
            call["event"] == "all_gather" or before and len(lane.open) > 1 or call["phase"] == "reduce"
        ):
            lane.open.pop(0)[2] = call["end_s"]
        if call["event"] == "reduce_scatter":
            before = started
    assert all(
        transfer[2] is not None for lane in lanes.values() for transfer in lane.transfers
    ), "a transfer has no wait"
    return lanes, calls


def computed(events, calls):
    """[(begin, end, words)]: the phases of the step without the calls for collectives, named by unit."""
    whole = [event for event in events if event["kind"] == "phase" and event["end_s"] is not None]
    parts = []
    for phase in whole:
        inside = sorted(
            (call["begin_s"], call["end_s"]) for call in calls if phase["begin_s"] <= call["begin_s"] < phase["end_s"]
        )
        edges = [phase["begin_s"]] + [time for pair in inside for time in pair] + [phase["end_s"]]
        parts += [(begin, end, phase["event"]) for begin, end in zip(edges[::2], edges[1::2])]
    return parts


def named(parts, lanes, last_unit):
    """The words of each computed part: a unit's forward, backward and the head by the transfers around it."""
    gathers, reductions = lanes["all_gather"].transfers, lanes["reduce_scatter"].transfers
    first_reduction = min(begin for _, begin, _ in reductions)
    for begin, end, phase in parts:
        if phase != "forward_backward":
            yield begin, end, phase, phase
            continue
        arrived = [unit for unit, _, arrival in gathers if arrival <= begin + 1e-9]
        following = [unit for unit, start, _ in reductions if start >= end - 1e-9]
        if not arrived:
            yield begin, end, "", "between"
        elif begin < first_reduction:
            yield begin, end, "head" if arrived[-1] == last_unit else str(arrived[-1]), "forward"
        else:
            yield begin, end, str(following[0]) if following else "", "backward"


def length_of(events):
    return max(event["end_s"] for event in events if event["end_s"])


def step(results):
    events = min((read_json(file)["events"] for file in results.glob("step*.json")), key=length_of)
    lanes, calls = lanes_of(events)
    last_unit = max(unit for unit, _, _ in lanes["all_gather"].transfers)
    end = length_of(events)
    picture = Picture(
        "One step of ZeRO stage 3 on rank 0",
        "Time runs to the right. Lanes: what the rank computes, the gathers of weights and the reductions of "
        "gradients, each from its start until it has been waited for.",
        338,
    )
    picture.text(0, 20, "One step of ZeRO stage 3, as rank 0 of 2 recorded it", "h")
    picture.text(
        0,
        42,
        "Numbers are units: 0 the embedding, then one block each, last the final norm; the head also reads 0.",
        "m",
    )
    left, right = 74, WIDTH - 14
    across = lambda seconds: left + (right - left) * seconds / end
    colors = {"forward": "f0", "backward": "f1", "update": "f4"}
    top = {"compute": 74, "all_gather": 134, "reduce_scatter": 204}
    for lane, words in (("compute", "compute"), ("all_gather", "gather"), ("reduce_scatter", "reduce")):
        picture.text(0, top[lane] + 24, words, "b")
    for begin, finish, words, kind in named(computed(events, calls), lanes, last_unit):
        width = across(finish) - across(begin)
        if width < 0.3:
            continue
        picture.box(across(begin), top["compute"], width, 38, colors.get(kind, "f6") + " p")
        picture.box(across(begin), top["compute"] + 35, width, 3, colors.get(kind, "f6"))
        if width > 8 + 7 * len(words):
            picture.text(across(begin) + width / 2, top["compute"] + 23, words, "s", "middle")
    for name, color in (("all_gather", "f2"), ("reduce_scatter", "f3")):
        transfers = lanes[name].transfers
        for index, (unit, begin, finish) in enumerate(transfers):
            y = top[name] + 29 * (index % 2)
            picture.box(across(begin), y, max(across(finish) - across(begin), 2), 24, color + " p")
            following = transfers[index + 2][1] if index + 2 < len(transfers) else end + 1.0  # in this row
            if across(following) - across(begin) > 12:
                picture.text(across(begin) + 3, y + 16, str(unit), "s")
        for begin, finish in lanes[name].calls:
            picture.box(across(begin), top[name] + 54, max(across(finish) - across(begin), 0.8), 6, color)
    for tick in ticks(1e3 * end, 8):
        picture.line([(across(tick / 1e3), 278), (across(tick / 1e3), 284)], "l")
        picture.text(across(tick / 1e3), 300, f"{tick:g}", "m s", "middle")
    picture.line([(left, 278), (right, 278)], "l")
    picture.text(0, 300, "ms", "m s")
    return step_legend(picture, results)


def step_legend(picture, results):
    x = 74
    for color, words in (
        ("f0", "forward"),
        ("f1", "backward"),
        ("f4", "update"),
        ("f2", "gather under way"),
        ("f3", "reduction under way"),
        ("f6", "rest"),
    ):
        picture.box(x, 313, 12, 12, color, 2)
        picture.text(x + 17, 324, words, "s")
        x += 30 + 6.6 * len(words)
    picture.caption(
        results,
        "Light: from a collective's start until its result was waited for. Below, dark: the time in its calls, waits "
        "for the other rank included. ",
    )
    return picture
