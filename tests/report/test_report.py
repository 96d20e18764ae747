# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""test_report.py KOZERO MPIEXEC DECK [FOLDER]: the page of `kozero report`: its verdict, its form, and what it makes of bad input.

The verdict is tested on metrics that this file makes, so that the answer is known; the page also on real runs. Figures
are drawn if gnuplot is there. FOLDER keeps the reports of a sweep and of a run. Exit status 0: all as expected.
"""
import html.parser
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

SMALL = ["model.layers=1", "model.dim=32", "model.heads=2", "model.seq=32", "train.global_batch=8", "train.micro_batch=2",
         "train.eval_every=2", "log.every=1000"]
VOID = {"meta", "link", "br", "hr", "img", "input"}
HAS_GNUPLOT = shutil.which("gnuplot") is not None


class Page(html.parser.HTMLParser):
    """Elements, the verdict and the text of a page; `wrong` lists what is malformed or not accessible."""

    def __init__(self, text):
        super().__init__()
        self.open, self.wrong, self.ids, self.targets, self.levels, self.verdict, self.text = [], [], set(), [], [], "", text
        self.classes, self.counts = [], {}
        self.feed(text)
        self.wrong += [f"not closed: {self.open}"] if self.open else []
        self.wrong += [f"no element {target}" for target in self.targets if target not in self.ids]
        self.wrong += [f"{word} in the page" for word in ("<script", "http:", "https:", "url(//", "@import") if word in text]
        self.wrong += [f"{tag}: {self.counts.get(tag, 0)}" for tag in ("html", "main", "header", "nav", "footer", "h1", "title")
                       if (self.counts.get(tag, 0) != 1 and tag != "title")]
        if any(b - a > 1 for a, b in zip(self.levels, self.levels[1:])):
            self.wrong.append(f"headings {self.levels}")
        if len(text.encode()) > 1_000_000:
            self.wrong.append(f"{len(text.encode())} bytes")

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag not in VOID:
            self.open.append((tag, attrs))
        if "id" in attrs:
            self.wrong += [f"id {attrs['id']} twice"] if attrs["id"] in self.ids else []
            self.ids.add(attrs["id"])
        for key in ("aria-labelledby",):
            self.targets += attrs.get(key, "").split()
        if attrs.get("href", "").startswith("#"):
            self.targets.append(attrs["href"][1:])
        if tag in ("h1", "h2", "h3"):
            self.levels.append(int(tag[1]))
        if tag == "th" and attrs.get("scope") not in ("col", "row"):
            self.wrong.append("th without scope")
        if tag == "svg" and (attrs.get("role") != "img" or "aria-labelledby" not in attrs):
            self.wrong.append("svg without role and label")
        if tag == "html" and attrs.get("lang") != "en":
            self.wrong.append("no language")
        self.classes += attrs.get("class", "").split()

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop()[0] != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data):
        if any(attrs.get("class") == "verdict" for _, attrs in self.open) and data.strip():
            self.verdict += (" " if self.verdict else "") + data.strip()


class Cases:
    def __init__(self, kozero, mpiexec, deck, folder):
        self.program, self.mpiexec, self.deck, self.folder = kozero, mpiexec.split(), deck, folder
        self.wrong = 0

    def expect(self, right, text):
        if not right:
            self.wrong += 1
            print("FAILED:", text)

    def kozero(self, *arguments, ranks=1, status=0, **environment):
        launcher = [*self.mpiexec, "-n", str(ranks)] if ranks > 1 else []
        done = subprocess.run([*launcher, self.program, *arguments], cwd=self.folder, capture_output=True, text=True, check=False,
                              env={**os.environ, **environment})
        self.expect(done.returncode == status, f"{arguments}: status {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
        return done.stdout if status == 0 else done.stderr

    def report(self, *arguments, **environment):
        """The page's facts; its form is checked."""
        facts = json.loads(self.kozero("report", *arguments, "--json", **environment).splitlines()[-1])
        page = Page((self.folder / facts["page"]).read_text())
        self.expect(not page.wrong, f"{arguments}: {page.wrong[:5]}")
        self.expect(page.verdict.strip() == facts["verdict"], f"{page.verdict} is not {facts['verdict']}")
        if HAS_GNUPLOT and not environment:
            self.expect(page.counts.get("svg", 0) == len(facts["figures"]) and (facts["figures"] or facts.get("step") == 0), f"{arguments}: figures {facts['figures']}")
            for name in facts["figures"]:
                file = (self.folder / facts["page"]).parent / name
                xml.etree.ElementTree.parse(file.with_suffix(".svg"))
                self.expect(file.with_suffix(".png").read_bytes().startswith(b"\x89PNG"), f"{name}.png")
        return facts, page


