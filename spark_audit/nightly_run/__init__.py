"""State that audits of earlier days left, and the tables that grow night by night."""
