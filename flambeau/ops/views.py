"""Views: other shapes and strides over the same memory."""
