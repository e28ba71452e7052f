"""TCP proxy with delay, rate, loss of a direction and half-open connections.

Demo and tests use the proxy in process (`WanProxy`); benchmarks run `python -m wan_proxy`, started
by `ProxyProcess` and controlled through `ProxyControl`.
"""

from wan_proxy.client import ControlError, ProxyControl, ProxyProcess, ProxyStartError
from wan_proxy.condition import (
    DSL_BRANCH,
    ISDN_64K,
    LAN,
    LOSSY_MOBILE,
    METRO,
    PRESETS,
    SATELLITE,
    TRANSATLANTIC,
    TRANSPACIFIC,
    ConditionError,
    DirectionCondition,
    LineCondition,
)
from wan_proxy.direction import DirectionStatistics
from wan_proxy.line import LineStatistics, ProxiedLine
from wan_proxy.proxy import WanProxy

__all__ = [
    "DSL_BRANCH",
    "ISDN_64K",
    "LAN",
    "LOSSY_MOBILE",
    "METRO",
    "PRESETS",
    "SATELLITE",
    "TRANSATLANTIC",
    "TRANSPACIFIC",
    "ConditionError",
    "ControlError",
    "DirectionCondition",
    "DirectionStatistics",
    "LineCondition",
    "LineStatistics",
    "ProxiedLine",
    "ProxyControl",
    "ProxyProcess",
    "ProxyStartError",
    "WanProxy",
]
