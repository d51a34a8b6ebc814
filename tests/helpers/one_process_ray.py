"""As much of Ray as a driver of actors needs, in one process: calls run at once."""

from functools import partial


class Reference:
    """What a call returned, or raised."""

    def __init__(self, value=None, error=None):
        self.value, self.error = value, error


class Method:
    def __init__(self, ray, name, function):
        self.ray, self.name, self.function = ray, name, function

    def options(self, **_):
        return self

    def remote(self, *arguments):
        return self.ray.called(self.name, self.function, arguments)


class Actor:
    def __init__(self, ray, real):
        for name in dir(real):
            if not name.startswith("_"):
                setattr(self, name, Method(ray, name, getattr(real, name)))


class Kind:
    def __init__(self, ray, kind):
        self.remote = lambda: Actor(ray, kind())

    def options(self, **_):
        return self


class exceptions:  # noqa: N801 - as a module
    class RayError(Exception): ...

    class RayTaskError(RayError):
        def __init__(self, cause):
            self.cause = cause


class OneProcessRay:
    """Stands in for the module.

    ``dies(name, arguments)`` says whether the actor dies during a call; ``answered(name, value)``
    may change what a call returns.
    """

    exceptions = exceptions

    def __init__(self, *, dies=lambda *_: False, answered=lambda _, value: value):
        self.dies, self.answered = dies, answered
        self.remote = partial(Kind, self)

    def called(self, name, function, arguments):
        if self.dies(name, arguments):
            return Reference(error=exceptions.RayError())
        try:
            return Reference(self.answered(name, function(*arguments)))
        except Exception as error:  # noqa: BLE001 - Ray wraps all
            return Reference(error=exceptions.RayTaskError(error))

    def get(self, reference):
        if reference.error is not None:
            raise reference.error
        return reference.value

    def wait(self, references, timeout):
        return references[:1], references[1:]

    def kill(self, actor):
        """It holds nothing."""
