"""Plan of a mesh (`isthmus plan`): a report, and tables and drawings made from the report."""
