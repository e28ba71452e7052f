"""What an audit comes to, as text, JSON, tables and one HTML page."""
