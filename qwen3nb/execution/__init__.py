"""Run notebooks: parameters, papermill, pages, sweeps."""
