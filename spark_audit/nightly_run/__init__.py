"""What the audits of earlier days left open, and the tables that grow night by night."""
