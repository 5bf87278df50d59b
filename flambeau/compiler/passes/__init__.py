"""From a list of operations to a better one."""
