"""Run notebooks: parameters, papermill, attempts and their pages, sweeps."""
