"""Tables, figures, pages and model cards made from results."""
