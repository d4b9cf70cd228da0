"""Search with a ranking model trained on other workloads, which a model of the current run gradually replaces.

Sources: Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018), sections 4 and 5, for the sum of a global
and a local model, and for the search; Zheng et al., "TenSet: A Large-scale Program Performance Dataset for Learned
Tensor Compilers" (NeurIPS 2021, Datasets and Benchmarks), section 4, for ranking models of many workloads.
"""

from __future__ import annotations

from searchlab.policy import Origin, OwnModel

from .xgb import Xgb


class Pretrained(Xgb, own_model=OwnModel("pretrained")):
    """The policy ``xgb`` with the cost model ``pretrained``, which transfers from other workloads.

    With a warm start from runs of other shapes in the same space, the first batch is selected by a model trained on
    these runs alone. The weight of this model falls with every trial, and a model of the current run takes over. With
    features of programs, runs in other spaces can be used as well. Without a warm start, this is ``xgb`` with a ranking
    loss. The options are those of ``xgb``.
    """

    origin = Origin(
        "AutoTVM's transfer of a global model, with TenSet's ranking loss",
        "2018 and 2021",
        "Chen et al., NeurIPS 2018, section 4; Zheng et al., NeurIPS 2021 Datasets and Benchmarks, section 4",
        "relative",
        (
            "the global model's weight is 32 / (32 + n) after n trials, and the local model has the rest",
            "the local model ranks the run's own trials, not the residuals of the global model",
            "boosted trees on a config's knobs by default; TenSet's models see the stores of programs",
            "the global model is trained on a few workloads, not on a dataset of millions of programs",
            "the search is that of xgb",
        ),
    )
