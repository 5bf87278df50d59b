"""Views, joining and splitting, writing into parts, a tensor's own memory."""
