# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""test_metrics.py KOZERO MPIEXEC DECK [--tensorboard]: a run's metrics as CSV, as a table, on a screen that follows it,
and in TensorBoard's event files.

With --tensorboard, TensorBoard (a package of the Python that runs this file) reads the event files. Exit status 0: all as
expected.
"""
import csv
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import time

import cli_cases

SMALL = ["model.layers=1", "model.dim=32", "model.heads=2", "model.seq=32", "train.global_batch=8", "train.micro_batch=2",
         "train.eval_every=2", "optim.warmup_steps=0", "optim.schedule=constant", "log.every=1000"]


class Cases(cli_cases.Cases):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.train("run.steps=6", "checkpoint.every=4", "checkpoint.keep=2", "log.tensorboard=true", ranks=2)
        self.train("run.steps=8", "checkpoint.every=4", "log.tensorboard=true", "checkpoint.resume=run/step_000000004")

    def said(self, *arguments, ranks=1, status=0):
        """Standard output, or of an expected error standard error."""
        return self.kozero(*arguments, ranks=ranks, status=status)[0 if status == 0 else 1]

    def train(self, *keys, ranks=1):
        return self.said("train", self.options.deck, *SMALL, "run.dir=run", *keys, ranks=ranks)

    def rows(self):
        return [json.loads(line) for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]


def flat(row):
    """The numbers of a row, as CSV's columns name them."""
    numbers = {}
    for key, value in row.items():
        numbers.update({f"{key}.{inner}": number for inner, number in value.items()} if isinstance(value, dict) else {key: value})
    return numbers


def as_csv(cases):
    """Every number of every row, in round-trip digits; columns of later rows too; incomplete lines are skipped."""
    table = list(csv.reader(io.StringIO(cases.said("metrics", "run", "--csv"))))
    rows = [flat(row) for row in cases.rows()]
    cases.expect(table[0] == list(rows[0]), f"columns {table[0]}, not {list(rows[0])}")
    cases.expect(len(table) == len(rows) + 1, f"{len(table)} lines for {len(rows)} rows")
    for line, row in zip(table[1:], rows):
        numbers = {column: json.loads(cell) if cell else None for column, cell in zip(table[0], line)}
        cases.expect(numbers == row, f"{numbers} is not {row}")
    other = cases.folder / "other.jsonl"
    other.write_text('{"step":1,"loss":NaN}\n{"step":1,"loss":2.5,"seconds":{"a":1}}\n{"step":2,"loss":null,"more":3}\n{"step":3,"lo')
    cases.expect(cases.said("metrics", "other.jsonl", "--csv") == "step,loss,seconds.a,more\n1,2.5,1,\n2,,,3\n", "another file")
    newest = list(csv.reader(io.StringIO(cases.said("metrics", "run", "--csv", "--last", "2"))))
    cases.expect(newest == [table[0], *table[-2:]], f"--csv --last 2: {newest}")
    said = cases.said("metrics", "run", "--last", "2").splitlines()
    cases.expect(len(said) == 3 and said[2].split()[:2] == [str(rows[-1]["step"]), f"{rows[-1]['loss']:.4f}"], f"{said}")


