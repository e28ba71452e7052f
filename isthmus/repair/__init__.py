"""Repair of lost messages (`isthmus repair`): find them, find sites that still have them,
resend.
"""
