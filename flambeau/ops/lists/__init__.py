"""Operations on lists of tensors, and the updates of optimizers."""
