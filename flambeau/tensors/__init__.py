"""What a user holds: tensors, their dtypes, devices and storage, how they print and how others see them."""
