from qwen3nb.report.render.table import Conclusion as Conclusion
