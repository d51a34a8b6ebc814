"""Query-document pairs to log-odds: the yes/no reranker."""
