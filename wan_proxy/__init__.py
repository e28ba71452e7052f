"""A TCP proxy with delay, rate, loss of a direction and half-open connections.

Demo, tests and benchmark use the one: in process (`WanProxy`) or as a process of its own
(`python -m wan_proxy`, started by `ProxyProcess`, talked to by `ProxyControl`).
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
from wan_proxy.line import ProxiedLine
from wan_proxy.proxy import WanProxy
from wan_proxy.statistics import DirectionStatistics, LineStatistics

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
