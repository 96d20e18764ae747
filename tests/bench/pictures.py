# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
"""pictures.py PICTURE RESULTS FILE: draws a picture of docs/pictures from the runs of tests/bench/pictures.sh.

RESULTS/conditions has date, processor, commit and command. Here: placements, granules and layers.
"""

import math
import pathlib
import sys
from importlib.util import module_from_spec, spec_from_file_location

from run_pictures import exact, memory, step
from svg import WIDTH, Picture

ROOT = pathlib.Path(__file__).resolve().parents[2]


def placement(picture, x, name, note, cells):
    """Two ranks, four elements; an empty string is an element that the rank does not have."""
    picture.text(x + 100, 84, name, "b", "middle")
    for rank in range(2):
        for index, words in enumerate(cells[rank]):
            picture.box(x + 50 * index, 100 + 48 * rank, 46, 38, f"f{rank} s{rank} p" if words else "n g d", 4)
            picture.text(x + 50 * index + 23, 124 + 48 * rank, words, "", "middle")
    picture.text(x + 100, 214, note, "m", "middle")


def placements(results):
    picture = Picture(
        "Three placements of an array on two ranks",
        "Partial: each rank has an addend of every element. Sharded: each rank has half of the elements. "
        "Replicated: each rank has all. A reduce-scatter turns Partial into Sharded, an all-gather turns Sharded "
        "into Replicated, both turn Partial into Replicated, and from Replicated to Sharded each rank keeps its "
        "shard.",
        306,
    )
    picture.text(0, 20, "An array of four elements under three placements on two ranks", "h")
    picture.text(0, 42, "redistribute() changes the placement; the two placements determine the collective.", "m")
    placement(
        picture,
        44,
        "Partial",
        "the value is the sum: a = a0 + a1",
        (["a0", "b0", "c0", "d0"], ["a1", "b1", "c1", "d1"]),
    )
    placement(picture, 337, "Sharded", "each element on one rank", (["a", "b", "", ""], ["", "", "c", "d"]))
    placement(picture, 630, "Replicated", "all elements on each rank", (["a", "b", "c", "d"], ["a", "b", "c", "d"]))
    for rank in range(2):
        picture.text(0, 124 + 48 * rank, f"rank {rank}", "s")
    picture.arrow(250, 143, 330, 143)
    picture.text(290, 132, "reduce-", "s b", "middle")
    picture.text(290, 162, "scatter", "s b", "middle")
    picture.arrow(543, 119, 623, 119)
    picture.text(583, 110, "all-gather", "s b", "middle")
    picture.arrow(623, 167, 543, 167)
    picture.text(583, 184, "keep", "s b", "middle")
    picture.text(583, 198, "my shard", "s b", "middle")
    picture.curve("M144 226V246Q144 256 154 256H720Q730 256 730 246V232", "l")
    picture.head(730, 224, 0, -1)
    picture.text(437, 276, "reduce-scatter, then all-gather", "s b", "middle")
    picture.caption(
        results,
        "Sums are added in rank order. Gradients go from Partial to Sharded (stages 1 to 3) or Replicated (stage 0), "
        "weights from Sharded to Replicated (stages 1 to 3). ",
    )
    return picture


def granules(results):
    count = 6
    picture = Picture(
        "Granules over ranks and micro-steps",
        f"A step of {count} granules on 1, 2, 3 and 4 ranks. In micro-step m, rank r of n computes granule m n + r. "
        "Gradients are added in the order of granules, so the sum does not depend on the number of ranks.",
        394,
    )
    picture.text(0, 20, "The same step on 1, 2, 3 and 4 ranks", "h")
    picture.text(
        0,
        42,
        f"The global batch is cut into {count} granules of train.micro_batch sequences. In micro-step m, rank r of n "
        "computes granule",
        "m",
    )
    picture.text(
        0,
        60,
        "m n + r. Its gradient is added to the sum so far in the order of the arrows, which is the order of "
        "granules.",
        "m",
    )
    place = {1: (62, 112), 2: (488, 112), 3: (62, 232), 4: (488, 232)}
    size, apart = 36, 56
    for ranks, (x, y) in place.items():
        steps = math.ceil(count / ranks)
        picture.text(x - 62, y - 8, f"{ranks} rank{'s' if ranks > 1 else ''}", "b")
        for m in range(steps):
            picture.text(x + 28 + apart * m + size / 2, y - 8, f"m={m}", "m s", "middle")
        for rank in range(ranks):
            picture.text(x + 18, y + 21 + 38 * rank, f"rank {rank}", "m s", "end")
        centers = []
        for granule in range(steps * ranks):
            m, rank = divmod(granule, ranks)
            gx, gy = x + 28 + apart * m, y + 38 * rank
            if granule >= count:
                picture.box(gx, gy, size, 30, "n g d", 5)
                continue
            picture.box(gx, gy, size, 30, f"f{granule % 6} s{granule % 6} p", 5)
            picture.text(gx + size / 2, gy + 20, f"g{granule}", "s b", "middle")
            centers.append((gx, gy))
        for (ax, ay), (bx, by) in zip(centers, centers[1:]):
            if ax == bx:
                picture.line([(ax + size / 2, ay + 30), (ax + size / 2, by)], "l")
            elif ay == by:
                picture.arrow(ax + size, ay + 15, bx, by + 15)
            else:
                picture.arrow(ax + size + 1, ay + 12, bx - 1, by + 24)
    picture.text(0, 382, "sum = ((((g0 + g1) + g2) + g3) + g4) + g5", "b")
    picture.caption(
        results,
        "The same for every number of ranks and every stage. A rank without a granule in the last micro-step (dashed) "
        "adds nothing. ",
    )
    return picture


