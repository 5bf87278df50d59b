"""Random numbers: factories, tensors filled in place, and distributions as functions of tensors."""
