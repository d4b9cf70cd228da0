"""A tuned function back in its model: a two-layer MLP whose ``linear0`` is tuned, replaced, and timed again.

    python studies/tutorials/mlp.py [--small] [--images DIR] [--batch 1] [--trials 64] [--space NAME] [--policy NAME]

Read this script from top to bottom, or run it cell by cell in an editor that supports ``# %%``. The model comes from
the course on machine learning compilation (mlc.ai, "End to End Model Execution"): 784 pixels of an image, 128 hidden
units, 10 classes. It is trained here in seconds, on the digits of scikit-learn, enlarged; nothing is downloaded. If you
have the files of Fashion-MNIST, name their directory with ``--images``. The first layer, which does nearly all of the
work, is tuned and put back in two ways: by ``searchlab.apply_history_best``, and by TVM's own pass from a MetaSchedule
database. It is also put into a model whose other functions come from a library.

The full size takes 18 s. On two idle cores of an AMD EPYC (Zen 5), it printed::

    linear0 is gemm:1x128x784:bias: the best of 64 trials takes 1.68 us
    as it was: tuned are none of the model's functions
    apply_history_best: tuned are linear0 of the model's functions
    MetaScheduleApplyDatabase: tuned are linear0 of the model's functions
    as it was: 96.5% of 512 images right, the first are 2 8 2 6 6 7 1 9 8 5
    apply_history_best: 96.5% of 512 images right, the first are 2 8 2 6 6 7 1 9 8 5
    MetaScheduleApplyDatabase: 96.5% of 512 images right, the first are 2 8 2 6 6 7 1 9 8 5
    as it was: the model takes 109.68 us, linear0 alone 103.73 us
    apply_history_best: the model takes 4.66 us, linear0 alone 1.85 us
    MetaScheduleApplyDatabase: the model takes 4.52 us, linear0 alone 1.96 us

With ``--batch 16`` the model took 1468 us before, and 20 us after.
"""

# %% Imports and options
from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from images import draw, load_images
from sklearn.neural_network import MLPClassifier
from tvm import relax, topi

import searchlab
from searchlab.exchange.exports import export_logs

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--small", action="store_true", help="only 6 trials and short measurements, which takes seconds")
parser.add_argument("--images", type=Path, help="directory with the four files of Fashion-MNIST or MNIST")
parser.add_argument("--batch", type=int, default=1, help="number of images per batch (1)")
parser.add_argument("--trials", type=int, help="number of trials for linear0 (64; 6 with --small)")
parser.add_argument("--space", default="sketch")
parser.add_argument("--policy", default="evolutionary-model")
parser.add_argument("--out", type=Path, default=Path("results/tutorials"), help="directory for the log")
args = parser.parse_args([] if "ipykernel" in sys.modules else None)
trials = (6 if args.small else 64) if args.trials is None else args.trials
pixels, hidden, classes = 784, 128, 10
target = searchlab.resolve_target("native")
# TVM would use half of the logical cores, so it is told to use those with which trials are measured.
os.environ.setdefault("TVM_NUM_THREADS", str(target.cores))

# %% Train it
# By default, the data are 1,797 digits of 8x8 pixels, enlarged to 28x28.
train, of_train, test, of_test, names = load_images(args.images)
trained = MLPClassifier((hidden,), tol=0.01, random_state=0).fit(train, of_train)
w0, w1 = (weights.astype("float32") for weights in trained.coefs_)
b0, b1 = (biases.astype("float32") for biases in trained.intercepts_)

# %% The model in Relax
# ``main(x [batch, 784]) -> [batch, 10]`` calls three TensorIR functions: linear0, relu0 and linear1.
builder = relax.BlockBuilder()
x = relax.Var("x", relax.TensorType((args.batch, pixels), "float32"))


def linear(x: Any, w: Any, b: Any) -> Any:
    return topi.add(topi.matmul(x, w), b)


with builder.function("main", [x]):
    with builder.dataflow():
        before_relu = builder.emit_te(linear, x, relax.const(w0), relax.const(b0), primfunc_name_hint="linear0")
        active = builder.emit_te(topi.nn.relu, before_relu, primfunc_name_hint="relu0")
        scores = builder.emit_te(linear, active, relax.const(w1), relax.const(b1), primfunc_name_hint="linear1")
        scores = builder.emit_output(scores)
    builder.emit_func_output(scores)
model = builder.get()

# %% Tune linear0
# For searchlab, this is a GEMM with a bias.
workload = searchlab.gemm(args.batch, hidden, pixels, bias=True)
log = args.out / f"mlp-{args.batch}-{args.space}-{args.policy}-{trials}.jsonl"
result = searchlab.tune(workload, space=args.space, policy=args.policy, target=target, trials=trials, log=log)
print(f"linear0 is {workload}: the best of {len(result.trials)} trials takes {result.best.seconds * 1e6:.2f} us")

