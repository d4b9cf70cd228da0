"""Which of three policies finds a fast GEMM soonest? They search a table of recorded measurements, from eight seeds.

    python studies/tutorials/compare.py

The table is in the suite that searchlab brings, so nothing is measured. In most seeds xgb and evolutionary reach 95 %
of the best known, and random does not; but eight seeds cannot tell the three apart. ``compare.ipynb`` beside this
script is the same as a notebook.
"""

# %% [markdown]
# # Which policy finds a fast GEMM soonest?
#
# A study says what is searched, where and by whom. Here a table of recorded measurements answers instead of the
# machine: all programs that the space `guided-gemm` has for a GEMM of 255 x 129 x 65.

# %%
import searchlab
from searchlab.measure.suite import find_suite

table = find_suite("v1").table("gemm-255x129x65-guided-1t")
space = {"name": table.entry.space.name, "options": table.entry.space.options}
study = searchlab.Study.from_dict({
    "workloads": [table.entry.workload], "spaces": [space], "policies": ["random", "evolutionary", "xgb"],
    "trials": 48, "seeds": 8, "measure": {"kind": "table", "path": str(table.path)},
})  # fmt: skip

# %% [markdown]
# Each policy has a run from each seed. Run this again, and the logs are read instead.

# %%
results = study.run("results/tutorials/compare")
comparison = searchlab.compare(results)
print(comparison.verdict)

# %% [markdown]
# The numbers are frames of pandas, one row for each policy here.

# %%
print(comparison.strategies_frame()[["strategy", "trials_to_target_median", "area_median", "seconds"]])

# %% [markdown]
# Figures are those of the report: how far each policy is from the best program of the space, and its best so far. They
# are figures of matplotlib: `savefig` writes one, and a notebook shows the last of a cell. `comparison.save("DIR")`
# writes the whole report.

# %%
comparison.plot_regret().savefig("results/tutorials/compare/regret.png")
comparison.plot_convergence()
