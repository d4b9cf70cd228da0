"""From a question to an answer: a study over a table, its report, our own policy, and whether it is better.

    python studies/tutorials/research.py

Nothing is measured: the suite's tables supply recorded times, so it takes about half a minute. ``research.ipynb`` is
the same as a notebook.
"""

# %% [markdown]
# # Does it pay to learn from measurements?
#
# Random search learns nothing, yet it is hard to beat with few trials. Our question is therefore: *within 48 trials,
# does a genetic algorithm find faster programs than random search?* A question should state its scope: here, a GEMM of
# 98 x 98 x 98 on one core, in the space `knob-template`, judged by the best program so far over 48 trials.
#
# ## A study
#
# A study file specifies what is searched, by which policies, and how often. Several seeds are needed, because a single
# run may be lucky. Before we see any result, we also register the comparison that the study is for (`contrasts`).

# %%
from pathlib import Path

import searchlab

OUT = Path("results/tutorials/research")
OUT.mkdir(parents=True, exist_ok=True)
question = """
suite = "v1/gemm-98x98x98-knob-1t"
policies = ["random", "evolutionary"]
contrasts = [["evolutionary", "random"]]
trials = 48
seeds = 10
"""
with open(OUT / "question.toml", "w") as file:
    file.write(question)

# %% [markdown]
# On the command line, `searchlab run question.toml` runs the study. In Python, use the following code. If it is
# interrupted, run it again.

# %%
study = searchlab.Study.load(OUT / "question.toml")
first = searchlab.compare(study.run(OUT / "question"))
print(first.verdict)

# %% [markdown]
# ## The report
#
# The report is a single page that works offline. Open it in a browser: it begins with the verdict, followed by the
# curves. The shaded area in the chart marks the first trials: with the same seed, both policies draw the same configs
# until one of them has learned something.

# %%
print("open", first.save(OUT / "page"))
first.plot_convergence()

# %% [markdown]
# One workload tells us only about that workload. These are the numbers behind the curves:

# %%
columns = ["strategy", "area_mean", "trials_to_target_median", "best_gflops_median"]
print(first.strategies_frame()[columns])

# %% [markdown]
# ## Our own policy
#
# Is a population needed at all? Hill climbing only mutates the best config so far. `NeverTwice` removes configs that
# have been proposed before and fills the batch with random ones. `space.mutate` changes one knob and works in any
# space.


# %%
class HillClimb(searchlab.NeverTwice):
    """Mutates the best config so far, or draws a random one with probability ``restart``."""

    def __init__(self, space, *, seed, restart=0.2):
        super().__init__(space, seed=seed)
        self.restart = restart

    def propose(self, n, rng):
        best = min(self.trials, key=lambda trial: trial.cost, default=None)
        for _ in range(n):
            if best is not None and rng.random() >= self.restart:
                yield self.space.mutate(best.config, rng)


# %% [markdown]
# Does it satisfy the policy contract? Each check is a function; if it fails, it raises an error that states what was
# expected. `searchlab check policy my_package:HillClimb` does the same.

# %%
checks = searchlab.conformance.policy_checks(HillClimb)
for check in checks:
    check()
print(len(checks), "checks passed")

# %% [markdown]
# ## Is it better?
#
# With only one table, we might fit our idea to that table. The suite has twelve tables for development, with GEMMs and
# convolutions in several spaces, and 24 for testing. Here we use the development tables.

# %%
wider = searchlab.Study.from_dict(
    {
        "suite": "v1/dev",
        "contrasts": [["hill-climb", "random"]],
        "trials": 48,
        "seeds": 4,
        "policies": [{"name": HillClimb, "label": "hill-climb"}, "evolutionary", "random"],
    }
)
second = searchlab.compare(wider.run(OUT / "wider"))
answers = [answer.sentence for answer in second.summary.answers]
print(*answers, second.summary.overall.verdict, sep="\n")

# %% [markdown]
# There are three claims, from narrow to wide: in these runs, on these workloads (what more seeds would show), and on
# workloads like these (what other workloads would show, if these are a fair sample of them). Papers usually make the
# last claim, which requires at least eleven workloads; it has columns of its own, which begin with `others_`.

# %%
contrasts = second.contrasts_frame().query("workload == ''").dropna(axis="columns", how="all")
print(contrasts.drop(columns=["workload", "test", "runs"]).round(3).to_string(index=False))

# %% [markdown]
# This chart shows the differences from random search over the workloads, with their intervals.

# %%
second.plot_differences()

# %% [markdown]
# When the policy is finished and its options are fixed, run it once on the test tables, and compare it with all
# baselines:
#
#     searchlab suite run v1 --policy my_package:HillClimb --jobs 2 --split test --out results/hill-climb
