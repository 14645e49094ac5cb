"""The shipped cases, and what a sound judge says of each."""
