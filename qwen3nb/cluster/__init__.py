"""Work on several machines or GPUs with Ray; imported only when used."""
