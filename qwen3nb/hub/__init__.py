"""The Hugging Face hub, with limits: what it may take, what it may send, what is kept of it.

`session.hub_session` guards the client that the hub's libraries share, and thereby every
download of a model or of data, whichever library asks for it. The room knows no model and
no task; it imports only `utils`.
"""
