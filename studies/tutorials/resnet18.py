"""Two models, each tuned by one command, killed on the way, and compared with PyTorch: ResNet-18, and a BERT block.

    python studies/tutorials/resnet18.py [--trials 1000] [--kills 5] [--models NAME ...] [--out DIR]

Read this script from top to bottom. It runs the command line, so every line that begins with ``$`` can be repeated in a
terminal. The models are in ``models.py``, with random weights; nothing is downloaded. PyTorch is optional (``pip
install torch``). The full size takes about an hour on two cores.
"""

# %% Options
from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import models

from searchlab.machine.host import available_cores

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--trials", type=int, default=1000, help="number of trials for the first model (1000)")
parser.add_argument("--batch", type=int, default=8, help="number of trials in a round (8)")
parser.add_argument("--kills", type=int, default=5, help="number of times to kill the search for ResNet-18 (5)")
parser.add_argument("--file", type=Path, default=Path(models.__file__), help="file that contains the models")
parser.add_argument("--models", nargs="+", default=["resnet18", "transformer"], help="functions in that file")
parser.add_argument("--out", type=Path, default=Path("results/tutorials"), help="directory for logs and libraries")
args = parser.parse_args()
studies = Path(models.__file__).parents[1]
benchmark = studies / "benchmarks" / "end_to_end.py"
threads = available_cores()  # as many as the trials use
environment = {**os.environ, "COLUMNS": "118"}


def run(*words: str, kill_at: int = 0, counting: Path | None = None) -> None:
    """Run a command, and kill it when it has done ``kill_at`` trials; ``counting`` is the directory of its logs."""
    print("$", *(word.replace(f"{studies}", "studies") for word in words), flush=True)
    command = [sys.executable, *words[1:]] if words[0] == "python" else [sys.executable, "-m", *words]
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    while kill_at and process.poll() is None:
        if counting is not None and (trials := trials_in(counting)) >= kill_at:
            os.killpg(process.pid, signal.SIGKILL)
            print(f"killed after {trials} trials", flush=True)
            kill_at = 0
        time.sleep(0.1)
    if process.wait() not in (0, -signal.SIGKILL):
        sys.exit(f"{words[0]} failed")


def trials_in(logs: Path) -> int:
    """Return the number of trials in a directory's logs, which contain a line for each trial."""
    return sum(path.read_bytes().count(b'{"kind":"trial"') for path in logs.glob("*.jsonl"))


def tune(name: str, trials: int, *options: str, kills: int = 0) -> None:
    """Tune a model, and kill the search several times; repeating the command continues it."""
    out = args.out / name
    words = ["searchlab", "model", "tune", f"{args.file}:{name}", "--trials", str(trials)]
    words += ["--batch", str(args.batch), *options, "--out", str(out)]
    began = time.perf_counter()
    for number in range(kills):
        run(*words, kill_at=trials * (number + 1) // (kills + 1), counting=out / "tasks")
    run(*words)
    print(f"{trials_in(out / 'tasks')} trials took {(time.perf_counter() - began) / 60:.1f} minutes", flush=True)


def compare(name: str) -> None:
    """Run the exported library beside PyTorch, with the same weights and number of threads."""
    if importlib.util.find_spec("torch") is None or name not in ("resnet18", "transformer"):
        print("PyTorch is not installed or has no such model, so there is no comparison", flush=True)
        return
    library = args.out / name / "model.so"
    run("python", str(benchmark), name, "--library", str(library), "--threads", str(threads), "--peers", "pytorch")


# %% The tasks of ResNet-18
# TVM lowers and fuses the model. Each distinct function is a task. A convolution is fused with the operations that
# follow it: bias, the sum of a residual block (`:add`), and ReLU.
first, *other_models = args.models
run("searchlab", "model", "tasks", f"{args.file}:{first}")

# %% One command
# The command is killed five times with SIGKILL. Each time, it is repeated and continues: it repeats the decisions of
# the scheduler from the logs, in seconds, and measures nothing twice. At the end, it compares the outputs of the tuned
# model with those of the untuned one, times both in turn, and exports the tuned model. Winograd's algorithm is allowed
# for 3x3 convolutions; without this option, the command is shorter, and the model slower.
spaces = ["guided-conv2d,winograd=true", "guided-gemm", "sketch"]
tune(first, args.trials, *(word for space in spaces for word in ("--space", space)), kills=args.kills)

# %% Beside PyTorch
# The library is loaded with TVM alone. PyTorch has the same weights and the same number of threads; the two take turns,
# each in its own process.
compare(first)

# %% A block of BERT
# The same for a block of a transformer, with attention and two layers, for 128 tokens. It has fewer tasks, and gets
# half as many trials.
for name in other_models:
    run("searchlab", "model", "tasks", f"{args.file}:{name}")
    tune(name, args.trials // 2)
    compare(name)
