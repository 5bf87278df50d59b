"""The older name of `hub.load_state_dict_from_url`, and the progress bar that it shows."""

from ..hub import load_state_dict_from_url, tqdm  # noqa: F401

load_url = load_state_dict_from_url
