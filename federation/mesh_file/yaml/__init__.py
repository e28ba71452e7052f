"""One tree with positions, read from YAML, included files and tables of branches."""
