"""TCP proxy in process (`WanProxy`): delay, rate, loss of a direction, half-open connections."""

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
    "DirectionCondition",
    "DirectionStatistics",
    "LineCondition",
    "LineStatistics",
    "ProxiedLine",
    "WanProxy",
]
