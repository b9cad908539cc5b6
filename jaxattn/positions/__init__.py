"""Positions put into the data: functions of explicit positions, without caches.

    added to tokens        sinusoidal
    rotates query and key  rotary (a function), Rotary (its options together), rotate
    longer contexts        LinearScaling, Llama3Scaling, YarnScaling

Letters: see `jaxattn._typing`; R features of a head are rotated.
"""

from jaxattn.positions._rotary import Rotary as Rotary
from jaxattn.positions._rotary import rotary as rotary
from jaxattn.positions._rotary import rotate as rotate
from jaxattn.positions._scaling import LinearScaling as LinearScaling
from jaxattn.positions._scaling import Llama3Scaling as Llama3Scaling
from jaxattn.positions._scaling import YarnScaling as YarnScaling
from jaxattn.positions._sinusoidal import sinusoidal as sinusoidal

__all__ = [
    "LinearScaling",
    "Llama3Scaling",
    "Rotary",
    "YarnScaling",
    "rotary",
    "rotate",
    "sinusoidal",
]
