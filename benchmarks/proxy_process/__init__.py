"""The WAN proxy as a process of its own, whose CPU is told apart, and the control of its lines."""
