"""The declared mesh: the YAML file's content, and everything derived from it. Runs nothing."""
