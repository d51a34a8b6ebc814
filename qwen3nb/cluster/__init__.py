"""Work on several machines, or several GPUs of one, with Ray; imported only when used."""