def checksum(data):
    """CRC-32C, masked, bit by bit."""
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if rest & 1 else 0)
    rest ^= 0xFFFFFFFF
    return ((rest >> 15 | rest << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data):
    """The fields of a protocol buffer."""
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
    at = 0
    while at < len(data):
        head = varint()
        kind = head & 7
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            value = data[at:at + size]
            at += size
        yield head >> 3, value


def events(path):
    data = path.read_bytes()
    while data:
        size, check = struct.unpack("<QI", data[:12])
        content = data[12:12 + size]
        assert check == checksum(data[:8]) and struct.unpack("<I", data[12 + size:16 + size])[0] == checksum(content), "a checksum"
        data = data[16 + size:]
        yield dict(fields(content))


def in_event_files(cases):
    """A point for each number of each row, with the row's step and time. A resumed run begins at its first step."""
    assert checksum(b"123456789") == (((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF)  # RFC 3720's example
    files = sorted((cases.folder / "run/tensorboard").iterdir(), key=lambda path: path.stat().st_mtime)
    cases.expect(len(files) == 2, f"{files}")
    points = {}
    for path, first_step in zip(files, (1, 5)):
        version, start, *rest = events(path)
        cases.expect(version[3] == b"brain.Event:2" and (start.get(2), dict(fields(start[7]))) == (first_step, {1: 1}), f"{version} {start}")
        points = {step: values for step, values in points.items() if step < first_step}
        for event in rest:
            values = [dict(fields(value)) for _, value in fields(event[5])]
            points[event[2]] = (struct.unpack("<d", event[1])[0], {value[1].decode(): struct.unpack("<f", value[2])[0] for value in values})
    for row in cases.rows():
        time_of, values = points.pop(row["step"])
        wanted = {key.replace(".", "/"): value for key, value in flat(row).items() if value is not None and key not in ("step", "time")}
        rounded = {key: struct.unpack("<f", struct.pack("<f", value))[0] for key, value in wanted.items()}
        cases.expect((time_of, values) == (row["time"], rounded), f"{time_of} {values}, not {rounded}")
    cases.expect(not points, f"points of steps that the run has not: {points}")


def in_tensorboard(cases):
    """TensorBoard shows one point of each step."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    reader = EventAccumulator(str(cases.folder / "run/tensorboard"))
    reader.Reload()
    for key in ("loss", "val_loss", "seconds/update"):
        shown = [(point.step, point.value) for point in reader.Scalars(key)]
        wanted = [(row["step"], flat(row)[key.replace("/", ".")]) for row in cases.rows()]
        wanted = [(step, struct.unpack("<f", struct.pack("<f", value))[0]) for step, value in wanted if value is not None]
        cases.expect(shown == wanted, f"{key}: {shown}, not {wanted}")
        print(f"{key}: {len(shown)} points in TensorBoard")


def on_a_screen(cases):
    """A finished run once; a running one in a terminal of 80 columns until q, which leaves its files as they are."""
    def files():
        return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in (cases.folder / "run").rglob("*")}

    before = files()
    said = cases.said("watch", "run").splitlines()
    cases.expect(files() == before, "watch changed files of the run")
    row = cases.rows()[-1]
    cases.expect(said[0] == "run: finished" and f"step         {row['step']} of {row['step']}, 100 %" in said, f"{said}")
    cases.expect(any(line.startswith(f"loss         {row['loss']:.4f}, validation ") for line in said), f"{said}")
    cases.expect(any(line.startswith("checkpoint   run/step_") for line in said) and sum("*" in line for line in said) > 2, f"{said}")
    cases.expect(max(map(len, said)) <= 80, f"{said}")
    job = subprocess.Popen([cases.options.kozero, "train", cases.options.deck, *SMALL, "run.dir=long", "run.steps=1000000", "train.eval_every=0"],
                           cwd=cases.folder, stdout=subprocess.DEVNULL)
    leader, follower = pty.openpty()
    try:
        while not (cases.folder / "long/metrics.jsonl").exists():
            time.sleep(0.05)
        watch = subprocess.Popen([cases.options.kozero, "watch", "long", "--every", "0.1"], cwd=cases.folder, stdin=follower, stdout=follower,
                                 stderr=follower, env={**os.environ, "COLUMNS": "80"})
        seen = b""
        begin = time.time()
        while (b"1000000, 0 %" not in seen or b"all on this host live" not in seen or seen.count(b"\x1b[H") < 5) and time.time() < begin + 60:
            if select.select([leader], [], [], 1)[0]:
                seen += os.read(leader, 65536)
        cases.expect(b"long: running" in seen and seen.count(b"\x1b[H") >= 5, seen[-2000:])
        os.write(leader, b"q")
        status = watch.wait(20)
        while select.select([leader], [], [], 0.2)[0]:
            seen += os.read(leader, 65536)
        cases.expect(status == 0 and b"\x1b[?1049l" in seen, f"q: status {status}")
        cases.expect(job.poll() is None, "the run ended")
    finally:
        job.send_signal(signal.SIGKILL)
        job.wait()
    said = cases.said("watch", "long")
    cases.expect("rank 0 (process " in said and "is gone" in said, said)


def resumed(cases):
    """A run that another process resumes from an earlier step, with more steps, and whose file grows beyond its old size between two looks."""
    for name in ("metrics.jsonl", "deck.toml", "log.txt"):
        (cases.folder / "twice").mkdir(exist_ok=True)
        (cases.folder / "twice" / name).write_bytes((cases.folder / "run" / name).read_bytes())
    leader, follower = pty.openpty()
    watch = subprocess.Popen([cases.options.kozero, "watch", "twice", "--every", "0.1"], cwd=cases.folder, stdin=follower, stdout=follower,
                             stderr=follower, env={**os.environ, "COLUMNS": "80"})
    rows = (cases.folder / "twice/metrics.jsonl").read_text().splitlines()
    last = json.loads(rows[-1])["step"]
    (cases.folder / "new.toml").write_text(re.sub(r"(?m)^steps = [0-9]+", f"steps = {10 * last}", (cases.folder / "twice/deck.toml").read_text()))
    (cases.folder / "new").write_text("".join(re.sub(r'"loss":[0-9.]+', '"loss":77.5', line) + "\n" for line in rows + rows))
    seen, replaced, begin = b"", False, time.time()
    while b"loss         77.5" not in seen and time.time() < begin + 30:
        if select.select([leader], [], [], 1)[0]:
            seen += os.read(leader, 65536)
        if not replaced and seen.count(b"\x1b[H") > 2:
            os.rename(cases.folder / "new.toml", cases.folder / "twice/deck.toml")
            os.rename(cases.folder / "new", cases.folder / "twice/metrics.jsonl")
            replaced = True
    os.write(leader, b"q")
    watch.wait(20)
    while select.select([leader], [], [], 0.2)[0]:  # the rest of the frame
        seen += os.read(leader, 65536)
    screen = next((frame.decode() for frame in seen.split(b"\x1b[H") if b"loss         77.5" in frame), "")
    top = re.search(r"([0-9.]+) \|", screen)
    cases.expect(f"of {10 * last}," in screen, f"the new number of steps: {screen}")
    cases.expect(top is not None and float(top[1]) == 77.5 and screen.count("77.5000 |") == 2, f"rows of before: {screen}")


def refusals(cases):
    for arguments, wanted in ((("watch", "absent"), "accepted is the folder of a run"), (("metrics", "absent"), "accepted is the folder of a run"),
                              (("metrics", "run/deck.toml"), "it has no complete row of metrics"),
                              (("metrics", "run/deck.toml", "--csv"), "it has no complete row of metrics")):
        said = cases.said(*arguments, status=3)
        cases.expect(wanted in said and said.count("\n") == 1, f"{arguments}: {said}")
    cases.expect("0.1 to 3600" in cases.said("watch", "run", "--every", "0", status=2), "--every 0")


if __name__ == "__main__":
    sys.exit(cli_cases.main(__doc__, "tensorboard", Cases, [as_csv, in_event_files, on_a_screen, resumed, refusals], [in_tensorboard]))
