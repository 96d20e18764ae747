# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""test_timeline.py KOZERO MPIEXEC DECK [--hta]: timelines that runs record, and what `kozero timeline` says of them.

The numbers are computed again from the files, microsecond by microsecond. With --hta, Holistic Trace Analysis (a package
of the Python that runs this file) loads a timeline, and its overlap must be the same. Exit status 0: all as expected.
"""
import collections
import json
import sys

import cli_cases

SMALL = ["model.layers=2", "model.dim=32", "model.heads=2", "model.seq=32", "train.global_batch=8", "train.micro_batch=2",
         "train.eval_every=4", "checkpoint.every=4", "optim.warmup_steps=0", "optim.schedule=constant", "log.every=1000"]


class Cases(cli_cases.Cases):
    def said(self, *arguments, **how):
        return "".join(self.kozero(*arguments, **how))

    def train(self, name, *keys, ranks=2):
        said = self.said("train", self.options.deck, *SMALL, f"run.dir={name}", *keys, ranks=ranks)
        rows = [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]
        return said, [(row["loss"], row["grad_norm"]) for row in rows]

    def summary(self, path):
        return json.loads(next(line for line in self.said("timeline", path, "--json").splitlines() if line.startswith("{")))

    def read(self, name, step, rank):
        return json.loads((self.folder / name / "timeline" / f"step_{step:09}" / f"rank_{rank}.json").read_text())


def slices(trace):
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def covered(events):
    return set().union(*[range(event["ts"], event["ts"] + event["dur"]) for event in events]) if events else set()


def check_rows(cases, trace):
    """Slices of a row nest, as viewers need it; every row has a name."""
    rows = collections.defaultdict(list)
    for event in slices(trace):
        rows[event["tid"]].append(event)
    named = {event["tid"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    cases.expect(set(rows) <= named, f"rows {set(rows)}, names for {named}")
    for row, events in rows.items():
        ends = []
        for event in sorted(events, key=lambda each: (each["ts"], -each["dur"])):
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            cases.expect(not ends or event["ts"] + event["dur"] <= ends[-1], f"row {row}: {event} reaches out of another slice")
            ends.append(event["ts"] + event["dur"])


def check_numbers(cases, trace, row):
    """The command's numbers are those of the file."""
    kernels = covered([event for event in slices(trace) if event["cat"] == "kernel" and event["name"].startswith("kozero::")
                       or event["name"] == "copy"])
    collectives = covered([event for event in slices(trace) if event["name"].startswith("ncclKernel")])
    calls = covered([event for event in slices(trace) if event["cat"] == "cpu_op"])
    steps = covered([event for event in slices(trace) if event["name"].startswith("ProfilerStep")])
    for key, wanted in (("span_us", steps), ("kernels_us", kernels), ("collectives_us", collectives),
                        ("overlapped_us", collectives & kernels), ("exposed_us", calls - kernels)):
        cases.expect(row[key] == len(wanted), f"{key}: {row[key]}, and {len(wanted)} in the file")
    cases.expect(row["overlap"] == len(collectives & kernels) / len(collectives), f"overlap {row['overlap']}")


def check_collectives(cases, trace):
    """Each collective lasts from its start to the end of the first wait for it."""
    calls = {}
    for event in slices(trace):
        if event["name"].startswith(("start ", "wait for ")):
            calls.setdefault(event["args"]["number"], []).append(event)
    for event in slices(trace):
        if event["name"].startswith("ncclKernel"):
            start, wait = calls[event["args"]["number"]][:2]
            right = start["name"].startswith("start ") and (event["ts"], event["ts"] + event["dur"]) == (start["ts"], wait["ts"] + wait["dur"])
            cases.expect(right, f"{event} of {start} and {wait}")


