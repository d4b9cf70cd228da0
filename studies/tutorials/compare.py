"""Which of three policies finds a fast GEMM soonest? They search a table of recorded measurements, from eight seeds.

    python studies/tutorials/compare.py

The table belongs to the suite that is included in searchlab, so nothing is measured. In most seeds, xgb and
evolutionary reach 95 % of the best known and random does not; but eight seeds cannot distinguish the three.
``compare.ipynb`` is the same as a notebook.
"""

# %% [markdown]
# # Which policy finds a fast GEMM soonest?
#
# A study specifies what is searched and by which policies. This one searches a table from the included suite, so
# recorded measurements are used instead of the machine. The table contains all programs in the space `guided-gemm` for
# a GEMM of 255 x 129 x 65.

# %%
import searchlab

policies = ["random", "evolutionary", "xgb"]
study = searchlab.Study.from_dict(
    {"suite": "v1/gemm-255x129x65-guided-1t", "policies": policies, "trials": 48, "seeds": 8}
)

# %% [markdown]
# Each policy performs one run for each seed. If you execute this again, the logs are read instead.

# %%
results = study.run("results/tutorials/compare")
comparison = searchlab.compare(results)
print(comparison.verdict)

# %% [markdown]
# The numbers are available as pandas frames; this one has one row per policy.

# %%
print(comparison.strategies_frame()[["strategy", "trials_to_target_median", "area_mean", "seconds"]])

# %% [markdown]
# The figures are the same as in the report: how far each policy is ahead of random search, and the best program so
# far. They are Altair charts: `save` writes one to a file, and a notebook shows the last one in a cell.
# `comparison.save("DIR")` writes the complete report.

# %%
comparison.plot_differences().save("results/tutorials/compare/differences.png")
comparison.plot_convergence()