# What a folder is about, and its column among four.
SUBJECTS = {
    "core": ("parameters, ledger, errors", 1.5),
    "kernels": ("ops, matmul, attention", 0.5),
    "distributed": ("collectives, placements", 2.5),
    "model": ("GPT-2, Llama, Qwen", 0),
    "optim": ("AdamW, SGD, schedules", 1),
    "zero": ("stages as placements", 2),
    "io": ("decks, HDF5, checkpoints", 3),
    "huggingface": ("import, export", 0),
    "data": ("text, tokens, samples", 3),
    "train": ("the step, saving", 1.5),
    "plan": ("memory and time", 1.5),
    "run": ("the loop, stopping", 1.5),
    "program": ("options, help", 1.5),
    "commands": ("train, verify, ...", 0.5),
    "bench": ("measurements", 2.5),
}


def layers(results):
    spec = spec_from_file_location("check_layers", ROOT / "tests/style/check_layers.py")
    checks = module_from_spec(spec)
    spec.loader.exec_module(checks)
    below = {folder: row.split() for folder, row in checks.BELOW.items()}
    level = {}
    for folder, folders in below.items():
        level[folder] = 1 + max((level[other] for other in folders), default=-1)
    height, width, apart, top = 40, 196, 64, max(level.values())
    picture = Picture(
        "Folders of the sources as layers",
        "Each folder includes only folders below it. "
        + " ".join(f"{folder}: includes {', '.join(below[folder]) or 'nothing'}." for folder in below),
        42 + apart * (top + 1),
    )
    picture.text(0, 20, "A folder includes only folders below it", "h")
    place = {
        folder: (1 + SUBJECTS[folder][1] * (WIDTH - 2 - width) / 3, 40 + apart * (top - level[folder]))
        for folder in below
    }
    for folder, folders in below.items():
        x, y = place[folder]
        for other in folders:
            if any(other in below[between] for between in folders):
                continue
            to_x, to_y = place[other]
            if level[folder] - level[other] > 2:  # around the boxes between
                picture.line(
                    [(x, y + height / 2), (to_x + width / 2, y + height / 2), (to_x + width / 2, to_y - 6)], "s6"
                )
                picture.head(to_x + width / 2, to_y, 0, 1, "f6")
                continue
            shift = max(-width / 3, min(width / 3, (to_x - x) / 3))
            picture.arrow(x + width / 2 + shift, y + height, to_x + width / 2 - shift, to_y, "s6", "f6")
    for folder, (x, y) in place.items():
        color = level[folder] % 6
        files = [path for top in ("src", "include/kozero", ".") for path in (ROOT / top / folder).rglob("*.[ch]pp")]
        lines = sum(len(path.read_bytes().splitlines()) for path in files)
        picture.box(x, y, width, height, f"f{color} s{color} p", 5)
        picture.text(x + 10, y + 17, folder, "b")
        picture.text(x + width - 10, y + 17, f"{lines:,} lines", "m s", "end")
        picture.text(x + 10, y + 33, SUBJECTS[folder][0], "s")
    picture.caption(
        results,
        "From the list in tests/style/check_layers.py, which every build checks. An arrow leads to what a folder "
        "includes; what follows from other arrows is left out. ",
    )
    return picture


PICTURES = {each.__name__: each for each in (exact, memory, placements, step, granules, layers)}


def main():
    name, results, file = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    PICTURES[name](results).write(file)


main()
