"""Kafka MirrorMaker 2 as a way: a process at the destination copies the origin's topic."""