def row(step, loss, step_s=0.1, work=0.08, **other):
    seconds = {"forward_backward": work, "reduce_scatter": 0.0, "all_gather": 0.0, "update": 0.01, "data": 0.0}
    return {"step": step, "tokens": 1000 * step, "loss": loss, "val_loss": None, "grad_norm": 1.0, "lr": 0.001, "step_s": step_s,
            "tokens_per_s": 1000 / step_s, "seconds": seconds, "bytes_sent": {"reduce_scatter": 4_000_000, "all_gather": 2_000_000},
            "memory": {"parameters": 1000}, "time": 1e9 + step * step_s, **other}


def write_run(folder, rows, deck=None, state="finished", ranks=2):
    folder.mkdir(parents=True)
    (folder / "log.txt").write_text("")
    (folder / "status.json").write_text(json.dumps({"state": state, "why": "", "step": len(rows), "exit_status": 0}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    keys = {"run.steps": 4, "model.dim": 8, "zero.stage": 0, "zero.overlap": "true", **(deck or {})}
    text = f"# ranks        {ranks}\n"
    for section in sorted({key.split(".")[0] for key in keys}):
        text += f"\n[{section}]\n" + "".join(f"{key.split('.')[1]} = {value}  # default\n" for key, value in keys.items()
                                             if key.split(".")[0] == section)
    (folder / "deck.toml").write_text(text)


def write_sweep(folder, axes, cases):
    """cases: values, the seconds of a step (None: not run; a text: failed because of it), the losses, a repetition."""
    planned = []
    for number, (values, step_s, losses, repetition) in enumerate(cases):
        identity = f"{number:032x}"
        name = " ".join(f"{key}={value}" for key, value in values.items())
        place = folder / "cases" / identity[20:]
        planned.append({"identity": identity, "name": name, "folder": f"cases/{identity[20:]}", "values": values,
                        "repetition": repetition, "planned": {"bytes_per_rank": 1000, "step_s": None}})
        if step_s is None:
            continue
        place.mkdir(parents=True)
        failed = isinstance(step_s, str)
        if not failed:
            deck = {key: value for key, value in values.items() if "." in key}
            write_run(place / "run", [row(i + 1, loss, step_s) for i, loss in enumerate(losses)], deck)
        end = {"identity": identity, "state": "failed" if failed else "done", "why": step_s if failed else None, "exit_status": int(failed)}
        (place / "case.json").write_text(json.dumps(end))
    (folder / "sweep.json").write_text(json.dumps({"kozero_sweep": 1, "name": "made", "command": "kozero sweep made.toml",
                                                   "started": "2026-01-01T00:00:00Z", "program": {"commit": "abc+changes"},
                                                   "axes": axes, "cases": planned}))


LOSSES = [3.0, 2.5, 2.25, 2.125]


def fastest(cases):
    """Stages of one bandwidth: the winner, by how much; no claim below 5 % with one repetition, nor within the spread."""
    axes = [{"key": "zero.stage", "values": [0, 1, 2]}]
    for name, seconds, words in (("clear", (0.12, 0.1, 0.15), "Stage 1 is fastest (by 20 %)."), ("close", (0.103, 0.1, 0.15), "No choice is clearly fastest.")):
        write_sweep(cases.folder / name, axes, [({"zero.stage": i}, seconds[i], LOSSES, 1) for i in range(3)])
        facts, _ = cases.report(name)
        cases.expect(facts["verdict"].startswith(words), f"{facts['verdict']} does not begin with {words}")
        cases.expect("Losses: 0 bits differ over 3 runs." in facts["verdict"] and "Each case ran once" in facts["verdict"], facts["verdict"])
    repeated = [({"zero.stage": i}, second, LOSSES, 1) for i, second in ((0, 0.1), (0, 0.12), (1, 0.12), (1, 0.12))]
    write_sweep(cases.folder / "repeated", axes, repeated)
    facts, _ = cases.report("repeated")
    cases.expect("No choice is clearly fastest." in facts["verdict"] and "Each case ran 2 times." in facts["verdict"], facts["verdict"])
    cases.expect(facts["repetitions"] == 2, f"{facts}")


def slow_links(cases):
    """The measured limit is interpolated, the predicted one follows the overlap condition, a case that has not run is predicted."""
    axes = [{"key": "zero.stage", "values": [2, 3]}, {"key": "comm.throttle_gbit", "values": [0, 10, 1, 0.1]}]
    seconds = {(2, 0): 0.1, (2, 10): 0.1, (2, 1): 0.121, (2, 0.1): 0.5, (3, 0): 0.1, (3, 10): 0.1, (3, 1): None, (3, 0.1): "no <script>memory</script>"}
    write_sweep(cases.folder / "links", axes, [({"zero.stage": stage, "comm.throttle_gbit": gbit}, step_s, LOSSES, 1)
                                               for (stage, gbit), step_s in seconds.items()])
    facts, page = cases.report("links")
    stage2 = next(links for links in facts["slow_links"] if links["choice"] == "stage 2")
    cases.expect(abs(stage2["measured_gbit"] / 10**0.5 - 1) < 1e-6, f"limit {stage2['measured_gbit']}, not {10**0.5}")  # 1.1**2 = 1.21
    # 2/3 of 80 ms hide 32 Mbit; 16 Mbit are seen: 0.1 + 16e6/B = 0.11 where B = 1.6e9, and 32e6/B < 53 ms
    cases.expect(abs(stage2["predicted_gbit"] - 1.6) < 1e-6, f"predicted {stage2['predicted_gbit']}, not 1.6")
    cases.expect(abs(stage2["loss_there"] - 0.8) < 1e-9 and stage2["slowest_gbit"] == 0.1, f"{stage2}")
    words = ("A step is 10 % longer than without a limit: stage 2 below 3.2 Gbit/s (80 % of its rate lost at 0.1 Gbit/s), "
             "stage 3 at no measured rate, down to 10 Gbit/s.")
    cases.expect(words in facts["verdict"], facts["verdict"])
    # The page says which prediction is too low; the verdict does not repeat it. Without a limit comes first.
    cases.expect("predict" not in facts["verdict"] and "for models of few blocks the predicted rates are too low" in page.text, facts["verdict"])
    heads = page.text.split("<th scope=\"row\">stage 2</th>")[0].split("<th scope=\"col\">")[-4:]
    cases.expect([head.split("<")[0] for head in heads] == ["no limit", "0.1 Gbit/s", "1 Gbit/s", "10 Gbit/s"], f"{heads}")
    # stage 3 hides 48 Mbit behind 80 ms, so it has no such limit above 48e6/90e6 Gbit/s, and no crossing was measured
    cases.expect(all(links["against"] is None for links in facts["slow_links"]), f"{facts['slow_links']}")
    cases.expect("1 of 8 cases failed, 1 of 8 cases have not run." in facts["verdict"], facts["verdict"])
    cases.expect(page.classes.count("predicted") == 1, f"predicted cells {page.classes.count('predicted')}")
    one = next(found for found in facts["fastest"] if found["where"] == {"comm.throttle_gbit": "1"})
    # stage 3 hides 48 Mbit behind 80 ms: at 1 Gbit/s its step stays 0.1 s
    cases.expect(one["value"] == "3" and one["predicted"] and abs(one["lead"] - 0.21) < 1e-6, f"{one}")
    cases.expect("no &lt;script&gt;memory" in page.text and "with uncommitted changes" in page.text and "kozero sweep made.toml" in page.text, "facts of the page")


def crossing(cases):
    """Where stage 3 becomes slower than stage 2, by interpolation; by the rule, from latency and without prefetching; the room for states."""
    axes = [{"key": "zero.stage", "values": [2, 3]}, {"key": "comm.throttle_gbit", "values": [0, 10, 1]}]
    seconds = {(2, 0): 0.1, (2, 10): 0.1, (2, 1): 0.2, (3, 0): 0.1, (3, 10): 0.1, (3, 1): 0.242}
    write_sweep(cases.folder / "crossing", axes, [({"zero.stage": stage, "comm.throttle_gbit": gbit, "zero.prefetch_units": 0, "comm.latency_us": 50}, step_s, LOSSES, 1)
                                                  for (stage, gbit), step_s in seconds.items()])
    for path in (cases.folder / "crossing").rglob("metrics.jsonl"):  # 1.6 and 4 MB per rank, of a model of 100,000 parameters
        three = "stage = 3" in (path.parent / "deck.toml").read_text()
        rows = [{**json.loads(line), "memory": {"parameters": 4e5 / (2 if three else 1), "gradients": 2e5, "optimizer": 4e5},
                 "calls": {"reduce_scatter": 10, "all_gather": 40 if three else 20}} for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
        (path.parent / "log.txt").write_text("model        gpt2, 2 layers, vocabulary 100: 0.10 M parameters in 3 units\n")
    sweep = json.loads((cases.folder / "crossing/sweep.json").read_text())
    (cases.folder / "crossing/sweep.json").write_text(json.dumps({**sweep, "program": {"free_memory": "20.0 MB"}}))
    facts, page = cases.report("crossing")
    one = next(links for links in facts["slow_links"] if links["against"])
    cases.expect(one["choice"] == "stage 3" and one["against"] == "stage 2" and abs(one["measured_gbit"] / 10**0.5 - 1) < 1e-6, f"{one}")  # 1.1**2 = 1.21
    cases.expect("Stage 3 takes at least 10 % longer than stage 2 below 3.2 Gbit/s" in facts["verdict"], facts["verdict"])
    cases.expect("stage 3 against stage 2" in page.text, "no row of the crossing")
    verdict = page.text.split("class=\"verdict\"")[1].split("</div>")[0]
    cases.expect(verdict.count("<p>") == 1 and verdict.count("<li>") == len(facts["verdict"].split(". ")) - 1, verdict)
    # 32 Mbit and 10 calls are hidden behind 53 ms, 16 Mbit and 20 calls of 50 us are not: 0.1 + 1e-3 + 16e6/B = 0.11 at B = 16e6/9e-3
    stage2 = next(links for links in facts["slow_links"] if links["choice"] == "stage 2" and not links["against"])
    cases.expect(abs(stage2["predicted_gbit"] / (0.016 / 0.009) - 1) < 1e-6, f"{stage2}")
    # 10 MB per rank: 1 MB of states per 100,000 parameters in stage 2, 0.8 in stage 3
    cases.expect(facts["parameters_with_room"] == {"2": 1e6, "3": 1.25e6}, f"{facts['parameters_with_room']}")
    cases.expect("By model states alone, 2 ranks with 9.5 MiB each need stage 3 above 1.00 M parameters." in facts["verdict"], facts["verdict"])


def reasons(cases):
    """Why a choice is fastest, if communication explains it; a slow case between faster ones has a mark."""
    axes = [{"key": "zero.stage", "values": [2, 3]}, {"key": "comm.throttle_gbit", "values": [0, 10, 1]}]
    seconds = {(2, 0): 0.1, (2, 10): 0.1, (2, 1): 0.2, (3, 0): 0.1, (3, 10): 0.12, (3, 1): 0.1}
    write_sweep(cases.folder / "reasons", axes, [({"zero.stage": stage, "comm.throttle_gbit": gbit}, step_s, LOSSES, 1)
                                                 for (stage, gbit), step_s in seconds.items()])
    for path in (cases.folder / "reasons").rglob("metrics.jsonl"):
        deck = (path.parent / "deck.toml").read_text()
        three, slow = "stage = 3" in deck, "throttle_gbit = 1 " in deck
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for one in rows:
            one["seconds"]["all_gather"] = 0.02 if three or not slow else 0.12
            one["bytes_sent"]["all_gather"] = 4_194_304 if three else 2_097_152
            one["bytes_sent"]["reduce_scatter"] = 2_097_152
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    facts, page = cases.report("reasons")
    words = ("At 1 Gbit/s, stage 3 waits 20.0 ms per step for 6.0 MiB that it sends, stage 2 120.0 ms for 4.0 MiB: "
             "it sends more, but hides more of it behind computation.")
    cases.expect(words in facts["verdict"], facts["verdict"])
    cases.expect(page.text.count(" *</td>") + page.text.count(" * ") == 1, "the mark of one late case")


def preempted(cases):
    """A run that a signal stopped has a rate in all parts of the page."""
    write_run(cases.folder / "p/whole", [row(i + 1, loss) for i, loss in enumerate(LOSSES)], {"optim.lr": 0.5})
    write_run(cases.folder / "p/stopped", [row(i + 1, loss, 0.2) for i, loss in enumerate(LOSSES)], {"optim.lr": 0.25}, state="preempted")
    facts, page = cases.report("p/whole", "p/stopped", "--out", "p/report")
    cases.expect("have a rate; none" not in facts["verdict"] and "1 of 2 cases preempted." in facts["verdict"], facts["verdict"])
    cases.expect(page.text.count(">5.00 k") >= 2, "its rate in the map and in the table of all cases")
    write_run(cases.folder / "p/alone", [row(i + 1, loss) for i, loss in enumerate(LOSSES)], {"optim.lr": 0.25}, state="preempted")
    (cases.folder / "p/alone/deck.toml").write_text((cases.folder / "p/stopped/deck.toml").read_text())
    facts, _ = cases.report("p/stopped", "p/alone", "--out", "p/report")
    cases.expect("2 of 2 cases have a rate; none can be compared" in facts["verdict"], facts["verdict"])


def older_figures(cases):
    """A report over an older one leaves no figure of it; files that the report did not make stay."""
    write_run(cases.folder / "older", [row(i + 1, loss) for i, loss in enumerate(LOSSES)])
    cases.report("older")
    folder = cases.folder / "older/report"
    before = {path.name for path in folder.iterdir()}
    (folder / "mine.png").write_text("mine")
    (cases.folder / "older/metrics.jsonl").write_text("")
    facts, _ = cases.report("older")
    after = {path.name for path in folder.iterdir()}
    cases.expect(after == {"index.html", "mine.png"} and (len(before) > 2 or not HAS_GNUPLOT), f"{before}, then {after}")


def losses(cases):
    """Runs of equal decks are compared bit by bit; the first different step is named; other decks are not compared."""
    write_run(cases.folder / "l/a", [row(i + 1, loss) for i, loss in enumerate(LOSSES)])
    write_run(cases.folder / "l/b", [row(i + 1, loss + (4.5e-16 if i == 2 else 0)) for i, loss in enumerate(LOSSES)], {"zero.stage": 1})
    write_run(cases.folder / "l/c", [row(i + 1, 9.0) for i in range(4)], {"model.dim": 16})
    facts, _ = cases.report("l/a", "l/b", "l/c", "--out", "l/report")
    cases.expect(facts["losses"] == [{"runs": 2, "differ": 1, "first_step": 3}], f"{facts['losses']}")
    cases.expect("1 of 2 runs differ, first at step 3 (l/b)" in facts["verdict"], facts["verdict"])
    (cases.folder / "l/b/metrics.jsonl").write_text((cases.folder / "l/a/metrics.jsonl").read_text())
    facts, _ = cases.report("l/a", "l/b", "l/c", "--out", "l/report")
    cases.expect("Losses: 0 bits differ over 2 runs." in facts["verdict"], facts["verdict"])
    # A batch that grows with the ranks gives other losses; the lowest loss on validation data is named.
    for ranks, loss in ((2, 3.0), (4, 2.0)):
        rows = [row(i + 1, loss) for i in range(4)]
        write_run(cases.folder / f"scaled/{ranks}", [*rows[:3], {**rows[3], "val_loss": loss + 0.5}], {"train.batch_scaling": '"linear"'}, ranks=ranks)
    facts, _ = cases.report("scaled/2", "scaled/4", "--out", "scaled/report")
    cases.expect("bits differ" not in facts["verdict"] and "runs differ" not in facts["verdict"] and "The lowest validation loss is 2.5000 (scaled/4)." in facts["verdict"], facts["verdict"])
    for seed in range(30):
        for name in ("one", "two"):
            write_run(cases.folder / f"groups/{seed}{name}", [row(i + 1, loss) for i, loss in enumerate(LOSSES)], {"run.seed": seed})
    facts, page = cases.report(*(str(path.relative_to(cases.folder)) for path in sorted((cases.folder / "groups").iterdir())))
    words = "Losses: 0 bits differ over 60 runs, each compared within one of 30 groups of equal decks."
    cases.expect(words in facts["verdict"] and page.text.count("0 bits differ") == 21, facts["verdict"])


def real_runs(cases):
    """A finished run alone, and beside one of another stage on 2 ranks: equal losses; the sample and checkpoints are shown."""
    cases.kozero("train", cases.deck, *SMALL, "run.steps=6", "run.dir=one", "checkpoint.every=3")
    cases.kozero("train", cases.deck, *SMALL, "run.steps=6", "run.dir=two", "zero.stage=3", ranks=2)
    facts, page = cases.report("one")
    newest = json.loads((cases.folder / "one/metrics.jsonl").read_text().splitlines()[-1])
    cases.expect(facts["verdict"].startswith("The run finished at step 6 of 6.") and f"{newest['loss']:.4f}" in facts["verdict"], facts["verdict"])
    cases.expect(facts["loss"] == newest["loss"] and facts["val_loss"] == newest["val_loss"], f"{facts}")
    for word in ("step_000000003", "Sample text", "all arrays, planned", "To repeat", "(clean)" if "+changes" not in (cases.folder / "one/deck.toml").read_text() else "uncommitted"):
        cases.expect(word in page.text, f"no {word}")
    facts, _ = cases.report("one", "two", "--out", "both")
    cases.expect("Losses: 0 bits differ over 2 runs." in facts["verdict"], facts["verdict"])
    cases.report("one")  # over its own report


def bad_input(cases):
    """A page or one line, and no foreign file is touched."""
    folder = cases.folder
    (folder / "empty").mkdir()
    said = cases.kozero("report", "empty", status=3)
    cases.expect("not a run" in said and len(said.splitlines()) == 1, said)
    cases.expect("no such folder" in cases.kozero("report", "nothing", status=3), "a folder that is not there")
    cases.kozero("report", status=2)
    write_run(folder / "none", [], state="running")
    facts, _ = cases.report("none")
    cases.expect(facts["verdict"] == "The run has no step yet.", facts["verdict"])
    write_run(folder / "nan", [row(1, 3.0), row(2, None), row(3, None)], state="failed")
    with (folder / "nan/metrics.jsonl").open("a") as file:
        file.write('{"step":4,"loss":1.0,"tok')
    (folder / "nan/status.json").write_text('{"state":"failed","why":"<b>loss</b> & \\u0007 NaN","step":3,"exit_st')
    (folder / "nan/deck.toml").write_text("[zero\nstage = = 3\n\xff<script>alert(1)</script> = 1\n")
    facts, page = cases.report("nan")
    cases.expect("In 2 steps the loss was not finite, first at step 2." in facts["verdict"] and facts["step"] == 3, facts["verdict"])
    (folder / "foreign").mkdir()
    (folder / "foreign/index.html").write_text("mine")
    cases.expect("other files" in cases.kozero("report", "nan", "--out", "foreign", status=4), "a foreign folder")
    cases.expect((folder / "foreign/index.html").read_text() == "mine" and len(list((folder / "foreign").iterdir())) == 1, "foreign files")
    for text in ("{", '{"kozero_sweep":2}', '{"kozero_sweep":"x","axes":[],"cases":[]}', '{"kozero_sweep":1,"axes":[],"cases":[{}]}', '{"kozero_sweep":1,"axes":[],"cases":[]}'):
        shutil.rmtree(folder / "sweep", ignore_errors=True)
        (folder / "sweep").mkdir()
        (folder / "sweep/sweep.json").write_text(text)
        said = cases.kozero("report", "sweep", status=3)
        cases.expect("sweep.json" in said and len(said.splitlines()) == 1 and not (folder / "sweep/report").exists(), f"{text}: {said}")
    (folder / "few").mkdir()
    (folder / "few/metrics.jsonl").write_text('{"step":1,"loss":3}\n{"step":2,"loss":2}\n')
    facts, _ = cases.report("few")
    cases.expect(facts["step"] == 2 and facts["loss"] == 2, f"{facts}")
    cases.expect(facts["verdict"].startswith("The run's metrics end at step 2 (no status is known)."), facts["verdict"])
    words = [{"key": "ranks", "values": ["a", "b"]}, {"key": "zero.stage", "values": [1, 2]}, {"key": "comm.throttle_gbit", "values": ["x", 0]}]
    write_sweep(folder / "words", words, [({"ranks": "a", "zero.stage": i, "comm.throttle_gbit": "x"}, 0.1, LOSSES, 1) for i in (1, 2)])
    cases.report("words")
    write_run(folder / "bare", [row(1, 3.0), row(2, 2.0)])
    facts, page = cases.report("bare", PATH=str(folder / "empty"))
    cases.expect(facts["figures"] == [] and "gnuplot" in page.text, "without gnuplot")


def long_run(cases):
    """Memory does not grow with the number of rows; the curve keeps an outlier."""
    write_run(cases.folder / "long", [])
    line = json.dumps(row(1, 3.0))
    with (cases.folder / "long/metrics.jsonl").open("w") as file:
        for step in range(1, 200_001):
            file.write(line.replace('"step": 1,', f'"step": {step},').replace('"loss": 3.0', '"loss": 77.5' if step == 123_457 else '"loss": 3.0') + "\n")
    done = subprocess.Popen([cases.program, "report", "long"], cwd=cases.folder, stdout=subprocess.PIPE)
    done.stdout.read()
    _, status, usage = os.wait4(done.pid, 0)
    cases.expect(status == 0 and usage.ru_maxrss < 150_000, f"status {status}, {usage.ru_maxrss} KiB")
    page = (cases.folder / "long/report/index.html").read_text()
    cases.expect(len(page) < 1_000_000, f"{len(page)} bytes")
    if HAS_GNUPLOT:
        cases.expect("80" in page.split('id="loss_steps-title"')[1].split("</svg>")[0], "no outlier in the curve")


def foreign_values(cases):
    """Values of a folder from elsewhere are text for gnuplot, never commands. Batches that follow the ranks are not compared."""
    trap = f"system('touch {cases.folder}/ran')"
    for number, value in enumerate((f"x\nend_of_data\n{trap}\n", f"1' 1); {trap} ; set xtics ('1", f"'.{trap}.'", f"`touch {cases.folder}/ran`")):
        axes = [{"key": "zero.stage", "values": [0, 1]}, {"key": "comm.throttle_gbit", "values": [0, value]}, {"key": "ranks", "values": [2, value]}]
        write_sweep(cases.folder / f"foreign{number}", axes, [({"zero.stage": stage, "comm.throttle_gbit": link, "ranks": ranks}, 0.1, LOSSES, 1)
                                                              for stage in (0, 1) for link in (0, value) for ranks in (2, value)])
        for deck in (cases.folder / f"foreign{number}").rglob("deck.toml"):
            deck.write_text(deck.read_text().replace(value, json.dumps(value)))
        cases.report(f"foreign{number}")
        cases.expect(not (cases.folder / "ran").exists(), f"gnuplot ran a command in {value!r}")
    for ranks in (1, 2):
        write_run(cases.folder / f"batch{ranks}", [row(i + 1, loss + ranks) for i, loss in enumerate(LOSSES)], {"train.accumulate": 2})
        deck = cases.folder / f"batch{ranks}/deck.toml"
        deck.write_text(deck.read_text().replace("# ranks        2", f"# ranks        {ranks}"))
    facts, _ = cases.report("batch1", "batch2", "--out", "batches")
    cases.expect(facts["losses"] == [], f"{facts['losses']}")


def main():
    with tempfile.TemporaryDirectory() as name:
        cases = Cases(*sys.argv[1:4], pathlib.Path(name))
        for case in (fastest, slow_links, crossing, reasons, preempted, older_figures, losses, real_runs, bad_input, foreign_values, long_run):
            before = cases.wrong
            case(cases)
            print(f"{case.__name__}: {cases.wrong - before} wrong")
        for kept in ("links", "one") if len(sys.argv) > 4 else ():
            shutil.copytree(cases.folder / kept / "report", pathlib.Path(sys.argv[4]) / kept, dirs_exist_ok=True)
    return 1 if cases.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
