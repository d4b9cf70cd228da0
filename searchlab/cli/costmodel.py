"""``searchlab costmodel``: cost models, apart from any search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .terminal import AsJson, out, plugin

cost_models = typer.Typer(no_args_is_help=True, help="Cost models, apart from any search.")


@cost_models.command(name="eval")
def costmodel_eval(
    logs: Annotated[list[Path], typer.Argument(help="Logs, or directories of them.", metavar="LOG...")],
    model: Annotated[
        list[str], typer.Option(help="A cost model: `xgboost`, or `xgboost,objective=rank`. May be repeated.")
    ],
    features: Annotated[
        str,
        typer.Option(
            help="The features that the cost models see: `knob`, `program`, `per-store`, `itervar` or `curve`."
        ),
    ] = "knob",
    split: Annotated[
        str,
        typer.Option(
            help="`within-task` holds out a part of each log; `by-task` holds out all logs of each workload in turn."
        ),
    ] = "within-task",
    seed: Annotated[
        int, typer.Option(min=0, help="Decides which trials are held out, and the random draws of the models.")
    ] = 0,
    train_fraction: Annotated[float, typer.Option(help="The share of each log to train on, for `within-task`.")] = 0.7,
    k: Annotated[int, typer.Option("-k", min=1, help="The k of top-k recall and of the peak score.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Show how well cost models predict recorded trials that they were not trained on."""
    from ..costmodel import COST_MODELS
    from ..tables.costmodels import evaluate, mean_quality, quality_table

    plugins = [COST_MODELS.named(plugin(text))[0] for text in model]
    qualities = evaluate(logs, plugins, features=features, split=split, seed=seed, train_fraction=train_fraction, k=k)
    if as_json:
        import msgspec

        each = [msgspec.to_builtins(held, enc_hook=str) for held in qualities]
        print(json.dumps({"means": mean_quality(qualities), "logs": each}, indent=2))
        return
    trained = f"trained on {100 * train_fraction:g} % of each log" if split == "within-task" else "on other workloads"
    out.print(quality_table(qualities, f"{split}, {features} features: {trained}, k = {k}"))
