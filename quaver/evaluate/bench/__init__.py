"""Load: how fast a decision server answers, and what it does when it is asked too much."""