def recorded(cases):
    """All ranks, steps 4 and 5 with an evaluation and a save; the run has the bits of one that records nothing."""
    _, plain = cases.train("plain", "run.steps=6", "zero.stage=3")
    _, losses = cases.train("run", "run.steps=6", "zero.stage=3", "log.timeline=all", "log.timeline_from=4")
    cases.expect(losses == plain, f"other losses with a timeline: {losses}, not {plain}")
    summary = cases.summary("run")
    cases.expect((summary["steps"], summary["backend"], len(summary["ranks"])) == ([4, 5], "shm", 2), f"{summary}")
    for rank in range(2):
        trace = cases.read("run", 4, rank)
        cases.expect(trace["distributedInfo"] == {"backend": "shm", "rank": rank, "world_size": 2}, f"{trace['distributedInfo']}")
        check_rows(cases, trace)
        check_collectives(cases, trace)
        check_numbers(cases, trace, summary["ranks"][rank])
        names = collections.Counter(event["name"] for event in slices(trace))
        cases.expect(names["ProfilerStep#4"] == names["ProfilerStep#5"] == 1, f"steps: {names}")
        cases.expect(names["evaluation"] == names["saving"] == names["update"] // 2 == 1, f"phases: {names}")
        for collective in ("all_gather", "reduce_scatter"):
            started = names[f"start {collective}"]
            cases.expect(started == names[f"ncclKernel {collective} (shm)"] > 4, f"{collective}: {names}")
            cases.expect(names[f"wait for {collective}"] >= started, f"waits for {collective}: {names}")
        cases.expect(any(name.startswith("kozero::matmul") for name in names), f"no product: {names}")
    table = cases.said("timeline", "run", "--top", "1")
    slowest = max(summary["ranks"], key=lambda row: row["kernels_us"])
    cases.expect(f"slowest      rank {slowest['rank']} on " in table, table)
    cases.expect(table.count("kozero::") == 1 and summary["operations"][0]["operation"] in table, table)


def made(cases):
    """A file with kernels that run during calls, as on a GPU."""
    def event(category, name, begin, end, **arguments):
        return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 1, "ts": begin, "dur": end - begin, "args": arguments}
    events = [event("user_annotation", "ProfilerStep#7", 0, 40), event("kernel", "kozero::a", 0, 10), event("kernel", "kozero::b", 18, 30),
              event("kernel", "ncclKernel x", 5, 20, **{"Collective name": "x"}), event("kernel", "ncclKernel x", 15, 25, **{"Collective name": "x"}),
              event("cpu_op", "wait for x", 8, 22), event("cpu_op", "part of a call", 9, 12)]
    (cases.folder / "made").mkdir()
    (cases.folder / "made/rank_0.json").write_text(json.dumps({"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1}, "host": "h",
                                                               "steps": [7, 7], "lost": 0, "traceEvents": events}))
    row = cases.summary("made")["ranks"][0]
    # Collectives: 5 to 25, of which 5 to 10 and 18 to 25 beside kernels. Calls: 8 to 22, of which 10 to 18 without one.
    wanted = {"span_us": 40, "kernels_us": 22, "collectives_us": 20, "overlapped_us": 12, "exposed_us": 8, "overlap": 0.6}
    cases.expect({key: row[key] for key in wanted} == wanted, f"{row}, not {wanted}")


def other_runs(cases):
    """One rank's file of two; a resumed run records its third step; a run that ends early has what it recorded."""
    cases.train("first", "run.steps=4", "log.timeline=rank0")
    cases.expect(sorted(path.name for path in (cases.folder / "first/timeline/step_000000003").iterdir()) == ["rank_0.json"], "rank0")
    cases.train("first", "run.steps=9", "log.timeline=all", "checkpoint.resume=auto", ranks=1)
    summary = cases.summary("first")
    cases.expect((summary["steps"], len(summary["ranks"]), summary["ranks"][0]["collectives_us"]) == ([7, 8], 1, 0), f"{summary}")
    cases.expect("timeline" in cases.said("timeline", "first/timeline/step_000000003"), "the older timeline")
    cases.train("short", "run.steps=5", "log.timeline=all", "log.timeline_from=4", "log.timeline_steps=50", ranks=1)
    cases.expect(cases.summary("short")["steps"] == [4, 5], "a run of fewer steps")


def refusals(cases):
    """Each mistake: one line and its status."""
    cases.train("none", "run.steps=1", ranks=1)
    for path, said in (("none", "none: the run has no timeline; log.timeline=rank0 or log.timeline=all records one"),
                       ("absent", "absent: accepted is the folder of a run, or of one timeline in it, with rank_0.json")):
        cases.expect(said in cases.said("timeline", path, status=3), f"{path}: not: {said}")
    broken = cases.folder / "broken"
    broken.mkdir()
    for text in ("{", "[]", '{"distributedInfo": {"rank": 0}}', ""):
        (broken / "rank_0.json").write_text(text)
        said = cases.said("timeline", "broken", status=3)
        cases.expect("broken/rank_0.json: not a timeline that this program wrote" in said and said.count("\n") == 1, f"{text}: {said}")
    said = cases.said("train", cases.options.deck, "log.timeline=rank1", status=2)
    cases.expect("log.timeline" in said and "none" in said and "rank0" in said, said)


def same_in_hta(cases):
    """Holistic Trace Analysis computes the same overlap."""
    import logging
    logging.disable(logging.CRITICAL)
    from hta.trace_analysis import TraceAnalysis
    for backend in ("shm", "mpi"):
        cases.train(backend, "run.steps=6", "zero.stage=3", "log.timeline=all", "log.timeline_steps=3", f"comm.backend={backend}")
        folder = cases.folder / backend / "timeline/step_000000003"
        theirs = TraceAnalysis(trace_dir=str(folder), include_last_profiler_step=True).get_comm_comp_overlap(visualize=False)
        for row in cases.summary(backend)["ranks"]:
            percent = float(theirs[theirs["rank"] == row["rank"]]["comp_comm_overlap_pctg"].iloc[0])
            print(f"{backend}, rank {row['rank']}: overlap {100 * row['overlap']:.2f} %, in Holistic Trace Analysis {percent:.2f} %")
            cases.expect(abs(percent - 100 * row["overlap"]) < 0.01, "another overlap")


if __name__ == "__main__":
    sys.exit(cli_cases.main(__doc__, "hta", Cases, [recorded, made, other_runs, refusals], [same_in_hta]))
