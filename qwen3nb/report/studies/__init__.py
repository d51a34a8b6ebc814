"""Tables and figures of the study pages, one module per page."""
