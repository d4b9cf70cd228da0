"""From a question to an answer: a study over a table, its page, a policy of our own, and whether it is better.

    python studies/tutorials/research.py

Nothing is measured: recorded tables of the suite answer, and it takes about half a minute. ``research.ipynb`` beside
this script is the same as a notebook.
"""

# %% [markdown]
# # Does it pay to learn from what was measured?
#
# Random search learns nothing, and is hard to beat while trials are few. So our question is: *after 48 trials, does a
# genetic algorithm find faster programs than random search?* A question should name what it is about: here, the
# programs of a GEMM of 98 x 98 x 98 on one core, in the space `knob-template`, and best-so-far over 48 trials.
#
# ## A study
#
# A study file says what is searched, where, by whom, and how often. Several seeds are needed, since one run may be
# lucky. We also write down which comparison the study is made for, before we see any result.

# %%
from pathlib import Path

import searchlab
from searchlab.measure.suite import find_suite

OUT = Path("results/tutorials/research")
table = find_suite("v1").table("gemm-98x98x98-knob-1t")
OUT.mkdir(parents=True, exist_ok=True)
(OUT / "question.toml").write_text(f"""
workloads = ["{table.entry.workload}"]
spaces = ["knob-template"]
policies = ["random", "evolutionary"]
contrasts = [["evolutionary", "random"]]
trials = 48
seeds = 10

[measure]
kind = "table"
path = "{table.path}"
""")

# %% [markdown]
# `searchlab run question.toml` runs it from the command line. In Python it is this; if it is interrupted, run it again.

# %%
study = searchlab.Study.load(OUT / "question.toml")
first = searchlab.compare(study.run(OUT / "question"))
print(first.verdict)

# %% [markdown]
# ## The page
#
# The report is one page that needs no network. Open it in a browser: the verdict stands first, then the curves. In the
# chart, the first trials of both policies are shaded: from the same seed both draw the same configs until one of them
# has learned something.

# %%
print("open", first.save(OUT / "page", traces=0))
first.plot_convergence()

# %% [markdown]
# One workload can only say what is true of that workload. The numbers of the curves, as the page has them:

# %%
print(first.strategies_frame()[["strategy", "area_median", "trials_to_target_median", "best_gflops_median"]])

# %% [markdown]
# ## A policy of our own
#
# Is a population needed at all? Hill climbing only mutates the best config so far. `NeverTwice` asks for new configs
# until a batch is full, and fills the rest at random. `space.mutate` changes one decision, in whatever space it is.


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
# Does it keep the contract of a policy? Each check is a function with a name; one that fails raises an error that says
# what was expected. `searchlab check policy my_package:HillClimb` does the same.

# %%
checks = searchlab.conformance.policy_checks(HillClimb)
for check in checks:
    check()
print(len(checks), "checks passed")

# %% [markdown]
# ## Is it better?
#
# On one table we might only fit our idea to it. The suite has twelve tables for development, of GEMMs and convolutions
# in several spaces, and 24 for test. We work on those for development.

# %%
wider = searchlab.Study.from_dict({
    "suite": "v1/dev", "policies": [{"name": HillClimb, "label": "hill-climb"}, "evolutionary", "random"],
    "contrasts": [["hill-climb", "random"]], "trials": 48, "seeds": 4,
})  # fmt: skip
second = searchlab.compare(wider.run(OUT / "wider"))
print(*(answer.says for answer in second.summary.answers), second.summary.overall.verdict, sep="\n")

# %% [markdown]
# There are three answers, from the narrow one to the wide one: in these runs, on these workloads (what more seeds would
# say), and on workloads like these (what other workloads would say, if these are a fair sample of them). A claim in a
# paper wants the last one, which takes at least eleven workloads.

# %%
for claim in second.summary.overall.claims:
    print(f"{claim.first} and {claim.second}:", *claim.says, sep="\n    ")

# %% [markdown]
# Ranks over the workloads; a bar joins policies that these runs cannot tell apart.

# %%
second.plot_ranks()

# %% [markdown]
# When the policy is done, and its options are fixed, run it once on the tables for test, against all baselines:
#
#     searchlab suite run v1 --policy my_package:HillClimb --jobs 2 --split test --out results/hill-climb
