"""What a run says: a summary as data, and the same as JSON, JUnit, gates, and one self-contained HTML page."""
