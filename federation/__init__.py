"""The declared mesh: what the YAML file says, and what follows from it. Runs nothing."""
