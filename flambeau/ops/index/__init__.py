"""Operations by position: indexing, gather and scatter, embedding."""
