"""The analysis of logs: convergence curves, summaries, verdicts, tables and charts. It does not need TVM."""

from .comparison import Comparison, compare, report, report_directory
from .read import read_runs
from .summary import Summary, summarize
from .terminal import summary_table

__all__ = ["Comparison", "Summary", "compare", "read_runs", "report", "report_directory", "summarize", "summary_table"]
