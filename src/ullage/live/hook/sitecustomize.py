"""Loaded by a Python program that `ullage run` started: notes when PyTorch's ranks wait for one another on the host.

Nothing here may disturb the program, whatever Python it is: this is read by all of them, from 2.7 on, so it has no annotations. Next to
nothing is imported, what fails is left alone, and this folder leaves `sys.path` before the program begins.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would cost every program 5 ms


def _begin():  # type: ignore[no-untyped-def]
    if os.environ.get("ULLAGE_RECORD") and sys.version_info >= (3, 8):
        import _ullage_waits  # type: ignore[import-not-found]

        _ullage_waits.install()


def _hand_on():  # type: ignore[no-untyped-def]
    """Run the sitecustomize that the program would have had, if there is one."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]  # noqa: PTH100
    try:
        from importlib.machinery import PathFinder
    except ImportError:  # Python 2
        _hand_on_in_2()  # type: ignore[no-untyped-call]
        return
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _hand_on_in_2():  # type: ignore[no-untyped-def]
    import imp

    try:
        found = imp.find_module("sitecustomize", sys.path)
    except ImportError:
        return
    imp.load_module("sitecustomize", *found)  # type: ignore[arg-type]


try:  # noqa: SIM105 - contextlib is slow to import
    _begin()  # type: ignore[no-untyped-call]
except Exception:  # noqa: S110 - the program matters more than what it tells us
    pass
_hand_on()  # type: ignore[no-untyped-call]
