"""Tables, figures, pages and model cards from results."""
