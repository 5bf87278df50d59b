"""Operations along dimensions: sums and other reductions, running ones, sorting, statistics."""
