"""Files of a ledger: rows taken out of a node for the audit, and proofs made from them."""
