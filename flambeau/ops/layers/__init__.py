"""Operations of layers: products with weights, convolutions, pooling, norms, losses, attention, recurrence."""
