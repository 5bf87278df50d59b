"""Collectives with derivatives (`functional`)."""

from ...missing import refused

globals().update(refused("distributed.nn", "modules in other processes are not implemented", "RemoteModule"))