# %% Put it back
# This is done twice: with searchlab, and with TVM, from a database that every user of MetaSchedule can read.
with tempfile.TemporaryDirectory() as database:
    export_logs([log], "metaschedule", Path(database))
    with target.tvm:
        by_tvm = relax.transform.MetaScheduleApplyDatabase(database)(model)
models = {
    "as it was": model,
    "apply_history_best": searchlab.apply_history_best(model, log),
    "MetaScheduleApplyDatabase": by_tvm,
}
for name, module in models.items():
    changed = [
        function.name_hint for function in module.functions if module[function].attrs.get("tirx.is_scheduled", False)
    ]
    print(f"{name}: tuned are {', '.join(changed) or 'none'} of the model's functions")

# This is linear0 after the replacement, and the function that calls it, which is the same as before. In a notebook,
# ``show()`` instead of ``print`` highlights the code.
print(models["apply_history_best"]["linear0"].script())
print(models["apply_history_best"]["main"].script())

# %% A mixture with library functions
# A model need not consist of TensorIR only. Here, a library computes everything but linear0: Relax calls functions that
# are registered by name, whose last argument is the result. linear0 is found and replaced as before.


@tvm.register_global_func("numpy.relu", override=True)
def library_relu(x: Any, out: Any) -> None:
    out.copyfrom(np.maximum(x.numpy(), 0))


@tvm.register_global_func("numpy.linear", override=True)
def library_linear(x: Any, w: Any, b: Any, out: Any) -> None:
    out.copyfrom(x.numpy() @ w.numpy() + b.numpy())


builder = relax.BlockBuilder()
x = relax.Var("x", relax.TensorType((args.batch, pixels), "float32"))
with builder.function("main", [x]):
    with builder.dataflow():
        before_relu = builder.emit_te(linear, x, relax.const(w0), relax.const(b0), primfunc_name_hint="linear0")
        of_hidden = relax.TensorType((args.batch, hidden), "float32")
        active = builder.emit(relax.call_dps_packed("numpy.relu", [before_relu], of_hidden))
        of_scores = relax.TensorType((args.batch, classes), "float32")
        arguments = [active, relax.const(w1), relax.const(b1)]
        scores = builder.emit_output(relax.call_dps_packed("numpy.linear", arguments, of_scores))
    builder.emit_func_output(scores)
models["with a library"] = searchlab.apply_history_best(builder.get(), log)
print(models["with a library"]["main"].script())

# %% The same predictions
# The last batch is padded with empty images.
machines = {
    name: relax.VirtualMachine(tvm.compile(module, target=target.tvm), tvm.cpu()) for name, module in models.items()
}
filled = np.pad(test, ((0, -len(test) % args.batch), (0, 0))).reshape(-1, args.batch, pixels)
predicted = {
    name: np.concatenate([machine["main"](tvm.runtime.tensor(batch)).numpy() for batch in filled])[: len(test)]
    for name, machine in machines.items()
}
digits = {name: scores.argmax(axis=1) for name, scores in predicted.items()}
for name in models:
    assert (digits[name] == digits["as it was"]).all(), f"{name} changes what the model says"
    right = (digits[name] == of_test).mean()
    print(f"{name}: {right:.1%} of {len(test)} images right, the first are {' '.join(map(str, digits[name][:10]))}")
print(f"\nThe first image, in which the tuned model sees: {names[digits['apply_history_best'][0]]}")
print(draw(test[0]))

# %% In less time
# The models are timed in turn, several times, so that other load on the machine affects all of them.
rounds, protocol = (2, {"min_repeat_ms": 1}) if args.small else (9, {"min_repeat_ms": 50})
arrays = (np.ones((args.batch, pixels), "float32"), w0, b0, np.empty((args.batch, hidden), "float32"))
operands = [tvm.runtime.tensor(array) for array in arrays]
model_timers = {name: machine.time_evaluator("main", tvm.cpu(), **protocol) for name, machine in machines.items()}
kernels = {
    name: tvm.compile(module["linear0"].with_attr("global_symbol", "main"), target.tvm)
    for name, module in models.items()
}
linear0_timers = {name: module.jit().time_evaluator("main", tvm.cpu(), **protocol) for name, module in kernels.items()}
times: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
for _ in range(rounds):
    for name in models:
        times[name].append((model_timers[name](operands[0]).mean * 1e6, linear0_timers[name](*operands).mean * 1e6))
for name, measured in times.items():
    model_us, linear0_us = (statistics.median(column) for column in zip(*measured, strict=True))
    print(f"{name}: the model takes {model_us:.2f} us, linear0 alone {linear0_us:.2f} us")
