"""Tables: arrays, data frames and sparse matrices, and the views of their rows."""
