"""What an operation is: its row, the code made from it, its public name."""
